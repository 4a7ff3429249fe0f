"""Show, attend and tell, soft (Xu et al. 2015): heedful's show-attend-tell-2015-soft-small.

A small convolutional network makes 8 x 8 cells; each word attends to all cells before the LSTM
steps. The gate beta and the doubly stochastic loss of the paper are not on the lecture's slide; the
loss is left out here. Numbers of equations are the paper's.
"""

import torch
from torch import nn
from torch.nn.functional import max_pool2d


class Encoder(nn.Module):
    """Three convolutions with norm and ReLU; rows and columns have learned vectors."""

    def __init__(self, sizes):
        super().__init__()
        pairs = zip((3, *sizes[:-1]), sizes, strict=True)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairs
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes)
        self.rows = nn.Embedding(8, sizes[-1] // 2)
        self.columns = nn.Embedding(8, sizes[-1] // 2)

    def forward(self, images):
        """Return the annotations a_i (B, 64, D) of images (B, 3, 32, 32)."""
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            images = norm(convolution(images)).relu()
            images = max_pool2d(images, 2) if index < 2 else images
        place = torch.arange(64)
        positions = torch.cat([self.rows(place // 8), self.columns(place % 8)], -1)
        return images.flatten(2).mT + positions


class Decoder(nn.Module):
    def __init__(self, vocab, embedding_size, size, memory_size, score_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size)
        self.shared = nn.Linear(memory_size, memory_size)
        self.start_hidden = nn.Linear(memory_size, size)
        self.start_cell = nn.Linear(memory_size, size)
        self.W = nn.Linear(size, score_size, bias=False)
        self.U = nn.Linear(memory_size, score_size, bias=False)
        self.v = nn.Linear(score_size, 1, bias=False)
        self.gate = nn.Linear(size, 1)
        self.lstm = nn.LSTMCell(embedding_size + memory_size, size)
        self.deep = nn.Linear(size + memory_size, embedding_size)
        self.output = nn.Linear(embedding_size, vocab)

    def start(self, annotations):
        """Return h_0 and c_0, from the mean annotation (section 3.1.2)."""
        mean = self.shared(annotations.mean(1)).relu()
        return self.start_hidden(mean).tanh(), self.start_cell(mean).tanh()

    def attend(self, hidden, annotations):
        """Return z and the weights (equations 4 to 6 and section 4.2.1)."""
        scores = self.v((self.W(hidden)[:, None] + self.U(annotations)).tanh())[..., 0]
        weights = scores.softmax(-1)
        beta = self.gate(hidden).sigmoid()
        return beta * (weights[:, None] @ annotations)[:, 0], weights

    def forward(self, inputs, annotations):
        hidden, cell = self.start(annotations)
        steps = []
        for y in self.embedding(inputs).unbind(1):
            z, weights = self.attend(hidden, annotations)
            hidden, cell = self.lstm(torch.cat([y, z], -1), (hidden, cell))  # equations 1 to 3
            features = y + self.deep(torch.cat([hidden, z], -1))  # equation 7
            steps.append((self.output(features).log_softmax(-1), weights))
        return torch.stack([p for p, _ in steps], 1), torch.stack([w for _, w in steps], 1)


class Model(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.encoder = Encoder((16, 32, 48))
        self.decoder = Decoder(vocab, embedding_size=48, size=96, memory_size=48, score_size=64)

    def forward(self, images, lengths, inputs):
        """Return log-probabilities (B, T, V) and weights (B, T, 64), with teacher forcing."""
        return self.decoder(inputs, self.encoder(images))


NAMES = {  # a prefix here: the prefix in heedful
    "encoder.convolutions.{n}": "encoder.stages.{n}.convolutions.0",
    "encoder.norms.{n}": "encoder.stages.{n}.norms.0",
    "encoder.rows": "encoder.positions.rows.embedding",
    "encoder.columns": "encoder.positions.columns.embedding",
    "decoder.embedding": "decoder.embedding.embedding",
    "decoder.shared": "decoder.bridge.relu_layers.0",
    "decoder.start_hidden": "decoder.bridge.layers.0",
    "decoder.start_cell": "decoder.bridge.cell_layers.0",
    "decoder.W": "decoder.wiring.attention.score.query_projection",
    "decoder.U": "decoder.wiring.attention.score.key_projection",
    "decoder.v": "decoder.wiring.attention.score.score_vector",
    "decoder.gate": "decoder.wiring.attention.readout.gate",
    "decoder.lstm": "decoder.wiring.cells.cells.0.layer",
    "decoder.deep": "decoder.wiring.pre_output.projection",
    "decoder.output": "decoder.output_head.projection",
}
NAMES |= {k.format(n=n): v.format(n=n) for k, v in [*NAMES.items()][:2] for n in range(3)}


def heedful_name(name):
    """Return the name that a parameter has in the recipe."""
    prefix, _, kind = name.rpartition(".")
    return f"{NAMES[prefix]}.{kind}" + ("_l0" if prefix == "decoder.lstm" else "")

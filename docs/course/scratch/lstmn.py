"""LSTMN with shallow fusion (Cheng et al. 2016), as heedful's recipe lstmn-2016-shallow-small.

Encoder and decoder are cells that attend to all their past states; the decoder also attends to the
source. Numbers of equations are the paper's.
"""

import torch
from torch import nn


class AdditiveAttention(nn.Module):
    """v . tanh(W q + U k), softmax, and the sum of the values."""

    def __init__(self, query_size, key_size, size):
        super().__init__()
        self.W = nn.Linear(query_size, size, bias=False)
        self.U = nn.Linear(key_size, size, bias=False)
        self.v = nn.Linear(size, 1, bias=False)

    def forward(self, query, keys, values, mask=None):
        scores = self.v((self.W(query)[:, None] + self.U(keys)).tanh())[..., 0]
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        return (weights[:, None] @ values)[:, 0], weights


class Cell(nn.Module):
    """An LSTM whose last states are sums over all past ones (equations 5 to 9)."""

    def __init__(self, input_size, size, score_size):
        super().__init__()
        self.attention = AdditiveAttention(input_size + size, size, score_size)
        self.from_input = nn.Linear(input_size, 4 * size)
        self.from_context = nn.Linear(size, 4 * size, bias=False)

    def forward(self, x, context, history):
        """Return the context of this step and its entry for the history, (B, 2 D) each."""
        size = context.size(1) // 2
        if history:
            past = torch.stack(history, 1)  # (B, t, 2 D): hidden and cell states
            query = torch.cat([x, context[:, :size]], -1)
            context, _ = self.attention(query, past[..., :size], past)
        hidden, cell = context.chunk(2, -1)
        i, f, g, o = (self.from_input(x) + self.from_context(hidden)).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return context, torch.cat([o.sigmoid() * cell.tanh(), cell], -1)


def first_context(hidden):
    """Return the context of the first step: a hidden state, and a cell state of zeros."""
    return torch.cat([hidden, torch.zeros_like(hidden)], -1)


class Encoder(nn.Module):
    def __init__(self, vocab, embedding_size, size, score_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size)
        self.cell = Cell(embedding_size, size, score_size)
        self.size = size

    def forward(self, source, lengths):
        """Return all hidden states (B, S, D) and the last one of each source."""
        context = first_context(self.embedding.weight.new_zeros(len(source), self.size))
        history = []
        for x in self.embedding(source).unbind(1):
            context, entry = self.cell(x, context, history)
            history.append(entry)
        states = torch.stack(history, 1)[..., : self.size]
        return states, states[torch.arange(len(source)), lengths - 1]


class Decoder(nn.Module):
    def __init__(self, vocab, embedding_size, size, score_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size)
        self.start = nn.Linear(size, size)
        self.attention = AdditiveAttention(size, size, score_size)
        self.cell = Cell(embedding_size + size, size, score_size)
        self.features = nn.Linear(2 * size + embedding_size, size)
        self.output = nn.Linear(size, vocab)

    def forward(self, inputs, states, last, mask):
        hidden = self.start(last).tanh()
        context, history, steps = first_context(hidden), [], []
        for y in self.embedding(inputs).unbind(1):
            found, weights = self.attention(hidden, states, states, mask)
            context, entry = self.cell(torch.cat([y, found], -1), context, history)
            history.append(entry)
            hidden = entry.chunk(2, -1)[0]
            features = self.features(torch.cat([hidden, found, y], -1)).tanh()
            steps.append((self.output(features).log_softmax(-1), weights))
        return torch.stack([p for p, _ in steps], 1), torch.stack([w for _, w in steps], 1)


class Model(nn.Module):
    def __init__(self, vocab, embedding_size=64, size=96, score_size=64):
        super().__init__()
        self.encoder = Encoder(vocab, embedding_size, size, score_size)
        self.decoder = Decoder(vocab, embedding_size, size, score_size)

    def forward(self, source, lengths, inputs):
        """Return log-probabilities (B, T, V) and weights (B, T, S), with teacher forcing."""
        states, last = self.encoder(source, lengths)
        mask = torch.arange(source.size(1)) < lengths[:, None]
        return self.decoder(inputs, states, last, mask)


SCORE = {"W": "query_projection", "U": "key_projection", "v": "score_vector"}
CELL = {"from_input": "input_to_hidden", "from_context": "context_to_hidden"}
NAMES = {  # a prefix here: the prefix in heedful
    "encoder.embedding": "encoder.embedding.embedding",
    "decoder.embedding": "decoder.embedding.embedding",
    "decoder.start": "decoder.bridge.layers.0",
    "decoder.features": "decoder.wiring.pre_output.projection",
    "decoder.output": "decoder.output_head.projection",
}
for mine, theirs in SCORE.items():
    NAMES[f"decoder.attention.{mine}"] = f"decoder.wiring.attention.score.{theirs}"
for mine, theirs in {
    "encoder.cell": "encoder.layers.0.forward_cell",
    "decoder.cell": "decoder.wiring.cells.cells.0",
}.items():
    NAMES |= {f"{mine}.{here}": f"{theirs}.{there}" for here, there in CELL.items()}
    for here, there in SCORE.items():
        NAMES[f"{mine}.attention.{here}"] = f"{theirs}.intra_attention.attention.score.{there}"


def heedful_name(name):
    """Return the name that a parameter has in the recipe."""
    prefix, _, kind = name.rpartition(".")
    return f"{NAMES[prefix]}.{kind}"

"""Seq2Seq without attention (Sutskever et al. 2014), as heedful's recipe seq2seq-2014-small.

Two layers of LSTM read the source; the decoder starts from their last states and sees nothing else.
"""

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Encoder(nn.Module):
    def __init__(self, vocab, embedding_size, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size)
        self.lstm = nn.LSTM(embedding_size, size, num_layers=2, batch_first=True)

    def forward(self, source, lengths):
        """Return hidden and cell states after the last word of each source."""
        embedded = self.embedding(source)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(packed)[1]


class Decoder(nn.Module):
    def __init__(self, vocab, embedding_size, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding_size)
        self.lstm = nn.LSTM(embedding_size, size, num_layers=2, batch_first=True)
        self.output = nn.Linear(size, vocab)

    def forward(self, inputs, state):
        """Return log-probabilities (B, T, V) and the next state."""
        hidden, state = self.lstm(self.embedding(inputs), state)
        return self.output(hidden).log_softmax(-1), state


class Model(nn.Module):
    def __init__(self, vocab, embedding_size=96, size=192):
        super().__init__()
        self.encoder = Encoder(vocab, embedding_size, size)
        self.decoder = Decoder(vocab, embedding_size, size)

    def forward(self, source, lengths, inputs):
        """Decode with teacher forcing; there are no weights."""
        return self.decoder(inputs, self.encoder(source, lengths))[0], None


NAMES = {  # a prefix here: the prefix in heedful
    "encoder.embedding.": "encoder.embedding.embedding.",
    "encoder.lstm.": "encoder.layers.{layer}.forward_cell.layer.",
    "decoder.embedding.": "decoder.embedding.embedding.",
    "decoder.lstm.": "decoder.wiring.cells.cells.{layer}.layer.",
    "decoder.output.": "decoder.output_head.projection.",
}


def heedful_name(name):
    """Return the name that a parameter has in the recipe."""
    prefix = next(prefix for prefix in NAMES if name.startswith(prefix))
    rest = name.removeprefix(prefix)
    is_recurrent = "lstm" in prefix
    return NAMES[prefix].format(layer=rest[-1]) + (rest[:-1] + "0" if is_recurrent else rest)

"""Corpora: the data of a run, read, cut into tokens and reported on.

What differs between models of pairs and models of running text is all here: how data is read,
and how batches are made of it. Data that does not fit into memory is cut into files.
"""

from heedful.corpora.kinds import Batches, Corpora, MaskedTextCorpora, PairCorpora, TextCorpora
from heedful.corpora.reading import read_corpora
from heedful.corpora.tokens import build_tokens

__all__ = [
    "Batches",
    "Corpora",
    "MaskedTextCorpora",
    "PairCorpora",
    "TextCorpora",
    "build_tokens",
    "read_corpora",
]

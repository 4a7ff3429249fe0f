"""Attention: what may be seen, how strongly, where it goes, and what is taken."""

from heedful.attention.alignments import Alignment, Softmax
from heedful.attention.attend import Attended, Attention, Memory
from heedful.attention.masks import padding
from heedful.attention.readouts import Expectation, Readout
from heedful.attention.scores import AdditiveScore, BilinearScore, DotScore, Score

__all__ = [
    "AdditiveScore",
    "Alignment",
    "Attended",
    "Attention",
    "BilinearScore",
    "DotScore",
    "Expectation",
    "Memory",
    "Readout",
    "Score",
    "Softmax",
    "padding",
]

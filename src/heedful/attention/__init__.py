"""Attention: what may be seen, how strongly, where it goes, and what is taken."""

from heedful.attention.additive import AdditiveScore, ConcatScore, LinearScore
from heedful.attention.alignments import Alignment, Softmax
from heedful.attention.attend import Attended, Attention, Memory
from heedful.attention.location import LocationScore
from heedful.attention.masks import block_local, causal, documents, padding, prefix, window
from heedful.attention.products import (
    BilinearScore,
    CosineScore,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TrilinearScore,
)
from heedful.attention.readouts import Expectation, Readout
from heedful.attention.scores import Score
from heedful.attention.sparse import Entmax, Sparsemax

__all__ = [
    "AdditiveScore",
    "Alignment",
    "Attended",
    "Attention",
    "BilinearScore",
    "ConcatScore",
    "CosineScore",
    "DotScore",
    "Entmax",
    "Expectation",
    "LinearScore",
    "LocationScore",
    "Memory",
    "ProjectedDotScore",
    "Readout",
    "ScaledDotScore",
    "Score",
    "Softmax",
    "Sparsemax",
    "TrilinearScore",
    "block_local",
    "causal",
    "documents",
    "padding",
    "prefix",
    "window",
]

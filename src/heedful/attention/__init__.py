"""Attention: what may be seen, how strongly, where it goes, and what is taken."""

from heedful.attention.additive import AdditiveScore, ConcatScore, LinearScore
from heedful.attention.alignments import Aligned, Alignment, Softmax
from heedful.attention.attend import Attended, Attention, Memory
from heedful.attention.location import LocationScore
from heedful.attention.masks import block_local, causal, documents, padding, prefix, window
from heedful.attention.past import Past
from heedful.attention.products import (
    BilinearScore,
    CosineScore,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TrilinearScore,
)
from heedful.attention.readouts import Expectation, Gated, PerPosition, Readout, Selection
from heedful.attention.scores import Score, SumScore
from heedful.attention.sparse import Entmax, Sparsemax

__all__ = [
    "AdditiveScore",
    "Aligned",
    "Alignment",
    "Attended",
    "Attention",
    "BilinearScore",
    "ConcatScore",
    "CosineScore",
    "DotScore",
    "Entmax",
    "Expectation",
    "Gated",
    "LinearScore",
    "LocationScore",
    "Memory",
    "Past",
    "PerPosition",
    "ProjectedDotScore",
    "Readout",
    "ScaledDotScore",
    "Score",
    "Selection",
    "Softmax",
    "Sparsemax",
    "SumScore",
    "TrilinearScore",
    "block_local",
    "causal",
    "documents",
    "padding",
    "prefix",
    "window",
]

"""Attention: what may be seen, how strongly, where it goes, and what is taken."""

from heedful.attention.additive import AdditiveScore, ConcatScore, LinearScore
from heedful.attention.alignments import Aligned, Alignment, Looked, Softmax
from heedful.attention.attend import Attended, Attends, Attention, Memory
from heedful.attention.baselines import LearnedBaseline, MovingBaseline, NoBaseline
from heedful.attention.centres import PredictedCentre, StepCentre
from heedful.attention.chunkwise import Chunkwise
from heedful.attention.distances import AlibiScore, GaussianScore, RelativeBucketScore
from heedful.attention.features import ContextFeature, CoverageFeature, LocationFeature
from heedful.attention.hard import Argmax, GumbelSoftmax, Sampled, StraightThrough
from heedful.attention.heads import MultiHead
from heedful.attention.local import Local
from heedful.attention.location import LocationScore
from heedful.attention.marginal import MonotonicMarginal
from heedful.attention.masks import block_local, causal, documents, padding, prefix, window
from heedful.attention.monotonic import Monotonic
from heedful.attention.past import Past
from heedful.attention.penalties import CoverageLoss, DoublyStochastic, EntropyPenalty, Penalty
from heedful.attention.positions import (
    AddPositions,
    ConcatenatePositions,
    LearnedPositions,
    SinusoidalPositions,
)
from heedful.attention.products import (
    BilinearScore,
    CosineScore,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TrilinearScore,
)
from heedful.attention.readouts import Expectation, Gated, PerPosition, Readout, Selection
from heedful.attention.relative import RelativeKeyScore, RotaryScore
from heedful.attention.scores import Score, SumScore
from heedful.attention.sparse import Entmax, Sparsemax

__all__ = [
    "AddPositions",
    "AdditiveScore",
    "AlibiScore",
    "Aligned",
    "Alignment",
    "Argmax",
    "Attended",
    "Attends",
    "Attention",
    "BilinearScore",
    "Chunkwise",
    "ConcatScore",
    "ConcatenatePositions",
    "ContextFeature",
    "CosineScore",
    "CoverageFeature",
    "CoverageLoss",
    "DotScore",
    "DoublyStochastic",
    "Entmax",
    "EntropyPenalty",
    "Expectation",
    "Gated",
    "GaussianScore",
    "GumbelSoftmax",
    "LearnedBaseline",
    "LearnedPositions",
    "LinearScore",
    "Local",
    "LocationFeature",
    "LocationScore",
    "Looked",
    "Memory",
    "Monotonic",
    "MonotonicMarginal",
    "MovingBaseline",
    "MultiHead",
    "NoBaseline",
    "Past",
    "Penalty",
    "PerPosition",
    "PredictedCentre",
    "ProjectedDotScore",
    "Readout",
    "RelativeBucketScore",
    "RelativeKeyScore",
    "RotaryScore",
    "Sampled",
    "ScaledDotScore",
    "Score",
    "Selection",
    "SinusoidalPositions",
    "Softmax",
    "Sparsemax",
    "StepCentre",
    "StraightThrough",
    "SumScore",
    "TrilinearScore",
    "block_local",
    "causal",
    "documents",
    "padding",
    "prefix",
    "window",
]

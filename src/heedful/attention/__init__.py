"""Attention mechanisms: score function, alignment and readout, with one head or several.

Read in this order: `outputs` (values in and out), `attention` and `multi_head` (the modules),
`scores` and its families, `alignments` and its families, `readouts`, `auxiliary_losses`, `masks`,
`config` (the config of a whole mechanism).
"""

from heedful.attention.additive_scores import (
    AdditiveScore,
    ConcatScore,
    ContextFeature,
    CoverageFeature,
    LinearScore,
    LocationFeature,
    LocationScore,
)
from heedful.attention.alignments import (
    AlignmentFunction,
    EntmaxAlignment,
    SoftmaxAlignment,
    SparsemaxAlignment,
)
from heedful.attention.attention import Attention, SingleHeadAttention
from heedful.attention.auxiliary_losses import (
    AttentionLoss,
    CoverageLoss,
    DoublyStochasticLoss,
    EntropyLoss,
)
from heedful.attention.composite_scores import RotaryScore
from heedful.attention.dot_product_scores import (
    BilinearScore,
    CosineScore,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TrilinearScore,
)
from heedful.attention.hard_alignment import (
    ArgmaxAlignment,
    GumbelSoftmaxAlignment,
    LearnedBaseline,
    MovingAverageBaseline,
    SampledAlignment,
    StraightThroughAlignment,
    ZeroBaseline,
)
from heedful.attention.local_alignment import LocalAlignment, MonotonicCenter, PredictiveCenter
from heedful.attention.masks import (
    block_local_mask,
    causal_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    window_mask,
)
from heedful.attention.monotonic_alignment import (
    MonotonicAlignment,
    MonotonicChunkwiseAlignment,
    MonotonicMarginalAlignment,
)
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.outputs import (
    AlignmentLossInputs,
    AlignmentOutput,
    AttentionOutput,
    AttentionState,
    Memory,
)
from heedful.attention.positional_encoding import (
    AddPositionalEncoding,
    ConcatPositionalEncoding,
    LearnedEncoding,
    SinusoidalEncoding,
)
from heedful.attention.readouts import (
    ArgmaxReadout,
    GatedReadout,
    PerPositionReadout,
    Readout,
    WeightedSumReadout,
)
from heedful.attention.relative_scores import (
    AlibiScore,
    GaussianScore,
    RelativeBiasScore,
    RelativeKeyScore,
)
from heedful.attention.scores import ScoreFunction, SumScore

__all__ = [
    "AddPositionalEncoding",
    "AdditiveScore",
    "AlibiScore",
    "AlignmentFunction",
    "AlignmentLossInputs",
    "AlignmentOutput",
    "ArgmaxAlignment",
    "ArgmaxReadout",
    "Attention",
    "AttentionLoss",
    "AttentionOutput",
    "AttentionState",
    "BilinearScore",
    "ConcatPositionalEncoding",
    "ConcatScore",
    "ContextFeature",
    "CosineScore",
    "CoverageFeature",
    "CoverageLoss",
    "DotScore",
    "DoublyStochasticLoss",
    "EntmaxAlignment",
    "EntropyLoss",
    "GatedReadout",
    "GaussianScore",
    "GumbelSoftmaxAlignment",
    "LearnedBaseline",
    "LearnedEncoding",
    "LinearScore",
    "LocalAlignment",
    "LocationFeature",
    "LocationScore",
    "Memory",
    "MonotonicAlignment",
    "MonotonicCenter",
    "MonotonicChunkwiseAlignment",
    "MonotonicMarginalAlignment",
    "MovingAverageBaseline",
    "MultiHeadAttention",
    "PerPositionReadout",
    "PredictiveCenter",
    "ProjectedDotScore",
    "Readout",
    "RelativeBiasScore",
    "RelativeKeyScore",
    "RotaryScore",
    "SampledAlignment",
    "ScaledDotScore",
    "ScoreFunction",
    "SingleHeadAttention",
    "SinusoidalEncoding",
    "SoftmaxAlignment",
    "SparsemaxAlignment",
    "StraightThroughAlignment",
    "SumScore",
    "TrilinearScore",
    "WeightedSumReadout",
    "ZeroBaseline",
    "block_local_mask",
    "causal_mask",
    "document_mask",
    "padding_mask",
    "prefix_mask",
    "window_mask",
]

"""The config of a whole attention mechanism, and the unions of all score and alignment configs."""

from typing import Annotated, Literal

from pydantic import Field

from heedful.attention.additive_scores import AdditiveScoreConfig, AnyAdditiveScoreConfig
from heedful.attention.alignments import (
    FixedAlignmentConfig,
    SoftAlignmentConfig,
    SoftmaxAlignmentConfig,
)
from heedful.attention.attention import Attention, SingleHeadAttention
from heedful.attention.auxiliary_losses import AttentionLossConfig
from heedful.attention.hard_alignment import HardAlignmentConfig
from heedful.attention.local_alignment import LocalAlignmentConfig
from heedful.attention.monotonic_alignment import AnyMonotonicAlignmentConfig
from heedful.attention.multi_head import MultiHeadAttention, MultiHeadConfig
from heedful.attention.positional_encoding import DEFAULT_BASE
from heedful.attention.readouts import ReadoutConfig, WeightedSumReadoutConfig
from heedful.attention.relative_scores import PositionScoreConfig, RotaryScore
from heedful.attention.scores import (
    DotProductScoreConfig,
    ScaledDotScoreConfig,
    ScoreFunction,
    SumScore,
)
from heedful.config import BaseConfig
from heedful.errors import check

ContentScoreConfig = Annotated[
    DotProductScoreConfig | AnyAdditiveScoreConfig, Field(discriminator="type")
]


class RotaryScoreConfig(BaseConfig):
    """Rotary position embedding around a content score (Su et al. 2021)."""

    type: Literal["rotary"] = "rotary"
    score: ContentScoreConfig = ScaledDotScoreConfig()
    """Score of the rotated query and key; 'dot', 'scaled-dot' and 'cosine' become relative."""
    base: Annotated[float, Field(gt=1)] = DEFAULT_BASE
    """Ratio of the longest to the shortest wavelength, approximately."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None) -> ScoreFunction:
        message = f"'rotary' needs even sizes, but queries have {query_size} and keys {key_size}"
        hint = "make both sizes even, or choose 'alibi' or 'relative-position-bias' in a 'sum'"
        check(query_size % 2 == 0 and key_size % 2 == 0, "score.type", message, hint)
        inner = self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
        return RotaryScore(inner, self.base)


SumTermConfig = Annotated[
    ContentScoreConfig | PositionScoreConfig | RotaryScoreConfig, Field(discriminator="type")
]


class SumScoreConfig(BaseConfig):
    """Sum of multiple scores, such as content and distance."""

    type: Literal["sum"] = "sum"
    scores: Annotated[tuple[SumTermConfig, ...], Field(min_length=1)]
    """The terms of the sum."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None) -> ScoreFunction:
        terms = [
            score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
            for score in self.scores
        ]
        return SumScore(terms)


ScoreConfig = Annotated[SumTermConfig | SumScoreConfig, Field(discriminator="type")]
AlignmentConfig = Annotated[
    SoftAlignmentConfig
    | LocalAlignmentConfig
    | AnyMonotonicAlignmentConfig
    | HardAlignmentConfig
    | FixedAlignmentConfig,
    Field(discriminator="type"),
]


class AttentionConfig(BaseConfig):
    """Score function, alignment and readout of an attention mechanism."""

    score: ScoreConfig = AdditiveScoreConfig()
    """How queries and keys are scored."""
    alignment: AlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become attention weights."""
    readout: ReadoutConfig = WeightedSumReadoutConfig()
    """How weights and values become the context."""
    multi_head: MultiHeadConfig | None = None
    """Multi-head attention; without it, a single head attends to the memory without projections."""
    auxiliary_losses: tuple[AttentionLossConfig, ...] = ()
    """Losses on the attention weights that are added to the training loss."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of the attention weights in training."""

    def build(
        self, *, query_size: int, memory_size: int, output_size: int | None = None
    ) -> Attention:
        heads = self.multi_head
        if heads is None:
            sizes = f"the memory size {memory_size}, but {output_size} is needed"
            message = f"a single head returns contexts of {sizes}"
            hint = "set multi_head, or make both sizes equal"
            check(output_size in {None, memory_size}, "attention.multi_head", message, hint)
            return self._build_single_head(query_size, memory_size, None)
        message = f"the memory size {memory_size} is not divisible by {heads.num_heads} heads"
        hint = "choose a divisor of the memory size, or set head_dim"
        is_valid = heads.head_dim is not None or memory_size % heads.num_heads == 0
        check(is_valid, "multi_head.num_heads", message, hint)
        head_dim = heads.head_dim or memory_size // heads.num_heads
        inner = self._build_single_head(head_dim, head_dim, heads.num_heads)
        reason = "its contexts cannot be merged"
        message = f"the readout 'per-position' does not work with several heads: {reason}"
        hint = "remove multi_head, or choose another readout"
        check(not inner.readout.is_per_position, "multi_head", message, hint)
        options = {**heads.options(), "head_dim": head_dim, "output_size": output_size}
        return MultiHeadAttention(inner, query_size=query_size, memory_size=memory_size, **options)

    def _build_single_head(
        self, query_size: int, key_size: int, num_heads: int | None
    ) -> SingleHeadAttention:
        return SingleHeadAttention(
            self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads),
            self.alignment.build(query_size=query_size),
            self.readout.build(query_size=query_size),
            auxiliary_losses=[loss.build() for loss in self.auxiliary_losses],
            dropout=self.dropout,
        )


def build_self_attention(
    config: AttentionConfig, query_size: int, memory_size: int, config_path: str
) -> Attention:
    """Build attention of a source over itself; settings that need targets are errors."""
    attention = config.build(query_size=query_size, memory_size=memory_size)
    attention.role = "self"
    readout, alignment = repr(config.readout.type), repr(config.alignment.type)
    contexts = "a context for every source position, but self-attention needs one per query"
    message = f"{readout} returns {contexts}"
    is_valid, hint = not attention.readout.is_per_position, "choose the readout 'weighted-sum'"
    check(is_valid, f"{config_path}.readout.type", message, hint)
    message, hint = "self-attention does not support auxiliary losses", "remove auxiliary_losses"
    check(not config.auxiliary_losses, f"{config_path}.auxiliary_losses", message, hint)
    targets = "target tokens, but self-attention has no targets"
    message = f"{alignment} learns from the likelihood of {targets}"
    hint = "choose 'gumbel-softmax' or 'straight-through'"
    check(not attention.has_auxiliary_losses, f"{config_path}.alignment.type", message, hint)
    return attention

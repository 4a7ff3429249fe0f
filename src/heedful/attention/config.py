"""The config of a whole attention mechanism, and the union of all alignment configs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from heedful.attention.additive_scores import AdditiveScoreConfig
from heedful.attention.alignments import SoftAlignmentConfig, SoftmaxAlignmentConfig
from heedful.attention.attention import Attention, SingleHeadAttention
from heedful.attention.auxiliary_losses import AttentionLossConfig
from heedful.attention.composite_scores import ScoreConfig
from heedful.attention.hard_alignment import HardAlignmentConfig
from heedful.attention.local_alignment import LocalAlignmentConfig
from heedful.attention.monotonic_alignment import AnyMonotonicAlignmentConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.readouts import ReadoutConfig, WeightedSumReadoutConfig
from heedful.config import BaseConfig
from heedful.errors import check

AlignmentConfig = Annotated[
    SoftAlignmentConfig | LocalAlignmentConfig | AnyMonotonicAlignmentConfig | HardAlignmentConfig,
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
        if self.multi_head is None:
            check(
                output_size in {None, memory_size},
                "attention.multi_head",
                f"a single head returns contexts of the memory size {memory_size}, but "
                f"{output_size} is needed",
                "set multi_head, or make both sizes equal",
            )
            return self._build_single_head(query_size, memory_size, None)
        head_dim = self.multi_head.resolve_head_dim(memory_size)
        inner = self._build_single_head(head_dim, head_dim, self.multi_head.num_heads)
        return self.multi_head.build(
            inner, query_size=query_size, memory_size=memory_size, output_size=output_size
        )

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
    config: AttentionConfig, *, query_size: int, memory_size: int, config_path: str
) -> Attention:
    """Build attention of a source over itself; settings that need targets are errors."""
    attention = config.build(query_size=query_size, memory_size=memory_size)
    attention.role = "self"
    check(
        not attention.readout.is_per_position,
        f"{config_path}.readout.type",
        f"{config.readout.type!r} returns a context for every source position, but self-attention "
        f"needs one per query",
        "choose the readout 'weighted-sum'",
    )
    check(
        not config.auxiliary_losses,
        f"{config_path}.auxiliary_losses",
        "self-attention does not support auxiliary losses",
        "remove auxiliary_losses",
    )
    check(
        not attention.has_auxiliary_losses,
        f"{config_path}.alignment.type",
        f"{config.alignment.type!r} learns from the likelihood of target tokens, but "
        f"self-attention has no targets",
        "choose 'gumbel-softmax' or 'straight-through'",
    )
    return attention

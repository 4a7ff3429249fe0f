"""The alignments, as a configuration names them."""

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
from heedful.errors import ConfigError

AlignmentConfig = Annotated[
    SoftAlignmentConfig | LocalAlignmentConfig | AnyMonotonicAlignmentConfig | HardAlignmentConfig,
    Field(discriminator="type"),
]


# Attention, as a configuration puts it together.


class AttentionConfig(BaseConfig):
    """How attention scores, where it goes and what it takes."""

    score: ScoreConfig = AdditiveScoreConfig()
    """How strongly each place of the source is called for."""
    alignment: AlignmentConfig = SoftmaxAlignmentConfig()
    """Where attention goes."""
    readout: ReadoutConfig = WeightedSumReadoutConfig()
    """What is taken."""
    multi_head: MultiHeadConfig | None = None
    """How many questions are asked at once; if not given, one, of the memory as it is."""
    auxiliary_losses: tuple[AttentionLossConfig, ...] = ()
    """What is added to the loss for where attention went."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the weights by which nothing is taken, in training."""

    def build(
        self, *, query_size: int, memory_size: int, output_size: int | None = None
    ) -> Attention:
        """Make the mechanism for queries and memories of these widths.

        Its context is as wide as the memory. Heads alone can make it another width.
        """
        if self.multi_head is None:
            self._check_output_size(memory_size, output_size or memory_size)
            return self._build_single_head(query_size, memory_size, None)
        size = self.multi_head.resolve_head_dim(memory_size)
        inner = self._build_single_head(size, size, self.multi_head.num_heads)
        return self.multi_head.build(
            inner, query_size=query_size, memory_size=memory_size, output_size=output_size
        )

    def _check_output_size(self, memory_size: int, output_size: int) -> None:
        if memory_size != output_size:
            raise ConfigError(
                "attention.multi_head",
                f"without heads a context is as wide as the memory, {memory_size}, but here it "
                f"must be {output_size}",
                "give heads, or make both widths the same",
            )

    def _build_single_head(
        self, query_size: int, key_size: int, num_heads: int | None
    ) -> SingleHeadAttention:
        return SingleHeadAttention(
            self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads),
            self.alignment.build(query_size=query_size),
            self.readout.build(query_size=query_size),
            auxiliary_losses=[each.build() for each in self.auxiliary_losses],
            dropout=self.dropout,
        )


# Looking within: how does a source look at itself, before any target is known?
#
# Whatever a mechanism learns from targets, or keeps for them, has no place here, and is refused.


def build_self_attention(
    config: AttentionConfig, *, query_size: int, memory_size: int, config_path: str
) -> Attention:
    """Make attention by which a source looks at itself, before any target is known."""
    attention = config.build(query_size=query_size, memory_size=memory_size)
    attention.role = "self"
    if attention.readout.is_per_position:
        raise ConfigError(
            f"{config_path}.read.type",
            f"{config.readout.type!r} keeps every place apart, but here one context is wanted",
            "choose the readout 'expectation'",
        )
    if config.auxiliary_losses:
        raise ConfigError(
            f"{config_path}.penalties",
            "where a source looks at itself cannot be penalised",
            "leave penalties out",
        )
    if attention.has_auxiliary_losses:
        raise ConfigError(
            f"{config_path}.align.type",
            f"{config.alignment.type!r} learns from how well a token was said, but none is said here",
            "choose 'gumbel-softmax' or 'straight-through'",
        )
    return attention

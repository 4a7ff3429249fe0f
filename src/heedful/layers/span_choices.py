"""How far self-attention sees, as a configuration names it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from heedful.attention.attend import Attends
from heedful.config import Choice
from heedful.config.choice import naming
from heedful.errors import ConfigError
from heedful.layers.block_attention import BlockSelfAttention
from heedful.layers.compressed_attention import CompressedSelfAttention
from heedful.layers.self_attention import FullSelfAttention, SelfAttention


class FullSpanConfig(Choice):
    """Every place sees every other, or every earlier one."""

    kind: Literal["full"] = "full"

    def build(self, attention: Attends, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        return FullSelfAttention(attention)


class BlockSpanConfig(Choice):
    """A place sees those of its own block (Liu et al. 2018, local attention)."""

    kind: Literal["blocks"] = "blocks"
    size: PositiveInt = 256
    """Places in a block; the paper's number."""

    def build(self, attention: Attends, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        if attention.has_history:
            raise ConfigError(
                "spans.kind",
                "blocks are looked at side by side, but this attention goes by where it looked "
                "before",
                "choose the span 'full', or another score or alignment",
            )
        return BlockSelfAttention(attention, block=self.size)


class CompressedSpanConfig(Choice):
    """A place sees all before it, pressed together (Liu et al. 2018, memory-compressed)."""

    kind: Literal["compressed"] = "compressed"
    stride: PositiveInt = 3
    """Places that are pressed into one; the paper's number."""

    def build(self, attention: Attends, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        if attention.knows_places:
            raise ConfigError(
                "spans.kind",
                "places that were pressed together have no number, but this attention goes by it",
                "choose the span 'full', or a score and an alignment that go by content",
            )
        return CompressedSelfAttention(attention, size=size, stride=self.stride)


SpanFamily = FullSpanConfig | BlockSpanConfig | CompressedSpanConfig
SpanConfig = Annotated[
    SpanFamily,
    Field(discriminator="kind"),
    naming(SpanFamily | Literal["full", "blocks", "compressed"]),
]

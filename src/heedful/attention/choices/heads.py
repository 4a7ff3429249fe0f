"""Heads, as a configuration names them."""

from __future__ import annotations

from pydantic import PositiveInt, model_validator

from heedful.attention.attend import Attention
from heedful.attention.heads import MultiHead
from heedful.config import Choice
from heedful.errors import ConfigError


class HeadsConfig(Choice):
    """Ask several questions at once, each of its own part of the memory (Vaswani et al. 2017)."""

    num_heads: PositiveInt = 8
    """How many."""
    num_groups: PositiveInt | None = None
    """Heads of the keys and values, each shared by as many of the questions (Ainslie et al. 2023):
    1 is multi-query attention; if not given, none is shared."""
    head_size: PositiveInt | None = None
    """Width of a question, a key and a value; if not given, the memory's width is parted."""
    bias: bool = False
    """Whether the projections into the heads and out of them add a vector."""

    @model_validator(mode="after")
    def _shares_evenly(self) -> HeadsConfig:
        if self.num_groups and self.num_heads % self.num_groups:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_groups} groups evenly: num_groups "
                f"must divide num_heads"
            )
        return self

    def size(self, memory_size: int) -> int:
        """How wide a head is, over a memory of this width."""
        if self.head_size:
            return self.head_size
        if memory_size % self.num_heads:
            raise ConfigError(
                "heads.num_heads",
                f"a memory of width {memory_size} cannot be parted among {self.num_heads} heads",
                "choose a number that divides the width, or give head_size",
            )
        return memory_size // self.num_heads

    def build(
        self,
        inner: Attention,
        *,
        query_size: int,
        memory_size: int,
        output_size: int | None = None,
    ) -> MultiHead:
        """Put heads round a mechanism that was made for one."""
        if inner.read.is_per_position:
            raise ConfigError(
                "heads",
                "the contexts of several heads are put together, but 'per-position' keeps one "
                "for every place",
                "leave heads out, or choose another readout",
            )
        return MultiHead(
            inner,
            query_size=query_size,
            memory_size=memory_size,
            num_heads=self.num_heads,
            num_groups=self.num_groups,
            head_size=self.size(memory_size),
            output_size=output_size,
            bias=self.bias,
        )

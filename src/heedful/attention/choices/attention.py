"""Attention, as a configuration puts it together."""

from __future__ import annotations

from pydantic import Field

from heedful.attention.attend import Attends, Attention
from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.content import AdditiveScoreConfig
from heedful.attention.choices.heads import HeadsConfig
from heedful.attention.choices.penalties import PenaltyConfig
from heedful.attention.choices.readouts import ExpectationConfig, ReadoutConfig
from heedful.attention.choices.scores import ScoreConfig
from heedful.attention.choices.sharing import SoftmaxConfig
from heedful.config import Choice
from heedful.errors import ConfigError


class AttentionConfig(Choice):
    """How attention scores, where it goes and what it takes."""

    score: ScoreConfig = AdditiveScoreConfig()
    """How strongly each place of the source is called for."""
    align: AlignmentConfig = SoftmaxConfig()
    """Where attention goes."""
    read: ReadoutConfig = ExpectationConfig()
    """What is taken."""
    heads: HeadsConfig | None = None
    """How many questions are asked at once; if not given, one, of the memory as it is."""
    penalties: tuple[PenaltyConfig, ...] = ()
    """What is added to the loss for where attention went."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the weights by which nothing is taken, in training."""

    def build(
        self, *, query_size: int, memory_size: int, output_size: int | None = None
    ) -> Attends:
        """Make the mechanism for queries and memories of these widths.

        Its context is as wide as the memory. Heads alone can make it another width.
        """
        if self.heads is None:
            self._refuse_another_width(memory_size, output_size or memory_size)
            return self._mechanism(query_size, memory_size, None)
        size = self.heads.size(memory_size)
        inner = self._mechanism(size, size, self.heads.num_heads)
        return self.heads.build(
            inner, query_size=query_size, memory_size=memory_size, output_size=output_size
        )

    def _refuse_another_width(self, memory_size: int, output_size: int) -> None:
        if memory_size != output_size:
            raise ConfigError(
                "attention.heads",
                f"without heads a context is as wide as the memory, {memory_size}, but here it "
                f"must be {output_size}",
                "give heads, or make both widths the same",
            )

    def _mechanism(self, query_size: int, key_size: int, num_heads: int | None) -> Attention:
        return Attention(
            self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads),
            self.align.build(query_size=query_size),
            self.read.build(query_size=query_size),
            penalties=[each.build() for each in self.penalties],
            dropout=self.dropout,
        )

"""Attention, as a configuration puts it together."""

from __future__ import annotations

from heedful.attention.attend import Attends, Attention
from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.content import AdditiveScoreConfig
from heedful.attention.choices.heads import HeadsConfig
from heedful.attention.choices.penalties import PenaltyConfig
from heedful.attention.choices.readouts import ExpectationConfig, ReadoutConfig
from heedful.attention.choices.scores import ScoreConfig
from heedful.attention.choices.sharing import SoftmaxConfig
from heedful.config import Choice


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

    def build(self, *, query_size: int, memory_size: int) -> Attends:
        """Make the mechanism for queries and memories of these widths; so wide is its context."""
        if self.heads is None:
            return self._mechanism(query_size, memory_size, None)
        size = self.heads.size(memory_size)
        inner = self._mechanism(size, size, self.heads.num_heads)
        return self.heads.build(inner, query_size=query_size, memory_size=memory_size)

    def _mechanism(self, query_size: int, key_size: int, num_heads: int | None) -> Attention:
        return Attention(
            self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads),
            self.align.build(query_size=query_size),
            self.read.build(query_size=query_size),
            penalties=[each.build() for each in self.penalties],
        )

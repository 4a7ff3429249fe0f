"""Attention, as a configuration puts it together."""

from __future__ import annotations

from heedful.attention.attend import Attention
from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.content import AdditiveScoreConfig
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

    def build(self, *, query_size: int, memory_size: int) -> Attention:
        """Make the mechanism for queries and memories of these widths."""
        score = self.score.build(query_size=query_size, key_size=memory_size)
        align = self.align.build(query_size=query_size)
        return Attention(score, align, self.read.build(query_size=query_size))

"""Attention, as a configuration puts it together."""

from __future__ import annotations

from heedful.attention.alignment_choices import AlignmentConfig, SoftmaxConfig
from heedful.attention.attend import Attention
from heedful.attention.readout_choices import ExpectationConfig, ReadoutConfig
from heedful.attention.score_choices import AdditiveScoreConfig, ScoreConfig
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
        return Attention(score, self.align.build(), self.read.build())

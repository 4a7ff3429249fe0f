"""The scores, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heedful.attention.choices.content import ContentConfig
from heedful.attention.scores import Score, SumScore
from heedful.config import Choice

SummandConfig = ContentConfig


class SumScoreConfig(Choice):
    """Add several scores: what a key holds and how far away it lies, say."""

    kind: Literal["sum"] = "sum"
    scores: Annotated[tuple[SummandConfig, ...], Field(min_length=1)]
    """The scores that are added."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score for these sizes."""
        summands = [
            score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
            for score in self.scores
        ]
        return SumScore(summands)


ScoreConfig = Annotated[ContentConfig | SumScoreConfig, Field(discriminator="kind")]

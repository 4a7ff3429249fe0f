"""The scores, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heedful.attention.choices.content import ContentConfig, ScaledDotScoreConfig
from heedful.attention.choices.distances import DistanceConfig
from heedful.attention.positions import BASE
from heedful.attention.relative import RotaryScore
from heedful.attention.scores import Score, SumScore
from heedful.config import Choice
from heedful.errors import ConfigError


class RotaryScoreConfig(Choice):
    """Turn queries and keys by their places, then compare them (Su et al. 2021)."""

    kind: Literal["rotary"] = "rotary"
    score: ContentConfig = ScaledDotScoreConfig()
    """How they are compared; by 'dot', 'scaled-dot' and 'cosine' only their distance counts."""
    base: Annotated[float, Field(gt=1)] = BASE
    """How much more slowly the last pair of numbers turns than the first, about."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        if query_size % 2 or key_size % 2:
            raise ConfigError(
                "score.kind",
                f"a rotary score turns pairs of numbers, but queries have {query_size} and "
                f"keys {key_size}",
                "make both sizes even, or choose 'alibi' or 'relative-buckets' in a 'sum'",
            )
        inner = self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
        return RotaryScore(inner, self.base)


SummandConfig = Annotated[
    ContentConfig | DistanceConfig | RotaryScoreConfig, Field(discriminator="kind")
]


class SumScoreConfig(Choice):
    """Add several scores: what a key holds and how far away it lies, say."""

    kind: Literal["sum"] = "sum"
    scores: Annotated[tuple[SummandConfig, ...], Field(min_length=1)]
    """The scores that are added."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        summands = [
            score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
            for score in self.scores
        ]
        return SumScore(summands)


ScoreConfig = Annotated[
    ContentConfig | DistanceConfig | RotaryScoreConfig | SumScoreConfig,
    Field(discriminator="kind"),
]

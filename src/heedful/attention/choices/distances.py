"""The scores that look at places, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from heedful.attention.distances import AlibiScore, GaussianScore, RelativeBucketScore
from heedful.attention.relative import RelativeKeyScore
from heedful.attention.scores import Score
from heedful.config import Choice


class AlibiScoreConfig(Choice):
    """Let scores fall with the distance, in each head at its own slope (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score; with heads, for queries (*B, H, T, Q)."""
        return AlibiScore(num_heads)


class RelativeBucketScoreConfig(Choice):
    """Learn a number for each distance, far ones together (Raffel et al. 2020)."""

    kind: Literal["relative-buckets"] = "relative-buckets"
    num_buckets: PositiveInt = 32
    """Numbers that are learned for each head."""
    max_distance: PositiveInt = 128
    """Distance from which all share the last bucket, at the latest."""
    both_ways: bool = True
    """Whether keys ahead have buckets of their own: half of all."""

    @model_validator(mode="after")
    def _has_room(self) -> RelativeBucketScoreConfig:
        sides = 2 if self.both_ways else 1
        if self.num_buckets % sides or self.num_buckets < 2 * sides:
            wanted = "an even number from 4 up" if self.both_ways else "at least 2"
            raise ValueError(f"num_buckets must be {wanted}, not {self.num_buckets}")
        near = self.num_buckets // sides // 2
        if self.max_distance <= near:
            raise ValueError(f"max_distance must be above {near}, not {self.max_distance}")
        return self

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score; with heads, for queries (*B, H, T, Q)."""
        return RelativeBucketScore(
            self.num_buckets, self.max_distance, num_heads=num_heads, both_ways=self.both_ways
        )


class GaussianScoreConfig(Choice):
    """Let scores fall with the square of the distance from where a query expects its key."""

    kind: Literal["gaussian"] = "gaussian"
    sigma: PositiveFloat = 5.0
    """Places within which most attention falls; Luong et al. 2015 use half their window of 10."""
    pace: PositiveFloat = 1.0
    """How many keys go by for each query."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score, the same for every head."""
        return GaussianScore(self.sigma, self.pace)


class RelativeKeyScoreConfig(Choice):
    """Compare the query with a vector learned for each distance (Shaw et al. 2018)."""

    kind: Literal["relative-keys"] = "relative-keys"
    reach: PositiveInt = 16
    """Distance beyond which, on either side, keys share a vector; 16 in the paper."""
    scaled: bool = True
    """Whether to divide by the root of the width, to go with a scaled dot product."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score, the same for every head."""
        return RelativeKeyScore(query_size, self.reach, scaled=self.scaled)


DistanceConfig = Annotated[
    AlibiScoreConfig | RelativeBucketScoreConfig | GaussianScoreConfig | RelativeKeyScoreConfig,
    Field(discriminator="kind"),
]

"""The scores that compare a query with a key, as a configuration names them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from heedful.attention.additive import AdditiveScore, ConcatScore, LinearScore
from heedful.attention.choices.features import FeatureConfig
from heedful.attention.heads import headwise
from heedful.attention.location import LocationScore
from heedful.attention.products import (
    BilinearScore,
    CosineScore,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TrilinearScore,
)
from heedful.attention.scores import Score
from heedful.config import Choice
from heedful.errors import ConfigError


class ContentChoice(Choice):
    """A score that compares a query with a key."""

    @abstractmethod
    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""

    def build(self, *, query_size: int, key_size: int, num_heads: int | None = None) -> Score:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        return headwise(lambda: self.single(query_size=query_size, key_size=key_size), num_heads)


class DotScoreConfig(ContentChoice):
    """Compare query and key by their dot product (Luong et al. 2015)."""

    kind: Literal["dot"] = "dot"

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        _require_equal("a dot product", query_size, key_size)
        return DotScore()


class ScaledDotScoreConfig(ContentChoice):
    """Compare by the dot product over the root of the width (Vaswani et al. 2017)."""

    kind: Literal["scaled-dot"] = "scaled-dot"

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        _require_equal("a scaled dot product", query_size, key_size)
        return ScaledDotScore()


class BilinearScoreConfig(ContentChoice):
    """Compare query and key through one matrix (Luong et al. 2015, "general")."""

    kind: Literal["bilinear"] = "bilinear"

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        return BilinearScore(query_size, key_size)


class ProjectedDotScoreConfig(ContentChoice):
    """Compare by the dot product after a matrix for each (Britz et al. 2017)."""

    kind: Literal["projected-dot"] = "projected-dot"
    hidden_size: PositiveInt = 256
    """Width in which they are compared."""

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        return ProjectedDotScore(query_size, key_size, hidden_size=self.hidden_size)


class CosineScoreConfig(ContentChoice):
    """Compare query and key by their angle (Graves et al. 2014)."""

    kind: Literal["cosine"] = "cosine"
    sharpness: PositiveFloat = 1.0
    """What cosines are multiplied by; with 1 no weight is more than 7.4 times another."""
    learned: bool = False
    """Whether the sharpness is learned, starting from this one."""

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        _require_equal("a cosine", query_size, key_size)
        return CosineScore(self.sharpness, learned=self.learned)


class TrilinearScoreConfig(ContentChoice):
    """Weigh query, key and their product with one vector (Seo et al. 2017)."""

    kind: Literal["trilinear"] = "trilinear"

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        _require_equal("a trilinear score", query_size, key_size)
        return TrilinearScore(query_size)


class LinearScoreConfig(ContentChoice):
    """Weigh query and key apart and add; a softmax then follows the keys alone."""

    kind: Literal["linear"] = "linear"

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        return LinearScore(query_size, key_size)


class AdditiveScoreConfig(ContentChoice):
    """Compare query and key through a small tanh layer (Bahdanau et al. 2015)."""

    kind: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Width of that layer."""
    bias: bool = False
    """Whether that layer has a bias (See et al. 2017); Bahdanau's has none."""
    features: tuple[FeatureConfig, ...] = ()
    """What else that layer sees: where earlier queries looked, say, or what they took."""

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head; values are as wide as keys."""
        size = self.hidden_size
        features = [each.build(hidden_size=size, value_size=key_size) for each in self.features]
        return AdditiveScore(
            query_size, key_size, hidden_size=size, bias=self.bias, features=features
        )


class ConcatScoreConfig(ContentChoice):
    """Compare through a small tanh layer with one matrix for both (Luong et al. 2015)."""

    kind: Literal["concat"] = "concat"
    hidden_size: PositiveInt = 256
    """Width of that layer."""

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        return ConcatScore(query_size, key_size, hidden_size=self.hidden_size)


class LocationScoreConfig(ContentChoice):
    """Let the query call for places, whatever stands there (Luong et al. 2015)."""

    kind: Literal["location"] = "location"
    max_positions: PositiveInt = 512
    """Places with a score of their own; those beyond share the score of the last."""

    def single(self, *, query_size: int, key_size: int) -> Score:
        """Make the score for one head."""
        return LocationScore(query_size, max_positions=self.max_positions)


ContentConfig = Annotated[
    DotScoreConfig
    | ScaledDotScoreConfig
    | BilinearScoreConfig
    | ProjectedDotScoreConfig
    | CosineScoreConfig
    | TrilinearScoreConfig
    | LinearScoreConfig
    | AdditiveScoreConfig
    | ConcatScoreConfig
    | LocationScoreConfig,
    Field(discriminator="kind"),
]


def _require_equal(score: str, query_size: int, key_size: int) -> None:
    if query_size != key_size:
        raise ConfigError(
            "score.kind",
            f"{score} needs equal sizes, but queries have {query_size} and keys {key_size}",
            "make the sizes equal, or choose 'bilinear' or 'additive'",
        )

"""The scores that compare a query with a key, as a configuration names them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import normalize

from heedful.attention.scores import (
    ContentScore,
    ContentScoreConfigBase,
    ScoreFunction,
    _check_equal_sizes,
)
from heedful.shapes import Float

# Products: how strongly does a query call for a key, when the two are multiplied?
#
# Every score here is an inner product of something made from the query with something made from
# the key, so all pairs cost one matrix product and nothing is held for each pair but its score.

# A shorter vector counts as this long, so that a zero vector has the cosine zero. It also bounds
# the gradient there by its inverse: torch's own 1e-12 would let a factor of 1e12 through.
NORM_EPSILON = 1e-6


class DotScore(ContentScore):
    """q . k  (Luong et al. 2015, equation 8, "dot")."""

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keys are compared as they are."""
        return keys

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every key."""
        return queries @ prepared_keys.mT


class ScaledDotScore(ContentScore):
    """q . k / sqrt(width)  (Vaswani et al. 2017, equation 1)."""

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Scale here, once: k / sqrt(width)."""
        return keys / math.sqrt(keys.size(-1))

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return queries @ prepared_keys.mT


class BilinearScore(ContentScore):
    """q . W k  (Luong et al. 2015, equation 8, "general")."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(key_size, query_size, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S Q"]:
        """W k."""
        return self.projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return queries @ prepared_keys.mT


class ProjectedDotScore(ContentScore):
    """(W q) . (U k)  (Britz et al. 2017, "multiplicative").

    A bilinear score whose matrix is W^T U, of rank `hidden_size` at most.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k."""
        return self.key_projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.query_projection(queries) @ prepared_keys.mT


class CosineScore(ContentScore):
    """sharpness * cos(q, k)  (Graves et al. 2014, equations 5 and 6).

    Scores lie between -sharpness and sharpness. A vector of zeros has the cosine zero with any
    other. A learned sharpness starts from the one given and is kept as its logarithm: it stays
    positive, can take any positive value, and a step of learning changes it by a ratio.
    """

    def __init__(self, scale: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        self.initial_scale = scale
        # One entry rather than none: torch cannot shard a parameter without dimensions.
        start = torch.full((1,), math.log(scale))
        self.log_scale = nn.Parameter(start) if learned else None

    @property
    def scale(self) -> Float[Tensor, "1"] | float:
        """The factor that all cosines are multiplied by."""
        return self.initial_scale if self.log_scale is None else self.log_scale.exp()

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keep directions alone: k / |k|."""
        return normalize(keys, dim=-1, eps=NORM_EPSILON)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        directions = normalize(queries, dim=-1, eps=NORM_EPSILON)
        return (self.scale * directions) @ prepared_keys.mT


class TrilinearScore(ContentScore):
    """w . [q; k; q * k]  (Seo et al. 2017, section 2, attention flow layer).

    With w parted in three it is a . q + (b + c * q) . k, so no pair is ever written out.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(3 * size, 1, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keys are compared as they are."""
        return keys

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every key."""
        of_query, of_key, of_product = self.reduction.weight[0].chunk(3)  # (Q,) each
        of_pair = (of_key + of_product * queries) @ prepared_keys.mT  # (*B, T, S)
        return of_pair + (queries @ of_query).unsqueeze(-1)


class DotScoreConfig(ContentScoreConfigBase):
    """Compare query and key by their dot product (Luong et al. 2015)."""

    type: Literal["dot"] = "dot"

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        _check_equal_sizes("a dot product", query_size, key_size)
        return DotScore()


class ScaledDotScoreConfig(ContentScoreConfigBase):
    """Compare by the dot product over the root of the width (Vaswani et al. 2017)."""

    type: Literal["scaled-dot"] = "scaled-dot"

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        _check_equal_sizes("a scaled dot product", query_size, key_size)
        return ScaledDotScore()


class BilinearScoreConfig(ContentScoreConfigBase):
    """Compare query and key through one matrix (Luong et al. 2015, "general")."""

    type: Literal["bilinear"] = "bilinear"

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        return BilinearScore(query_size, key_size)


class ProjectedDotScoreConfig(ContentScoreConfigBase):
    """Compare by the dot product after a matrix for each (Britz et al. 2017)."""

    type: Literal["projected-dot"] = "projected-dot"
    hidden_size: PositiveInt = 256
    """Width in which they are compared."""

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        return ProjectedDotScore(query_size, key_size, hidden_size=self.hidden_size)


class CosineScoreConfig(ContentScoreConfigBase):
    """Compare query and key by their angle (Graves et al. 2014)."""

    type: Literal["cosine"] = "cosine"
    scale: PositiveFloat = 1.0
    """What cosines are multiplied by; with 1 no weight is more than 7.4 times another."""
    learned: bool = False
    """Whether the sharpness is learned, starting from this one."""

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        _check_equal_sizes("a cosine", query_size, key_size)
        return CosineScore(self.scale, learned=self.learned)


class TrilinearScoreConfig(ContentScoreConfigBase):
    """Weigh query, key and their product with one vector (Seo et al. 2017)."""

    type: Literal["trilinear"] = "trilinear"

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        _check_equal_sizes("a trilinear score", query_size, key_size)
        return TrilinearScore(query_size)

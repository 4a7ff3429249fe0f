"""Products: how strongly does a query call for a key, when the two are multiplied?

Every score here is an inner product of something made from the query with something made from
the key, so all pairs cost one matrix product and nothing is held for each pair but its score.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from heedful.attention.scores import Comparison
from heedful.shapes import Float

# A shorter vector counts as this long, so that a zero vector has the cosine zero. It also bounds
# the gradient there by its inverse: torch's own 1e-12 would let a factor of 1e12 through.
SHORTEST = 1e-6


class DotScore(Comparison):
    """q . k  (Luong et al. 2015, equation 8, "dot")."""

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keys are compared as they are."""
        return keys

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every key."""
        return queries @ prepared.mT


class ScaledDotScore(Comparison):
    """q . k / sqrt(width)  (Vaswani et al. 2017, equation 1)."""

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Scale here, once: k / sqrt(width)."""
        return keys / math.sqrt(keys.size(-1))

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return queries @ prepared.mT


class BilinearScore(Comparison):
    """q . W k  (Luong et al. 2015, equation 8, "general")."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(key_size, query_size, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S Q"]:
        """W k."""
        return self.projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return queries @ prepared.mT


class ProjectedDotScore(Comparison):
    """(W q) . (U k)  (Britz et al. 2017, "multiplicative").

    A bilinear score whose matrix is W^T U, of rank `hidden_size` at most.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k."""
        return self.key_projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.query_projection(queries) @ prepared.mT


class CosineScore(Comparison):
    """sharpness * cos(q, k)  (Graves et al. 2014, equations 5 and 6).

    Scores lie between -sharpness and sharpness. A vector of zeros has the cosine zero with any
    other. A learned sharpness starts from the one given and is kept as its logarithm: it stays
    positive, can take any positive value, and a step of learning changes it by a ratio.
    """

    def __init__(self, sharpness: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        self.given_sharpness = sharpness
        # One entry rather than none: torch cannot shard a parameter without dimensions.
        start = torch.full((1,), math.log(sharpness))
        self.log_sharpness = nn.Parameter(start) if learned else None

    @property
    def sharpness(self) -> Float[Tensor, "1"] | float:
        """The factor that all cosines are multiplied by."""
        return self.given_sharpness if self.log_sharpness is None else self.log_sharpness.exp()

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keep directions alone: k / |k|."""
        return normalize(keys, dim=-1, eps=SHORTEST)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        directions = normalize(queries, dim=-1, eps=SHORTEST)
        return (self.sharpness * directions) @ prepared.mT


class TrilinearScore(Comparison):
    """w . [q; k; q * k]  (Seo et al. 2017, section 2, attention flow layer).

    With w parted in three it is a . q + (b + c * q) . k, so no pair is ever written out.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(3 * size, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S K"]:
        """Keys are compared as they are."""
        return keys

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S Q"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every key."""
        of_query, of_key, of_product = self.reduction.weight[0].chunk(3)  # (Q,) each
        of_pair = (of_key + of_product * queries) @ prepared.mT  # (*B, T, S)
        return of_pair + (queries @ of_query).unsqueeze(-1)

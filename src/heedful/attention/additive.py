"""Additive scores: how strongly does a query call for a key, when the two are added?

Every score here is a function of W q + U k. U k is worked out in `prepare`, once per source,
and W q once per query; only their sum is made for each pair, in the form that `fused.rules`
finds fit for its size.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.attention.fused.rules import additive
from heedful.attention.scores import Comparison
from heedful.shapes import Float


class LinearScore(Comparison):
    """w . q + u . k  (the trilinear score of Seo et al. 2017 without its product).

    What the query says is the same for all keys, so under a softmax, which does not see a shift
    of a whole row, the weights follow the keys alone.
    """

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, 1, bias=False)
        self.key_projection = nn.Linear(key_size, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 1"]:
        """Weigh the keys: u . k."""
        return self.key_projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S 1"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.query_projection(queries) + prepared.mT


class AdditiveScore(Comparison):
    """v . tanh(W q + U k)  (Bahdanau et al. 2015, section A.1.2)."""

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k."""
        return self.key_projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        projected = self.query_projection(queries)  # (*B, T, A)
        return additive(projected, prepared, self.reduction.weight[0])


class ConcatScore(Comparison):
    """v . tanh(W [q; k])  (Luong et al. 2015, equation 8, "concat").

    W [q; k] is the sum of two products, one with each half of W, so nothing is concatenated: it
    is the additive score with both matrices in one. Well-known code departs here: some has no
    matrix for the keys, some has none at all and no v.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.projection = nn.Linear(query_size + key_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """Multiply by the half of W that meets the keys."""
        return linear(keys, self.projection.weight[:, self.query_size :])

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        projected = linear(queries, self.projection.weight[:, : self.query_size])  # (*B, T, A)
        return additive(projected, prepared, self.reduction.weight[0])

"""Additive scores: how strongly does a query call for a key, when the two are added?

Every score here is a function of W q + U k. U k is worked out in `prepare`, once per source,
and W q once per query; only their sum is made for each pair, in the form that `fused.rules`
finds fit for its size. What the past has to say joins U k, for it is the same for every query
of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.attention.features import Feature
from heedful.attention.fused.rules import additive
from heedful.attention.past import Past
from heedful.attention.scores import Comparison, Score
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


class AdditiveScore(Score):
    """v . tanh(W q + U k + b + features)  (Bahdanau et al. 2015, section A.1.2).

    Bahdanau's has no b; See et al. (2017) and Chorowski et al. (2015) have one, and a feature of
    the past each. With features the score of a query waits for where the one before it looked.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        hidden_size: int,
        bias: bool = False,
        features: Sequence[Feature] = (),
    ) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=bias)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)
        self.features = nn.ModuleList(features)

    @property
    def looks_back(self) -> bool:
        """Whether the past has a say."""
        return len(self.features) > 0

    @property
    def knows_places(self) -> bool:
        """Only the past tells a query's number."""
        return self.looks_back

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k + b."""
        return self.key_projection(keys)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared: Float[Tensor, "*B S A"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key; no past adds nothing to the keys."""
        assert not self.looks_back or queries.size(-2) == 1, (
            f"{queries.size(-2)} queries at once, but each waits for where the last one looked"
        )
        if past is not None:
            for feature in cast(Iterable[Feature], self.features):
                prepared = prepared + feature(past)
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

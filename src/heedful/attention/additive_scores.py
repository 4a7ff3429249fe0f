"""Additive scores: how strongly does a query call for a key, when the two are added?

Every score here is a function of W q + U k. U k is worked out in `prepare`, once per source,
and W q once per query; only their sum is made for each pair, in the form that `fused.processors`
finds fit for its size. What the past has to say joins U k, for it is the same for every query
of a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.attention.outputs import AttentionState
from heedful.attention.scores import ContentScore, ContentScoreConfigBase, ScoreFunction
from heedful.config import BaseConfig
from heedful.shapes import Float

# Features: what does the past add inside the tanh of an additive score?
#
# A feature is the same for every query of a step, so it is added to what the keys prepared:
# tanh(W q + (U k + feature)). A feature of the query's own needs no place here: W [x; y] is
# W_x x + W_y y, so it is what the query is made of. Law: the feature of a past in which nothing
# was asked is zero.


class ScoreFeature(nn.Module, ABC):
    """What the past adds to a prepared key."""

    @abstractmethod
    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        """Say what to add for each place; where S is 1, the same for all of them."""


class CoverageFeature(ScoreFeature):
    """w_c * total_s, the attention place s has had so far  (See et al. 2017, equation 11)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, hidden_size, bias=False)

    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        """Tell how much each place has been looked at."""
        return self.projection(state.coverage.unsqueeze(-1))


class LocationFeature(ScoreFeature):
    """U f_s, f = F * last: filters over where was looked last  (Chorowski et al. 2015, eq. 8-9).

    f_s holds what each filter sees in the `width` weights round place s. Beyond both ends there
    is nothing, just as hidden places have no weight, so padding is not seen. As everywhere in
    torch the filters are not turned round first: they are learned the other way round.
    """

    def __init__(self, hidden_size: int, *, num_filters: int, kernel_size: int) -> None:
        super().__init__()
        assert kernel_size % 2 == 1, kernel_size
        self.filters = nn.Conv1d(1, num_filters, kernel_size, padding=kernel_size // 2, bias=False)
        self.projection = nn.Linear(num_filters, hidden_size, bias=False)

    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        """Tell what the last weights look like from each place."""
        size = state.last_weights.size(-1)
        seen = self.filters(state.last_weights.reshape(-1, 1, size)).mT  # (rows, S, filters)
        return self.projection(seen).view(*state.last_weights.shape, -1)


class ContextFeature(ScoreFeature):
    """W_c c, c being what was taken last  (Cheng et al. 2016, the LSTMN)."""

    def __init__(self, hidden_size: int, *, value_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(value_size, hidden_size, bias=False)

    def forward(self, state: AttentionState) -> Float[Tensor, "*B 1 A"]:
        """Tell what was taken last, to every place alike."""
        return self.projection(state.last_context).unsqueeze(-2)


class LinearScore(ContentScore):
    """w . q + u . k  (the trilinear score of Seo et al. 2017 without its product).

    What the query says is the same for all keys, so under a softmax, which does not see a shift
    of a whole row, the weights follow the keys alone.
    """

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, 1, bias=False)
        self.key_projection = nn.Linear(key_size, 1, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 1"]:
        """Weigh the keys: u . k."""
        return self.key_projection(keys)

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S 1"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.query_projection(queries) + prepared_keys.mT


class AdditiveScore(ScoreFunction):
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
        features: Sequence[ScoreFeature] = (),
    ) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=bias)
        self.score_vector = nn.Linear(hidden_size, 1, bias=False)
        self.features = nn.ModuleList(features)

    @property
    def uses_history(self) -> bool:
        """Whether the past has a say."""
        return len(self.features) > 0

    @property
    def needs_positions(self) -> bool:
        """Only the past tells a query's number."""
        return self.uses_history

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """U k + b."""
        return self.key_projection(keys)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: Float[Tensor, "*B S A"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key; no past adds nothing to the keys."""
        from heedful.acceleration.dispatch import additive_score

        assert not self.uses_history or queries.size(-2) == 1, (
            f"{queries.size(-2)} queries at once, but each waits for where the last one looked"
        )
        if state is not None:
            for feature in cast(Iterable[ScoreFeature], self.features):
                prepared_keys = prepared_keys + feature(state)
        projected = self.query_projection(queries)  # (*B, T, A)
        return additive_score(projected, prepared_keys, self.score_vector.weight[0])


class ConcatScore(ContentScore):
    """v . tanh(W [q; k])  (Luong et al. 2015, equation 8, "concat").

    W [q; k] is the sum of two products, one with each half of W, so nothing is concatenated: it
    is the additive score with both matrices in one. Well-known code departs here: some has no
    matrix for the keys, some has none at all and no v.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.projection = nn.Linear(query_size + key_size, hidden_size, bias=False)
        self.score_vector = nn.Linear(hidden_size, 1, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S A"]:
        """Multiply by the half of W that meets the keys."""
        return linear(keys, self.projection.weight[:, self.query_size :])

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        from heedful.acceleration.dispatch import additive_score

        projected = linear(queries, self.projection.weight[:, : self.query_size])  # (*B, T, A)
        return additive_score(projected, prepared_keys, self.score_vector.weight[0])


# What the past adds inside an additive score, as a configuration names it.


class CoverageFeatureConfig(BaseConfig):
    """See how much attention each place has had so far (See et al. 2017)."""

    type: Literal["coverage"] = "coverage"

    def build(self, *, hidden_size: int, value_size: int) -> ScoreFeature:
        """Make the feature."""
        return CoverageFeature(hidden_size)


class LocationFeatureConfig(BaseConfig):
    """See where the last query looked, through filters (Chorowski et al. 2015)."""

    type: Literal["location-convolution"] = "location-convolution"
    num_filters: PositiveInt = 10
    """Filters; 10 as in the paper."""
    kernel_size: PositiveInt = 5
    """Places that a filter sees, an odd number: 5 for words; the paper's 201 are for speech."""

    @field_validator("kernel_size")
    @classmethod
    def _check_odd_kernel(cls, width: int) -> int:
        if width % 2 == 0:
            raise ValueError("a filter has a middle, so its width is odd")
        return width

    def build(self, *, hidden_size: int, value_size: int) -> ScoreFeature:
        """Make the feature."""
        return LocationFeature(
            hidden_size, num_filters=self.num_filters, kernel_size=self.kernel_size
        )


class ContextFeatureConfig(BaseConfig):
    """See what the last query took (Cheng et al. 2016)."""

    type: Literal["last-context"] = "last-context"

    def build(self, *, hidden_size: int, value_size: int) -> ScoreFeature:
        """Make the feature."""
        return ContextFeature(hidden_size, value_size=value_size)


ScoreFeatureConfig = Annotated[
    CoverageFeatureConfig | LocationFeatureConfig | ContextFeatureConfig,
    Field(discriminator="type"),
]


# Location: how strongly does a query call for a place, whatever stands there?


class LocationScore(ContentScore):
    """(W q)_s, for the key in place s  (Luong et al. 2015, equation 9, "location").

    W has a row for each of the first `max_positions` places; places beyond them share the score
    of the last. The paper ignores words there. To hide is a mask's work and not a score's, and
    to refuse would let the longest source of a batch decide over its neighbours.
    """

    def __init__(self, query_size: int, *, max_positions: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, max_positions, bias=False)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S 0"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size = prepared_keys.size(-2)
        scores = linear(queries, self.projection.weight[:size])  # (*B, T, S or max_positions)
        beyond = size - scores.size(-1)
        return torch.cat([scores, scores[..., -1:].expand(*scores.shape[:-1], beyond)], dim=-1)


class LinearScoreConfig(ContentScoreConfigBase):
    """Weigh query and key apart and add; a softmax then follows the keys alone."""

    type: Literal["linear"] = "linear"

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        return LinearScore(query_size, key_size)


class AdditiveScoreConfig(ContentScoreConfigBase):
    """Compare query and key through a small tanh layer (Bahdanau et al. 2015)."""

    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Width of that layer."""
    bias: bool = False
    """Whether that layer has a bias (See et al. 2017); Bahdanau's has none."""
    features: tuple[ScoreFeatureConfig, ...] = ()
    """What else that layer sees: where earlier queries looked, say, or what they took."""

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head; values are as wide as keys."""
        size = self.hidden_size
        features = [each.build(hidden_size=size, value_size=key_size) for each in self.features]
        return AdditiveScore(
            query_size, key_size, hidden_size=size, bias=self.bias, features=features
        )


class ConcatScoreConfig(ContentScoreConfigBase):
    """Compare through a small tanh layer with one matrix for both (Luong et al. 2015)."""

    type: Literal["concat"] = "concat"
    hidden_size: PositiveInt = 256
    """Width of that layer."""

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        return ConcatScore(query_size, key_size, hidden_size=self.hidden_size)


class LocationScoreConfig(ContentScoreConfigBase):
    """Let the query call for places, whatever stands there (Luong et al. 2015)."""

    type: Literal["location"] = "location"
    max_positions: PositiveInt = 512
    """Places with a score of their own; those beyond share the score of the last."""

    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""
        return LocationScore(query_size, max_positions=self.max_positions)


def naive_additive_score(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), as it is written."""
    hidden = queries.unsqueeze(-2) + keys.unsqueeze(-3)  # (*B, T, S, A)
    return hidden.tanh_() @ vector

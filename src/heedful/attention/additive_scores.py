"""Additive scores: functions of W q + U k, with features of the attention state.

U k is computed in `prepare_keys`, once per source, and only the sum for each pair. A feature of the
state is the same for each query of a step, so it is added to the prepared key: tanh(W q + (U k +
feature)). Invariant: each feature is zero before the first query.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from heedful.attention.memory import AttentionState
from heedful.attention.scores import ContentScore, ContentScoreConfigBase, ScoreFunction
from heedful.config import ModuleConfig
from heedful.ops import op
from heedful.shapes import Float, Keys, Queries, Scores


class AdditiveScore(ScoreFunction):
    """v . tanh(W q + U k + b + features)  (Bahdanau et al. 2015, section A.1.2).

    Bahdanau et al. have no b; See et al. (2017) and Chorowski et al. (2015) have one, and one
    feature each. With features, a query needs the weights of the query before it.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        *,
        hidden_size: int,
        bias: bool = False,
        features: Sequence["ScoreFeature"] = (),
    ) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=bias)
        self.score_vector = nn.Linear(hidden_size, 1, bias=False)
        self.features = nn.ModuleList(features)
        self.uses_history = self.needs_positions = len(features) > 0

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S A"]:
        return self.key_projection(keys)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        assert not self.uses_history or queries.size(-2) == 1, (
            f"{queries.size(-2)} queries at once, but features need the weights of the last one"
        )
        if state is not None:
            for feature in self.features:
                keys = keys + feature(state)
        return additive_score(self.project_queries(queries), keys, self.score_vector.weight[0])

    def project_queries(self, queries: Queries) -> Float[Tensor, "*B T A"]:
        """Return W q."""
        return self.query_projection(queries)


@op
def additive_score(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Scores:
    """Return v . tanh(q + k) for each pair."""
    hidden = queries.unsqueeze(-2) + keys.unsqueeze(-3)  # (*B, T, S, A)
    return hidden.tanh_() @ vector


class ScoreFeature(nn.Module, ABC):
    """A function of the attention state that is added to the prepared keys."""

    @abstractmethod
    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        """Return the vector to add at each source position; S may be 1."""


class CoverageFeature(ScoreFeature):
    """w_c * coverage_s, the sum of all weights at position s  (See et al. 2017, equation 11)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, hidden_size, bias=False)

    @override
    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        return self.projection(state.coverage.unsqueeze(-1))


class CoverageFeatureConfig(ModuleConfig):
    """Sum of the earlier attention weights at each position (See et al. 2017)."""

    module_class = CoverageFeature
    type: Literal["coverage"] = "coverage"


class LocationFeature(ScoreFeature):
    """U f_s, f = F * last weights: a 1-d convolution  (Chorowski et al. 2015, eq. 8-9).

    The weights are zero-padded at both ends. Masked positions have zero weight, so padding does not
    change the features. As always in torch, the kernels are not flipped.
    """

    def __init__(self, hidden_size: int, *, num_filters: int, kernel_size: int) -> None:
        super().__init__()
        assert kernel_size % 2 == 1, kernel_size
        self.filters = nn.Conv1d(1, num_filters, kernel_size, padding=kernel_size // 2, bias=False)
        self.projection = nn.Linear(num_filters, hidden_size, bias=False)

    @override
    def forward(self, state: AttentionState) -> Float[Tensor, "*B S A"]:
        size = state.last_weights.size(-1)
        filtered = self.filters(state.last_weights.reshape(-1, 1, size)).mT  # (rows, S, filters)
        return self.projection(filtered).view(*state.last_weights.shape, -1)


class LocationFeatureConfig(ModuleConfig):
    """Convolution over the weights of the last query (Chorowski et al. 2015)."""

    module_class = LocationFeature
    type: Literal["location-convolution"] = "location-convolution"
    num_filters: PositiveInt = 10
    """Number of filters; 10 in the paper."""
    kernel_size: PositiveInt = 5
    """Width of a filter in positions, odd: 5 for words; the paper uses 201 for speech frames."""

    @field_validator("kernel_size")
    @classmethod
    def _check_odd(cls, kernel_size: int) -> int:
        if kernel_size % 2 == 0:
            raise ValueError("must be odd")
        return kernel_size


class ContextFeature(ScoreFeature):
    """W_c c, where c is the context of the last query  (Cheng et al. 2016, LSTMN)."""

    def __init__(self, hidden_size: int, *, value_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(value_size, hidden_size, bias=False)

    @override
    def forward(self, state: AttentionState) -> Float[Tensor, "*B 1 A"]:
        return self.projection(state.last_context).unsqueeze(-2)


class ContextFeatureConfig(ModuleConfig):
    """Context of the last query (Cheng et al. 2016)."""

    module_class = ContextFeature
    type: Literal["last-context"] = "last-context"


ScoreFeatureConfig = Annotated[
    CoverageFeatureConfig | LocationFeatureConfig | ContextFeatureConfig,
    Field(discriminator="type"),
]


class AdditiveScoreConfig(ContentScoreConfigBase):
    """Additive (MLP) score (Bahdanau et al. 2015)."""

    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Size of the tanh layer."""
    bias: bool = False
    """Whether the tanh layer has a bias, as in See et al. 2017; Bahdanau et al. have none."""
    features: tuple[ScoreFeatureConfig, ...] = ()
    """Further inputs of the tanh layer: earlier attention weights or the last context."""

    @override
    def build_single_head(self, query_size: int, key_size: int) -> ScoreFunction:
        features = [
            feature.build(hidden_size=self.hidden_size, value_size=key_size)
            for feature in self.features
        ]
        return AdditiveScore(query_size, key_size, **self.options() | {"features": features})


class LinearScore(ContentScore):
    """w . q + u . k  (the trilinear score of Seo et al. 2017 without its product).

    Softmax ignores the term of the query: the weights then depend only on the keys.
    """

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, 1, bias=False)
        self.key_projection = nn.Linear(key_size, 1, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S 1"]:
        return self.key_projection(keys)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return self.query_projection(queries) + keys.mT


class LinearScoreConfig(ContentScoreConfigBase):
    """Sum of a linear function of the query and one of the key; softmax ignores the former."""

    module_class = LinearScore
    type: Literal["linear"] = "linear"


class ConcatScore(ContentScore):
    """v . tanh(W [q; k])  (Luong et al. 2015, equation 8, "concat").

    W [q; k] is the sum of two products, one with each half of W, so nothing is concatenated: this
    is the additive score with both matrices in one parameter. Other implementations depart here:
    some have no matrix for the keys, some no matrix and no v.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_size = query_size
        self.features: Sequence[ScoreFeature] = ()
        self.projection = nn.Linear(query_size + key_size, hidden_size, bias=False)
        self.score_vector = nn.Linear(hidden_size, 1, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S A"]:
        return linear(keys, self.projection.weight[:, self.query_size :])

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return additive_score(self.project_queries(queries), keys, self.score_vector.weight[0])

    def project_queries(self, queries: Queries) -> Float[Tensor, "*B T A"]:
        """Return the product of the query with its half of W."""
        return linear(queries, self.projection.weight[:, : self.query_size])


class ConcatScoreConfig(ContentScoreConfigBase):
    """Additive score with one matrix for the concatenated query and key (Luong et al. 2015)."""

    module_class = ConcatScore
    type: Literal["concat"] = "concat"
    hidden_size: PositiveInt = 256
    """Size of the tanh layer."""


class LocationScore(ContentScore):
    """(W q)_s for source position s  (Luong et al. 2015, equation 9, "location").

    W has a row for each of the first `max_positions` positions; later positions share the score of
    the last row. The paper ignores words there, but hiding positions is the task of a mask, and an
    error would make a row depend on the longest source of its batch.
    """

    def __init__(self, query_size: int, *, max_positions: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, max_positions, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S 0"]:
        return keys[..., :0]

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        size = keys.size(-2)
        scores = linear(queries, self.projection.weight[:size])  # (*B, T, S or max_positions)
        num_beyond = size - scores.size(-1)
        return torch.cat([scores, scores[..., -1:].expand(*scores.shape[:-1], num_beyond)], dim=-1)


class LocationScoreConfig(ContentScoreConfigBase):
    """Score of source positions computed only from the query (Luong et al. 2015)."""

    module_class = LocationScore
    type: Literal["location"] = "location"
    max_positions: PositiveInt = 512
    """Number of positions with their own score; later positions share the last one."""


AnyAdditiveScoreConfig = Annotated[
    LinearScoreConfig | AdditiveScoreConfig | ConcatScoreConfig | LocationScoreConfig,
    Field(discriminator="type"),
]

"""Dot-product scores: inner products of projected queries and keys, one matrix product for all."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import override

from heedful.attention.memory import AttentionState
from heedful.attention.scores import ContentScore, ContentScoreConfigBase, EqualSizeScoreConfigBase
from heedful.shapes import Float, Keys, Queries, Scores

# Vectors shorter than this are divided by it instead of their norm, so a zero vector has cosine
# zero and its gradient is at most 1e6 times larger; torch's default of 1e-12 would allow 1e12.
NORM_EPSILON = 1e-6


class DotScore(ContentScore):
    """q . k  (Luong et al. 2015, equation 8, "dot"), also with prepared keys."""

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return queries @ keys.mT


class DotScoreConfig(EqualSizeScoreConfigBase):
    """Dot product of query and key (Luong et al. 2015)."""

    module_class = DotScore
    type: Literal["dot"] = "dot"


class ScaledDotScore(DotScore):
    """q . k / sqrt(size)  (Vaswani et al. 2017, equation 1)."""

    @override
    def prepare_keys(self, keys: Keys) -> Keys:
        return keys / math.sqrt(keys.size(-1))


class ScaledDotScoreConfig(EqualSizeScoreConfigBase):
    """Dot product divided by the square root of the size (Vaswani et al. 2017)."""

    module_class = ScaledDotScore
    type: Literal["scaled-dot"] = "scaled-dot"


class BilinearScore(DotScore):
    """q . W k  (Luong et al. 2015, equation 8, "general")."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(key_size, query_size, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S Q"]:
        return self.projection(keys)


class BilinearScoreConfig(ContentScoreConfigBase):
    """Bilinear form of query and key with one matrix (Luong et al. 2015, "general")."""

    module_class = BilinearScore
    type: Literal["bilinear"] = "bilinear"


DOT_PRODUCT_SCORES = (DotScore, ScaledDotScore, BilinearScore)
"""Scores that are the dot product of the query with the prepared key and nothing else."""


class ProjectedDotScore(ContentScore):
    """(W q) . (U k), a bilinear score of limited rank  (Britz et al. 2017, "multiplicative")."""

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(query_size, hidden_size, bias=False)
        self.key_projection = nn.Linear(key_size, hidden_size, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S A"]:
        return self.key_projection(keys)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return self.query_projection(queries) @ keys.mT


class ProjectedDotScoreConfig(ContentScoreConfigBase):
    """Dot product of a projected query and a projected key (Britz et al. 2017)."""

    module_class = ProjectedDotScore
    type: Literal["projected-dot"] = "projected-dot"
    hidden_size: PositiveInt = 256
    """Size of both projections."""


class TanhDotScore(ProjectedDotScore):
    """v . (tanh(W q) * tanh(U k))  (Shazeer et al. 2017, equation 22).

    GNMT's additive score with a product in place of the sum inside the tanh, so that one matrix
    product scores all pairs.
    """

    def __init__(self, query_size: int, key_size: int, *, hidden_size: int) -> None:
        super().__init__(query_size, key_size, hidden_size=hidden_size)
        self.score_vector = nn.Linear(hidden_size, 1, bias=False)

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S A"]:
        return self.key_projection(keys).tanh()

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return (self.query_projection(queries).tanh() * self.score_vector.weight[0]) @ keys.mT


class TanhDotScoreConfig(ContentScoreConfigBase):
    """Weighted product of two tanh layers, of the query and of the key (Shazeer et al. 2017)."""

    module_class = TanhDotScore
    type: Literal["tanh-dot"] = "tanh-dot"
    hidden_size: PositiveInt = 256
    """Size of both tanh layers."""


class CosineScore(ContentScore):
    """scale * cos(q, k)  (Graves et al. 2014, equations 5 and 6).

    A zero vector has cosine zero. A learned scale is stored as its logarithm and stays positive.
    """

    def __init__(self, scale: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        self.initial_scale = scale
        # One entry, not a scalar: FSDP cannot shard a parameter without dimensions.
        log_scale = torch.full((1,), math.log(scale))
        self.log_scale = nn.Parameter(log_scale) if learned else None

    @property
    def scale(self) -> Float[Tensor, "1"] | float:
        """The factor of all cosines."""
        return self.initial_scale if self.log_scale is None else self.log_scale.exp()

    @override
    def prepare_keys(self, keys: Keys) -> Keys:
        return normalize(keys, dim=-1, eps=NORM_EPSILON)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        directions = normalize(queries, dim=-1, eps=NORM_EPSILON)
        return (self.scale * directions) @ keys.mT


class CosineScoreConfig(EqualSizeScoreConfigBase):
    """Cosine of query and key (Graves et al. 2014)."""

    module_class = CosineScore
    type: Literal["cosine"] = "cosine"
    scale: PositiveFloat = 1.0
    """Factor of all cosines; with 1, softmax weights differ by a factor of 7.4 at most."""
    learned: bool = False
    """Whether to learn the scale, starting from `scale`."""


class TrilinearScore(DotScore):
    """w . [q; k; q * k]  (Seo et al. 2017, section 2, attention flow layer).

    With w = [a; b; c] this is a . q + (b + c * q) . k, so no vector is stored for a pair.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(3 * size, 1, bias=False)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        a, b, c = self.reduction.weight[0].chunk(3)  # (Q,) each
        pair_scores = (b + c * queries) @ keys.mT  # (*B, T, S)
        return pair_scores + (queries @ a).unsqueeze(-1)


class TrilinearScoreConfig(EqualSizeScoreConfigBase):
    """Linear function of query, key and their elementwise product (Seo et al. 2017)."""

    module_class = TrilinearScore
    takes = ("query_size",)
    type: Literal["trilinear"] = "trilinear"


DotProductScoreConfig = Annotated[
    DotScoreConfig
    | ScaledDotScoreConfig
    | BilinearScoreConfig
    | ProjectedDotScoreConfig
    | TanhDotScoreConfig
    | CosineScoreConfig
    | TrilinearScoreConfig,
    Field(discriminator="type"),
]

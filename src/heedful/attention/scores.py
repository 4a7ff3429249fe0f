"""Score functions: how well each query matches each key, before any normalization.

A score maps queries (*B, T, Q) and prepared keys (*B, S, A) to scores (*B, T, S); `*B` is (B,) in
an RNN decoder and (B, H) with heads. Scores can be added: `BilinearScore(...) + AlibiScore(...)`.
Invariant: a score depends only on its own query and key, their positions and the state.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import normalize
from typing_extensions import override

from heedful.attention.memory import AttentionState, PreparedKeys
from heedful.config import ModuleConfig
from heedful.config.base import type_of
from heedful.errors import check
from heedful.pytree import map_tensors
from heedful.shapes import Float, Int, Keys, Queries, Scores

StartPositions = Int[Tensor, "_"] | None
"""The position of the first key of each row of the batch; None means 0."""


class ScoreFunction(nn.Module, ABC):
    """Base of all scores."""

    uses_history = False
    """Whether scores depend on the weights of earlier queries: then queries go one by one."""
    needs_positions = True
    """Whether scores depend on the position of the query, not only on its content."""

    def prepare_keys(self, keys: Keys) -> PreparedKeys:
        """Compute, once per source, what depends only on the keys; by default, nothing."""
        return keys

    def prepare_keys_at(self, start_positions: StartPositions, keys: Keys) -> PreparedKeys:
        """Prepare keys from these positions on, for scores that depend on absolute positions."""
        return self.prepare_keys(keys)

    @abstractmethod
    def forward(
        self, queries: Queries, keys: PreparedKeys, state: AttentionState | None = None
    ) -> Scores:
        """Score each query against each prepared key."""

    def __add__(self, other: "ScoreFunction") -> "ScoreFunction":
        """Return the sum of two scores."""
        return SumScore([self, other])


class SumScore(ScoreFunction):
    """score_1(q, k) + score_2(q, k) + ..., such as content plus distance."""

    def __init__(self, terms: Sequence[ScoreFunction]) -> None:
        super().__init__()
        self.terms = cast(Sequence[ScoreFunction], nn.ModuleList(terms))
        self.uses_history = any(term.uses_history for term in terms)
        self.needs_positions = any(term.needs_positions for term in terms)

    @override
    def prepare_keys(self, keys: Keys) -> PreparedKeys:
        return self.prepare_keys_at(None, keys)

    @override
    def prepare_keys_at(self, start_positions: StartPositions, keys: Keys) -> PreparedKeys:
        return tuple(term.prepare_keys_at(start_positions, keys) for term in self.terms)

    @override
    def forward(
        self, queries: Queries, keys: PreparedKeys, state: AttentionState | None = None
    ) -> Scores:
        terms = zip(self.terms, keys, strict=True)
        return torch.stack([term(queries, prepared, state) for term, prepared in terms]).sum(dim=0)


class ContentScore(ScoreFunction):
    """A score that depends only on query and key vectors, not on positions or state."""

    needs_positions = False


class PerHeadScore(ScoreFunction):
    """A score with separate parameters for each head; queries are (*B, H, T, Q)."""

    def __init__(self, heads: Sequence[ScoreFunction]) -> None:
        super().__init__()
        self.heads = cast(Sequence[ScoreFunction], nn.ModuleList(heads))
        self.uses_history = any(head.uses_history for head in heads)
        self.needs_positions = any(head.needs_positions for head in heads)

    @override
    def prepare_keys(self, keys: Keys) -> PreparedKeys:
        return self.prepare_keys_at(None, keys)

    @override
    def prepare_keys_at(self, start_positions: StartPositions, keys: Keys) -> PreparedKeys:
        """Prepare the keys (*B, G, S, K) of G key-value heads for all H heads: (*B, H, S, A)."""
        dim = keys.dim() - 3
        repeats = len(self.heads) // keys.size(dim)
        prepared = [
            head.prepare_keys_at(start_positions, keys.select(dim, index // repeats))
            for index, head in enumerate(self.heads)
        ]
        return _stack(prepared, dim)

    @override
    def forward(
        self, queries: Queries, keys: PreparedKeys, state: AttentionState | None = None
    ) -> Scores:
        dim = queries.dim() - 3
        scores = []
        for index, head in enumerate(self.heads):
            select_head = partial(torch.select, dim=dim, index=index)
            scores.append(head(*map_tensors(select_head, (queries, keys, state))))
        return torch.stack(scores, dim=dim)


def _stack(parts: Sequence[Any], dim: int) -> Any:
    """Stack nested tuples of tensors with the same structure, tensor by tensor."""
    if isinstance(parts[0], Tensor):
        return torch.stack(list(parts), dim=dim)
    return tuple(_stack(tensors, dim) for tensors in zip(*parts, strict=True))


def build_per_head_score(
    build_score: Callable[[], ScoreFunction], num_heads: int | None
) -> ScoreFunction:
    """Build a score for `num_heads` heads; a score without parameters is shared by all of them."""
    first = build_score()
    if num_heads is None or not any(True for _ in first.parameters()):
        return first
    return PerHeadScore([first, *(build_score() for _ in range(num_heads - 1))])


class ContentScoreConfigBase(ModuleConfig):
    """Config of a score that compares queries and keys; each head gets its own parameters."""

    needs_equal_sizes: ClassVar[bool] = False

    def build_single_head(self, query_size: int, key_size: int) -> ScoreFunction:
        """Build the score of a head."""
        score: ScoreFunction = super().build(query_size=query_size, key_size=key_size)
        return score

    @override
    def build(  # type: ignore[override]
        self, *, query_size: int, key_size: int, num_heads: int | None
    ) -> ScoreFunction:
        sizes = f"queries have {query_size} and keys {key_size}"
        message = f"{type_of(type(self))!r} needs equal sizes, but {sizes}"
        hint = "make the sizes equal, or choose 'bilinear' or 'additive'"
        check(query_size == key_size or not self.needs_equal_sizes, "score.type", message, hint)
        return build_per_head_score(lambda: self.build_single_head(query_size, key_size), num_heads)


# Vectors shorter than this are divided by it instead of their norm, so a zero vector has cosine
# zero and its gradient is at most 1e6 times larger; torch's default of 1e-12 would allow 1e12.
NORM_EPSILON = 1e-6


class DotScore(ContentScore):
    """q . k  (Luong et al. 2015, equation 8, "dot"), also with prepared keys."""

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        return queries @ keys.mT


class DotScoreConfig(ContentScoreConfigBase):
    """Dot product of query and key (Luong et al. 2015)."""

    module_class = DotScore
    needs_equal_sizes = True
    type: Literal["dot"] = "dot"


class ScaledDotScore(DotScore):
    """q . k / sqrt(size)  (Vaswani et al. 2017, equation 1)."""

    @override
    def prepare_keys(self, keys: Keys) -> Keys:
        return keys / math.sqrt(keys.size(-1))


class ScaledDotScoreConfig(ContentScoreConfigBase):
    """Dot product divided by the square root of the size (Vaswani et al. 2017)."""

    module_class = ScaledDotScore
    needs_equal_sizes = True
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


class CosineScoreConfig(ContentScoreConfigBase):
    """Cosine of query and key (Graves et al. 2014)."""

    module_class = CosineScore
    needs_equal_sizes = True
    type: Literal["cosine"] = "cosine"
    scale: PositiveFloat = 1.0
    """Factor of all cosines; with 1, softmax weights differ by a factor of 7.4 at most."""
    learned: bool = False
    """Whether to learn the scale, starting from `scale`."""


class TrilinearScore(DotScore):
    """w . [q; k; q * k]  (Seo et al. 2017, section 2, attention flow layer).

    With w = [a; b; c] this is a . q + (b + c * q) . k, so no vector is stored for a pair.
    """

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(3 * query_size, 1, bias=False)

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        a, b, c = self.reduction.weight[0].chunk(3)  # (Q,) each
        pair_scores = (b + c * queries) @ keys.mT  # (*B, T, S)
        return pair_scores + (queries @ a).unsqueeze(-1)


class TrilinearScoreConfig(ContentScoreConfigBase):
    """Linear function of query, key and their elementwise product (Seo et al. 2017)."""

    module_class = TrilinearScore
    needs_equal_sizes = True
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

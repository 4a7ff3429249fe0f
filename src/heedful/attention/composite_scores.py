"""Scores made of other scores: rotary embeddings, sums, and the union of all score configs.

Invariant: with a dot product or cosine inside, a rotary score is unchanged if query and key move by
the same number of positions.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from heedful.attention.additive_scores import (
    AdditiveScoreConfig,
    ConcatScoreConfig,
    LinearScoreConfig,
    LocationScoreConfig,
)
from heedful.attention.dot_product_scores import (
    BilinearScoreConfig,
    CosineScoreConfig,
    DotScoreConfig,
    ProjectedDotScoreConfig,
    ScaledDotScoreConfig,
    TrilinearScoreConfig,
)
from heedful.attention.outputs import AttentionState, PreparedKeys, query_positions
from heedful.attention.positional_encoding import DEFAULT_BASE, rotary_angles
from heedful.attention.relative_scores import PositionScoreConfig
from heedful.attention.scores import ScoreFunction, SumScore
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.shapes import Float, Int, Keys, Queries

ContentScoreConfig = Annotated[
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
    Field(discriminator="type"),
]


class RotaryScore(ScoreFunction):
    """score(R_t q, R_s k), where R_p rotates pair i by p / base^(2 i / size)  (Su et al. 2021).

    Adjacent elements form a pair, as in section 3.2.2; many implementations pair the two halves,
    which is the same up to the order of the columns. If `inner` is a dot product or a cosine, the
    score depends on positions only through s - t; other scores see absolute positions.
    """

    def __init__(self, inner: ScoreFunction, base: float = DEFAULT_BASE) -> None:
        super().__init__()
        self.inner = inner
        self.base = base

    @property
    @override
    def uses_history(self) -> bool:
        return self.inner.uses_history

    @override
    def prepare_keys(self, keys: Keys) -> PreparedKeys:
        positions = torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare_keys(apply_rotary(keys, positions, base=self.base))

    @override
    def prepare_keys_at(
        self, start_positions: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]
    ) -> PreparedKeys:
        start = start_positions[(..., *(None,) * (keys.dim() - 2))]  # (B, 1, ..., 1)
        positions = start + torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare_keys(apply_rotary(keys, positions, base=self.base))

    @override
    def forward(
        self, queries: Queries, prepared_keys: PreparedKeys, state: AttentionState | None = None
    ) -> Float[Tensor, "*#B T S"]:
        positions = query_positions(state, queries.size(-2), queries.device)
        return self.inner(apply_rotary(queries, positions, base=self.base), prepared_keys, state)


def apply_rotary(
    vectors: Float[Tensor, "*B T E"], positions: Int[Tensor, "*#B T"], *, base: float = DEFAULT_BASE
) -> Float[Tensor, "*B T E"]:
    """Rotate each pair of adjacent elements by an angle proportional to the position."""
    assert vectors.size(-1) % 2 == 0, f"the size must be even, but is {vectors.size(-1)}"
    dtype = torch.promote_types(vectors.dtype, torch.float32)
    angles = rotary_angles(positions, vectors.size(-1), base=base)  # (*B, T, E / 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    x, y = vectors.to(dtype).unflatten(-1, (-1, 2)).unbind(dim=-1)
    rotated = [x * cos - y * sin, x * sin + y * cos]
    return torch.stack(rotated, dim=-1).flatten(-2).to(vectors.dtype)


class RotaryScoreConfig(BaseConfig):
    """Rotary position embedding around a content score (Su et al. 2021)."""

    type: Literal["rotary"] = "rotary"
    score: ContentScoreConfig = ScaledDotScoreConfig()
    """Score of the rotated query and key; 'dot', 'scaled-dot' and 'cosine' become relative."""
    base: Annotated[float, Field(gt=1)] = DEFAULT_BASE
    """Ratio of the longest to the shortest wavelength, approximately."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        check(
            query_size % 2 == 0 and key_size % 2 == 0,
            "score.type",
            f"'rotary' needs even sizes, but queries have {query_size} and keys {key_size}",
            "make both sizes even, or choose 'alibi' or 'relative-position-bias' in a 'sum'",
        )
        inner = self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
        return RotaryScore(inner, self.base)


SumTermConfig = Annotated[
    ContentScoreConfig | PositionScoreConfig | RotaryScoreConfig, Field(discriminator="type")
]


class SumScoreConfig(BaseConfig):
    """Sum of several scores, such as content and distance."""

    type: Literal["sum"] = "sum"
    scores: Annotated[tuple[SumTermConfig, ...], Field(min_length=1)]
    """The terms of the sum."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        terms = [
            score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
            for score in self.scores
        ]
        return SumScore(terms)


ScoreConfig = Annotated[
    ContentScoreConfig | PositionScoreConfig | RotaryScoreConfig | SumScoreConfig,
    Field(discriminator="type"),
]

""""""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

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
from heedful.errors import ConfigError
from heedful.shapes import Float, Int

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
    """score(R_t q, R_s k), where R_p turns pair i by p / base^(2 i / width)  (Su et al. 2021).

    Neighbouring numbers are a pair, as in section 3.2.2 (much code pairs the two halves, which
    is the same up to the order of the columns). Where the inner score is a dot product or a
    cosine it then depends on places by s - t alone; other scores are told places, but not as a
    difference. Turning goes on past any length.
    """

    def __init__(self, inner: ScoreFunction, base: float = DEFAULT_BASE) -> None:
        super().__init__()
        self.inner = inner
        self.base = base

    @property
    def uses_history(self) -> bool:
        """Whether the inner score does."""
        return self.inner.uses_history

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> PreparedKeys:
        """Turn each key by its place; then what the inner score does."""
        places = torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare_keys(apply_rotary(keys, places, base=self.base))

    def prepare_keys_at(
        self, start_positions: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]
    ) -> PreparedKeys:
        """Turn each key by its place, counted from the first; then what the inner score does."""
        start = start_positions[(..., *(None,) * (keys.dim() - 2))]  # (B, 1, ..., 1)
        places = start + torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare_keys(apply_rotary(keys, places, base=self.base))

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: PreparedKeys,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*#B T S"]:
        """Turn each query by its place; then what the inner score does."""
        places = query_positions(state, queries.size(-2), queries.device)
        return self.inner(apply_rotary(queries, places, base=self.base), prepared_keys, state)


def apply_rotary(
    vectors: Float[Tensor, "*B T E"], positions: Int[Tensor, "*#B T"], *, base: float = DEFAULT_BASE
) -> Float[Tensor, "*B T E"]:
    """Turn each pair of neighbouring numbers in its plane, in proportion to the place."""
    assert vectors.size(-1) % 2 == 0, f"only pairs can be turned, not {vectors.size(-1)} numbers"
    precise = torch.promote_types(vectors.dtype, torch.float32)
    angles = rotary_angles(positions, vectors.size(-1), base=base)  # (*B, T, E / 2)
    cosines, sines = angles.cos().to(precise), angles.sin().to(precise)
    first, second = vectors.to(precise).unflatten(-1, (-1, 2)).unbind(dim=-1)
    rotated = [first * cosines - second * sines, first * sines + second * cosines]
    return torch.stack(rotated, dim=-1).flatten(-2).to(vectors.dtype)


# The scores, as a configuration names them.


class RotaryScoreConfig(BaseConfig):
    """Turn queries and keys by their places, then compare them (Su et al. 2021)."""

    type: Literal["rotary"] = "rotary"
    score: ContentScoreConfig = ScaledDotScoreConfig()
    """How they are compared; by 'dot', 'scaled-dot' and 'cosine' only their distance counts."""
    base: Annotated[float, Field(gt=1)] = DEFAULT_BASE
    """How much more slowly the last pair of numbers turns than the first, about."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        if query_size % 2 or key_size % 2:
            raise ConfigError(
                "score.type",
                f"a rotary score turns pairs of numbers, but queries have {query_size} and "
                f"keys {key_size}",
                "make both sizes even, or choose 'alibi' or 'relative-buckets' in a 'sum'",
            )
        inner = self.score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
        return RotaryScore(inner, self.base)


SumTermConfig = Annotated[
    ContentScoreConfig | PositionScoreConfig | RotaryScoreConfig, Field(discriminator="type")
]


class SumScoreConfig(BaseConfig):
    """Add several scores: what a key holds and how far away it lies, say."""

    type: Literal["sum"] = "sum"
    scores: Annotated[tuple[SumTermConfig, ...], Field(min_length=1)]
    """The scores that are added."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        summands = [
            score.build(query_size=query_size, key_size=key_size, num_heads=num_heads)
            for score in self.scores
        ]
        return SumScore(summands)


ScoreConfig = Annotated[
    ContentScoreConfig | PositionScoreConfig | RotaryScoreConfig | SumScoreConfig,
    Field(discriminator="type"),
]

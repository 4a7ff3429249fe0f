"""Relative-position scores: functions of the distance between query and key.

All but the rotary score are added to a content score, or used alone. Invariant: a score depends on
the distance of the key from the position that the query expects, by a rule that is defined for any
length. Where heads differ, they come before the queries: (*B, H, T, S).
"""

import math
from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.memory import AttentionState, PreparedKeys, query_positions
from heedful.attention.positional_encoding import DEFAULT_BASE, rotary_angles
from heedful.attention.scores import ScoreFunction, StartPositions
from heedful.config import ModuleConfig
from heedful.shapes import Float, Int, Keys, Queries, Scores

INITIAL_BIAS_STD = 0.02

QueryPositions = Int[Tensor, "*P T 1"]
KeyPositions = Int[Tensor, "S"]


class PositionScore(ScoreFunction):
    """A score that depends only on positions."""

    @abstractmethod
    def compare(self, queries: QueryPositions, keys: KeyPositions, dtype: torch.dtype) -> Scores:
        """Score each pair of positions, computed in `dtype`."""

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S 0"]:
        return keys[..., :0]

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        size, device = keys.size(-2), queries.device
        positions = query_positions(state, queries.size(-2), device)  # (*B, T) or (T,)
        # bfloat16 cannot represent position 257, float16 not 2049.
        dtype = torch.promote_types(queries.dtype, torch.float32)
        scores = self.compare(positions.unsqueeze(-1), torch.arange(size, device=device), dtype)
        # A quarter of finfo.min: distant keys stay above masked ones, and sums do not overflow.
        scores = scores.clamp(min=torch.finfo(queries.dtype).min / 4)
        return scores.to(queries.dtype).expand(*queries.shape[:-1], size)


class AlibiScore(PositionScore):
    """-slope * |s - t|  (Press et al. 2022, section 3).

    Each head has its own fixed slope, from steep to flat; without heads the slope is the one of a
    single head, 2^-8. The paper is about causal attention; here distance is symmetric.
    """

    def __init__(self, num_heads: int | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads

    @override
    def compare(self, queries: QueryPositions, keys: KeyPositions, dtype: torch.dtype) -> Scores:
        distances = (keys - queries).abs().to(dtype)  # (*P, T, S)
        slopes = alibi_slopes(self.num_heads or 1, dtype, keys.device)
        return -(slopes if self.num_heads is None else slopes.view(-1, 1, 1)) * distances


def alibi_slopes(num_heads: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "H"]:
    """Return the slope of each head: 2^(-8 i / n), for i from 1 to n.

    If n is not a power of two, this follows the authors' code and not the formula, because trained
    models do: the slopes for the next lower power of two, then every other one of the slopes that
    the next higher power would add between them.
    """
    power = 1 << (num_heads.bit_length() - 1)
    exponents = torch.arange(1, power + 1, dtype=dtype, device=device)
    between = torch.arange(num_heads - power, dtype=dtype, device=device) + 0.5
    return torch.exp2(-8 / power * torch.cat([exponents, between]))


class AlibiScoreConfig(ModuleConfig):
    """Linear penalty on distance with a fixed slope per head (Press et al. 2022)."""

    module_class = AlibiScore
    type: Literal["alibi"] = "alibi"


class RelativeBiasScore(PositionScore):
    """bias[bucket(s - t)], one learned scalar for each bucket and head  (Raffel et al. 2020).

    Short distances have a bucket each; longer ones share buckets that grow by a constant ratio up
    to `max_distance`, and all beyond share the last (section 2.1; the full rule is in T5's code).
    If bidirectional, the second half of the buckets is for keys after the query; otherwise such
    keys share the bucket of distance 0, since a causal mask hides them.
    """

    buckets: Tensor

    def __init__(
        self, num_buckets: int, max_distance: int, *, num_heads: int | None, bidirectional: bool
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        num_per_side = num_buckets // 2 if bidirectional else num_buckets
        assert num_per_side >= 2, f"too few buckets: {num_buckets}"
        assert max_distance > num_per_side // 2, f"max_distance is too small: {max_distance}"
        before = relative_position_buckets(num_per_side, max_distance)
        after = [num_per_side + bucket for bucket in before[1:]]
        by_offset = before[::-1] + (after if bidirectional else [0] * max_distance)
        self.register_buffer("buckets", torch.tensor(by_offset), persistent=False)
        self.bias = nn.Parameter(torch.randn(num_heads or 1, num_buckets) * INITIAL_BIAS_STD)

    @override
    def compare(self, queries: QueryPositions, keys: KeyPositions, dtype: torch.dtype) -> Scores:
        limit = self.max_distance
        offsets = (keys - queries).clamp(-limit, limit)  # (*P, T, S)
        heads = torch.arange(self.bias.size(0), device=keys.device)
        heads = heads if self.num_heads is None else heads.view(-1, 1, 1)
        return self.bias[heads, self.buckets[offsets + limit]].to(dtype)


def relative_position_buckets(num_buckets: int, max_distance: int) -> list[int]:
    """Return the bucket of each distance up to `max_distance`: half exact, half logarithmic."""
    num_exact = num_buckets // 2
    num_log = num_buckets - num_exact
    buckets = list(range(num_exact))
    step = 0
    for distance in range(num_exact, max_distance + 1):
        # distance / num_exact >= (max_distance / num_exact) ** ((step + 1) / num_log) in integers:
        # a logarithm would round distances on the edge of a bucket either way.
        while step + 1 < num_log and (
            distance**num_log * num_exact ** (step + 1)
            >= max_distance ** (step + 1) * num_exact**num_log
        ):
            step += 1
        buckets.append(num_exact + step)
    return buckets


class RelativeBiasScoreConfig(ModuleConfig):
    """Learned bias for each bucket of distances (Raffel et al. 2020, T5)."""

    module_class = RelativeBiasScore
    type: Literal["relative-position-bias"] = "relative-position-bias"
    num_buckets: PositiveInt = Field(default=32, le=1_000_000)
    """Number of buckets, each with one bias per head."""
    max_distance: PositiveInt = Field(default=128, le=1_000_000)
    """Distance from which all keys share the last bucket."""
    bidirectional: bool = True
    """Whether keys after the query have their own buckets, half of all."""

    @model_validator(mode="after")
    def _check_buckets(self) -> "RelativeBiasScoreConfig":
        num_sides = 2 if self.bidirectional else 1
        if self.num_buckets % num_sides or self.num_buckets < 2 * num_sides:
            allowed = "an even number from 4 up" if self.bidirectional else "at least 2"
            raise ValueError(f"num_buckets must be {allowed}, but is {self.num_buckets}")
        num_exact = self.num_buckets // num_sides // 2
        if self.max_distance <= num_exact:
            raise ValueError(f"max_distance must exceed {num_exact}, but is {self.max_distance}")
        return self


class GaussianScore(PositionScore):
    """-(s - keys_per_query * t)^2 / (2 sigma^2): a Gaussian around the expected position.

    The exponent of Luong et al. 2015, equation 10, with the center of "local-m", added before the
    softmax instead of multiplied after it. For a predicted center use `LocalAlignment`.
    """

    def __init__(self, sigma: float, keys_per_query: float = 1.0) -> None:
        super().__init__()
        assert sigma > 0, sigma
        self.sigma = sigma
        self.keys_per_query = keys_per_query

    @override
    def compare(self, queries: QueryPositions, keys: KeyPositions, dtype: torch.dtype) -> Scores:
        expected = self.keys_per_query * queries.to(dtype)
        return -((keys.to(dtype) - expected) / self.sigma).square() / 2  # (*P, T, S)


class GaussianScoreConfig(ModuleConfig):
    """Gaussian around the position where a query expects its key."""

    module_class = GaussianScore
    type: Literal["gaussian"] = "gaussian"
    sigma: PositiveFloat = 5.0
    """Standard deviation in positions; Luong et al. 2015 use half of their half-width of 10."""
    keys_per_query: PositiveFloat = 1.0
    """Ratio of source length to target length."""


class RelativeKeyScore(ScoreFunction):
    """q . r_clip(s - t, -max, max) / sqrt(size)  (Shaw et al. 2018, equation 4).

    The other term of that equation is the scaled dot product; with `scaled=False` nothing is
    divided, to be added to a plain one. Keys beyond `max_relative_position` share the vector of the
    last distance on their side, and all heads share all vectors (section 3.3).
    """

    def __init__(self, query_size: int, max_relative_position: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.max_relative_position = max_relative_position
        self.scale = 1 / math.sqrt(query_size) if scaled else 1.0
        num_offsets = 2 * max_relative_position + 1
        self.projection = nn.Linear(query_size, num_offsets, bias=False)  # its rows are the r

    @override
    def prepare_keys(self, keys: Keys) -> Float[Tensor, "*B S 0"]:
        return keys[..., :0]

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        size, device = keys.size(-2), queries.device
        limit = self.max_relative_position
        positions = query_positions(state, queries.size(-2), device)  # (*B, T) or (T,)
        offsets = torch.arange(size, device=device) - positions.unsqueeze(-1)
        indices = offsets.clamp(-limit, limit) + limit
        # Compute each distance once and gather: a vector for each pair would be (T, S, Q).
        by_offset = self.projection(queries) * self.scale  # (*B, T, 2 max + 1)
        return by_offset.gather(-1, indices.expand(*queries.shape[:-1], size))


class RelativeKeyScoreConfig(ModuleConfig):
    """Dot product of the query with a vector learned for each distance (Shaw et al. 2018)."""

    module_class = RelativeKeyScore
    type: Literal["relative-key"] = "relative-key"
    max_relative_position: PositiveInt = 16
    """Distance beyond which keys on one side share a vector; 16 in the paper."""
    scaled: bool = True
    """Whether to divide by the square root of the query size, as the scaled dot product does."""


PositionScoreConfig = Annotated[
    AlibiScoreConfig | RelativeBiasScoreConfig | GaussianScoreConfig | RelativeKeyScoreConfig,
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
        self.uses_history = inner.uses_history

    @override
    def prepare_keys(self, keys: Keys) -> PreparedKeys:
        return self.prepare_keys_at(None, keys)

    @override
    def prepare_keys_at(self, start_positions: StartPositions, keys: Keys) -> PreparedKeys:
        positions = torch.arange(keys.size(-2), device=keys.device)
        if start_positions is not None:
            positions = start_positions[(..., *(None,) * (keys.dim() - 2))] + positions
        return self.inner.prepare_keys(apply_rotary(keys, positions, base=self.base))

    @override
    def forward(
        self, queries: Queries, keys: PreparedKeys, state: AttentionState | None = None
    ) -> Scores:
        positions = query_positions(state, queries.size(-2), queries.device)
        return self.inner(apply_rotary(queries, positions, base=self.base), keys, state)


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

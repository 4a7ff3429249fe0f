"""The scores that look at places, as a configuration names them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.outputs import AttentionState, query_positions
from heedful.attention.scores import ScoreFunction
from heedful.config import BaseConfig
from heedful.shapes import Float, Int

# Distances: how strongly does one place call for another, whatever stands there?
#
# Every score here reads places and nothing else: which query this is, and where the key stands.
# Add it to a score of content, or let it stand alone. Law: what is said of a pair depends on how
# far the key lies from where the query expects it, by a rule that also covers lengths never seen.
# Heads, where a score tells them apart, stand before the queries: (*B, H, T, S).

# Standard deviation of a learned preference before training: present, but next to nothing.
INITIAL_BIAS_STD = 0.02


class PositionScore(ScoreFunction):
    """A score that looks at places alone."""

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    @abstractmethod
    def score_positions(
        self,
        query_positions: Int[Tensor, "*P T 1"],
        key_positions: Int[Tensor, "S"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "*_ T S"]:
        """Score every place, in this precision, for queries whose own places are these."""

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: Float[Tensor, "*B S 0"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size, device = prepared_keys.size(-2), queries.device
        own = query_positions(state, queries.size(-2), device).unsqueeze(-1)  # (*B, T, 1) or (T, 1)
        # Half precision cannot tell place 257 (bfloat16) or 2049 (float16) from the one before.
        precise = torch.promote_types(queries.dtype, torch.float32)
        scores = self.score_positions(own, torch.arange(size, device=device), precise)
        # A quarter of the least number: far away must stay above hidden, and add without overflow.
        finite = scores.clamp(min=torch.finfo(queries.dtype).min / 4)
        return finite.to(queries.dtype).expand(*queries.shape[:-1], size)


class AlibiScore(PositionScore):
    """-slope * |s - t|  (Press et al. 2022, section 3).

    Each head has a slope of its own, from steep to gentle, and none is learned; without heads
    the slope is that of a single head, 2^-8. The paper looks back only; here a key ahead counts
    like one as far behind. Scores go on falling past any length.
    """

    def __init__(self, num_heads: int | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads

    def score_positions(
        self,
        query_positions: Int[Tensor, "*P T 1"],
        key_positions: Int[Tensor, "S"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "*_ T S"]:
        """Fall with the distance."""
        distances = (key_positions - query_positions).abs().to(dtype)  # (*P, T, S)
        slopes = alibi_slopes(self.num_heads or 1, dtype, key_positions.device)
        return -(slopes if self.num_heads is None else slopes.view(-1, 1, 1)) * distances


class RelativeBiasScore(PositionScore):
    """bias[bucket(s - t)], a learned number for each bucket and head  (Raffel et al. 2020).

    Near distances have a bucket each; those further off share buckets that widen by a constant
    ratio up to `max_distance`, and all beyond share the last (section 2.1; the rule in full is
    in the code of T5). Both ways, the second half of the buckets is for keys ahead; one way,
    keys ahead share the bucket of the query's own place, for a causal mask hides them anyhow.
    """

    buckets: Tensor

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        num_heads: int | None = None,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        side = num_buckets // 2 if bidirectional else num_buckets
        assert side >= 2, f"too few buckets: {num_buckets}"
        assert max_distance > side // 2, f"nothing lies beyond the near places: {max_distance}"
        behind = relative_position_buckets(side, max_distance)
        ahead = [side + bucket for bucket in behind[1:]] if bidirectional else [0] * max_distance
        by_offset = torch.tensor(behind[::-1] + ahead)  # from -max_distance to max_distance
        self.register_buffer("buckets", by_offset, persistent=False)
        self.bias = nn.Parameter(torch.randn(num_heads or 1, num_buckets) * INITIAL_BIAS_STD)

    def score_positions(
        self,
        query_positions: Int[Tensor, "*P T 1"],
        key_positions: Int[Tensor, "S"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "*_ T S"]:
        """Look up what was learned for the distance."""
        max_distance = self.max_distance
        offsets = (key_positions - query_positions).clamp(-max_distance, max_distance)  # (*P, T, S)
        heads = torch.arange(self.bias.size(0), device=key_positions.device)
        head = heads if self.num_heads is None else heads.view(-1, 1, 1)
        return self.bias[head, self.buckets[offsets + max_distance]].to(dtype)


class GaussianScore(PositionScore):
    """-(s - pace * t)^2 / (2 sigma^2): a bell round the place where the query expects its key.

    The exponent of Luong et al. 2015, equation 10, round the query's own place ("local-m") and
    before the softmax instead of after it. `keys_per_query` is how many keys go by for each query. A
    centre that is predicted needs the length of the source, which the mask knows: that is the
    work of an alignment, `local`. Scores go on falling past any length.
    """

    def __init__(self, sigma: float, keys_per_query: float = 1.0) -> None:
        super().__init__()
        assert sigma > 0, sigma
        self.sigma = sigma
        self.keys_per_query = keys_per_query

    def score_positions(
        self,
        query_positions: Int[Tensor, "*P T 1"],
        key_positions: Int[Tensor, "S"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "*_ T S"]:
        """Fall with the square of the distance."""
        distances = key_positions.to(dtype) - self.keys_per_query * query_positions.to(
            dtype
        )  # (*P, T, S)
        return -(distances / self.sigma).square() / 2


def alibi_slopes(num_heads: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "H"]:
    """Say how steeply scores fall in each head: 2^(-8 i / n), for i from 1 to n.

    For a number of heads that is no power of two this follows the authors' code rather than the
    paper's one formula, for trained models do: the slopes of the power of two below, and then
    every other of those that the next power would put between them.
    """
    whole = 1 << (num_heads.bit_length() - 1)
    at = torch.arange(1, whole + 1, dtype=dtype, device=device)
    between = torch.arange(num_heads - whole, dtype=dtype, device=device) + 0.5
    return torch.exp2(-8 / whole * torch.cat([at, between]))


def relative_position_buckets(num_buckets: int, max_distance: int) -> list[int]:
    """Give each distance from 0 to `max_distance` its bucket: half exact, half logarithmic."""
    near = num_buckets // 2
    far = num_buckets - near
    buckets = list(range(near))
    step = 0
    for distance in range(near, max_distance + 1):
        # distance / near >= (max_distance / near) ** ((step + 1) / far), in whole numbers: a
        # logarithm would put a distance that lies exactly on an edge now here, now there.
        while step + 1 < far and (
            distance**far * near ** (step + 1) >= max_distance ** (step + 1) * near**far
        ):
            step += 1
        buckets.append(near + step)
    return buckets


# Relative places: how does a comparison of contents know how far apart they stand?
#
# A query meets a vector learned for each distance, or query and key are both turned by their own
# place before they meet. Law: for such a score of products, a query and a key that move together
# keep their score.


class RelativeKeyScore(ScoreFunction):
    """q . r_clip(s - t, -reach, reach) / sqrt(width)  (Shaw et al. 2018, equation 4).

    One of that equation's two summands: the other is a scaled dot product. Without `scaled`
    nothing is divided, to go with a plain one. Keys further off than `reach` share the vector
    of the last on their side, and all heads share all vectors (section 3.3).
    """

    def __init__(self, query_size: int, max_relative_position: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.max_relative_position = max_relative_position
        self.scale = 1 / math.sqrt(query_size) if scaled else 1.0
        self.projection = nn.Linear(
            query_size, 2 * max_relative_position + 1, bias=False
        )  # a row is an r

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: Float[Tensor, "*B S 0"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size, device = prepared_keys.size(-2), queries.device
        own_positions = query_positions(state, queries.size(-2), device).unsqueeze(
            -1
        )  # (*B, T, 1) or (T, 1)
        offsets = (torch.arange(size, device=device) - own_positions).clamp(
            -self.max_relative_position, self.max_relative_position
        )
        # Each distance once, then looked up: a vector for each pair would be (T, S, Q).
        by_offset = self.projection(queries) * self.scale  # (*B, T, 2 reach + 1)
        return by_offset.gather(
            -1, (offsets + self.max_relative_position).expand(*queries.shape[:-1], size)
        )


class AlibiScoreConfig(BaseConfig):
    """Let scores fall with the distance, in each head at its own slope (Press et al. 2022)."""

    type: Literal["alibi"] = "alibi"

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score; with heads, for queries (*B, H, T, Q)."""
        return AlibiScore(num_heads)


class RelativeBiasScoreConfig(BaseConfig):
    """Learn a number for each distance, far ones together (Raffel et al. 2020)."""

    type: Literal["relative-position-bias"] = "relative-position-bias"
    num_buckets: PositiveInt = 32
    """Numbers that are learned for each head."""
    max_distance: PositiveInt = 128
    """Distance from which all share the last bucket, at the latest."""
    bidirectional: bool = True
    """Whether keys ahead have buckets of their own: half of all."""

    @model_validator(mode="after")
    def _check_buckets(self) -> RelativeBiasScoreConfig:
        sides = 2 if self.bidirectional else 1
        if self.num_buckets % sides or self.num_buckets < 2 * sides:
            wanted = "an even number from 4 up" if self.bidirectional else "at least 2"
            raise ValueError(f"num_buckets must be {wanted}, not {self.num_buckets}")
        near = self.num_buckets // sides // 2
        if self.max_distance <= near:
            raise ValueError(f"max_distance must be above {near}, not {self.max_distance}")
        return self

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score; with heads, for queries (*B, H, T, Q)."""
        return RelativeBiasScore(
            self.num_buckets,
            self.max_distance,
            num_heads=num_heads,
            bidirectional=self.bidirectional,
        )


class GaussianScoreConfig(BaseConfig):
    """Let scores fall with the square of the distance from where a query expects its key."""

    type: Literal["gaussian"] = "gaussian"
    sigma: PositiveFloat = 5.0
    """Places within which most attention falls; Luong et al. 2015 use half their window of 10."""
    keys_per_query: PositiveFloat = 1.0
    """How many keys go by for each query."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score, the same for every head."""
        return GaussianScore(self.sigma, self.keys_per_query)


class RelativeKeyScoreConfig(BaseConfig):
    """Compare the query with a vector learned for each distance (Shaw et al. 2018)."""

    type: Literal["relative-key"] = "relative-key"
    max_relative_position: PositiveInt = 16
    """Distance beyond which, on either side, keys share a vector; 16 in the paper."""
    scaled: bool = True
    """Whether to divide by the root of the width, to go with a scaled dot product."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score, the same for every head."""
        return RelativeKeyScore(query_size, self.max_relative_position, scaled=self.scaled)


PositionScoreConfig = Annotated[
    AlibiScoreConfig | RelativeBiasScoreConfig | GaussianScoreConfig | RelativeKeyScoreConfig,
    Field(discriminator="type"),
]

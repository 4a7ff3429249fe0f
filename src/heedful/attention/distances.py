"""Distances: how strongly does one place call for another, whatever stands there?

Every score here reads places and nothing else: which query this is, and where the key stands.
Add it to a score of content, or let it stand alone. Law: what is said of a pair depends on how
far the key lies from where the query expects it, by a rule that also covers lengths never seen.
Heads, where a score tells them apart, stand before the queries: (*B, H, T, S).
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from heedful.attention.past import Past, positions
from heedful.attention.scores import Score
from heedful.shapes import Float, Int

# Standard deviation of a learned preference before training: present, but next to nothing.
FAINT = 0.02


class DistanceScore(Score):
    """A score that looks at places alone."""

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    @abstractmethod
    def judge(
        self, own: Int[Tensor, "*P T 1"], places: Int[Tensor, "S"], dtype: torch.dtype
    ) -> Float[Tensor, "*_ T S"]:
        """Score every place, in this precision, for queries whose own places are these."""

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared: Float[Tensor, "*B S 0"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size, device = prepared.size(-2), queries.device
        own = positions(past, queries.size(-2), device).unsqueeze(-1)  # (*B, T, 1) or (T, 1)
        # Half precision cannot tell place 257 (bfloat16) or 2049 (float16) from the one before.
        precise = torch.promote_types(queries.dtype, torch.float32)
        scores = self.judge(own, torch.arange(size, device=device), precise)
        # A quarter of the least number: far away must stay above hidden, and add without overflow.
        finite = scores.clamp(min=torch.finfo(queries.dtype).min / 4)
        return finite.to(queries.dtype).expand(*queries.shape[:-1], size)


class AlibiScore(DistanceScore):
    """-slope * |s - t|  (Press et al. 2022, section 3).

    Each head has a slope of its own, from steep to gentle, and none is learned; without heads
    the slope is that of a single head, 2^-8. The paper looks back only; here a key ahead counts
    like one as far behind. Scores go on falling past any length.
    """

    def __init__(self, num_heads: int | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads

    def judge(
        self, own: Int[Tensor, "*P T 1"], places: Int[Tensor, "S"], dtype: torch.dtype
    ) -> Float[Tensor, "*_ T S"]:
        """Fall with the distance."""
        distances = (places - own).abs().to(dtype)  # (*P, T, S)
        steepness = slopes(self.num_heads or 1, dtype, places.device)
        return -(steepness if self.num_heads is None else steepness.view(-1, 1, 1)) * distances


class RelativeBucketScore(DistanceScore):
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
        both_ways: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        side = num_buckets // 2 if both_ways else num_buckets
        assert side >= 2, f"too few buckets: {num_buckets}"
        assert max_distance > side // 2, f"nothing lies beyond the near places: {max_distance}"
        behind = spread(side, max_distance)
        ahead = [side + bucket for bucket in behind[1:]] if both_ways else [0] * max_distance
        by_offset = torch.tensor(behind[::-1] + ahead)  # from -max_distance to max_distance
        self.register_buffer("buckets", by_offset, persistent=False)
        self.bias = nn.Parameter(torch.randn(num_heads or 1, num_buckets) * FAINT)

    def judge(
        self, own: Int[Tensor, "*P T 1"], places: Int[Tensor, "S"], dtype: torch.dtype
    ) -> Float[Tensor, "*_ T S"]:
        """Look up what was learned for the distance."""
        farthest = self.max_distance
        offsets = (places - own).clamp(-farthest, farthest)  # (*P, T, S)
        heads = torch.arange(self.bias.size(0), device=places.device)
        head = heads if self.num_heads is None else heads.view(-1, 1, 1)
        return self.bias[head, self.buckets[offsets + farthest]].to(dtype)


class GaussianScore(DistanceScore):
    """-(s - pace * t)^2 / (2 sigma^2): a bell round the place where the query expects its key.

    The exponent of Luong et al. 2015, equation 10, round the query's own place ("local-m") and
    before the softmax instead of after it. `pace` is how many keys go by for each query. A
    centre that is predicted needs the length of the source, which the mask knows: that is the
    work of an alignment, `local`. Scores go on falling past any length.
    """

    def __init__(self, sigma: float, pace: float = 1.0) -> None:
        super().__init__()
        assert sigma > 0, sigma
        self.sigma = sigma
        self.pace = pace

    def judge(
        self, own: Int[Tensor, "*P T 1"], places: Int[Tensor, "S"], dtype: torch.dtype
    ) -> Float[Tensor, "*_ T S"]:
        """Fall with the square of the distance."""
        distances = places.to(dtype) - self.pace * own.to(dtype)  # (*P, T, S)
        return -(distances / self.sigma).square() / 2


def slopes(num_heads: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "H"]:
    """Say how steeply scores fall in each head: 2^(-8 i / n), for i from 1 to n.

    For a number of heads that is no power of two this follows the authors' code rather than the
    paper's one formula, for trained models do: the slopes of the power of two below, and then
    every other of those that the next power would put between them.
    """
    whole = 1 << (num_heads.bit_length() - 1)
    at = torch.arange(1, whole + 1, dtype=dtype, device=device)
    between = torch.arange(num_heads - whole, dtype=dtype, device=device) + 0.5
    return torch.exp2(-8 / whole * torch.cat([at, between]))


def spread(num_buckets: int, max_distance: int) -> list[int]:
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

"""Relative places: how does a comparison of contents know how far apart they stand?

A query meets a vector learned for each distance, or query and key are both turned by their own
place before they meet. Law: for such a score of products, a query and a key that move together
keep their score.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from heedful.attention.past import Past, positions
from heedful.attention.positions import BASE, angles
from heedful.attention.scores import Prepared, Score
from heedful.shapes import Float, Int


class RelativeKeyScore(Score):
    """q . r_clip(s - t, -reach, reach) / sqrt(width)  (Shaw et al. 2018, equation 4).

    One of that equation's two summands: the other is a scaled dot product. Without `scaled`
    nothing is divided, to go with a plain one. Keys further off than `reach` share the vector
    of the last on their side, and all heads share all vectors (section 3.3).
    """

    def __init__(self, query_size: int, reach: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.reach = reach
        self.scale = 1 / math.sqrt(query_size) if scaled else 1.0
        self.projection = nn.Linear(query_size, 2 * reach + 1, bias=False)  # a row is an r

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared: Float[Tensor, "*B S 0"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size, device = prepared.size(-2), queries.device
        own = positions(past, queries.size(-2), device).unsqueeze(-1)  # (*B, T, 1) or (T, 1)
        offsets = (torch.arange(size, device=device) - own).clamp(-self.reach, self.reach)
        # Each distance once, then looked up: a vector for each pair would be (T, S, Q).
        by_offset = self.projection(queries) * self.scale  # (*B, T, 2 reach + 1)
        return by_offset.gather(-1, (offsets + self.reach).expand(*queries.shape[:-1], size))


class RotaryScore(Score):
    """score(R_t q, R_s k), where R_p turns pair i by p / base^(2 i / width)  (Su et al. 2021).

    Neighbouring numbers are a pair, as in section 3.2.2 (much code pairs the two halves, which
    is the same up to the order of the columns). Where the inner score is a dot product or a
    cosine it then depends on places by s - t alone; other scores are told places, but not as a
    difference. Turning goes on past any length.
    """

    def __init__(self, inner: Score, base: float = BASE) -> None:
        super().__init__()
        self.inner = inner
        self.base = base

    @property
    def looks_back(self) -> bool:
        """Whether the inner score does."""
        return self.inner.looks_back

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Prepared:
        """Turn each key by its place; then what the inner score does."""
        places = torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare(rotate(keys, places, base=self.base))

    def prepare_from(self, first: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]) -> Prepared:
        """Turn each key by its place, counted from the first; then what the inner score does."""
        start = first[(..., *(None,) * (keys.dim() - 2))]  # (B, 1, ..., 1)
        places = start + torch.arange(keys.size(-2), device=keys.device)
        return self.inner.prepare(rotate(keys, places, base=self.base))

    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Prepared, past: Past | None = None
    ) -> Float[Tensor, "*#B T S"]:
        """Turn each query by its place; then what the inner score does."""
        places = positions(past, queries.size(-2), queries.device)
        return self.inner(rotate(queries, places, base=self.base), prepared, past)


def rotate(
    vectors: Float[Tensor, "*B T E"], places: Int[Tensor, "*#B T"], *, base: float = BASE
) -> Float[Tensor, "*B T E"]:
    """Turn each pair of neighbouring numbers in its plane, in proportion to the place."""
    assert vectors.size(-1) % 2 == 0, f"only pairs can be turned, not {vectors.size(-1)} numbers"
    precise = torch.promote_types(vectors.dtype, torch.float32)
    turns = angles(places, vectors.size(-1), base=base)  # (*B, T, E / 2)
    cosines, sines = turns.cos().to(precise), turns.sin().to(precise)
    first, second = vectors.to(precise).unflatten(-1, (-1, 2)).unbind(dim=-1)
    turned = [first * cosines - second * sines, first * sines + second * cosines]
    return torch.stack(turned, dim=-1).flatten(-2).to(vectors.dtype)

"""Location: how strongly does a query call for a place, whatever stands there?"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.attention.scores import Comparison
from heedful.shapes import Float


class LocationScore(Comparison):
    """(W q)_s, for the key in place s  (Luong et al. 2015, equation 9, "location").

    W has a row for each of the first `max_positions` places; places beyond them share the score
    of the last. The paper ignores words there. To hide is a mask's work and not a score's, and
    to refuse would let the longest source of a batch decide over its neighbours.
    """

    def __init__(self, query_size: int, *, max_positions: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, max_positions, bias=False)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Float[Tensor, "*B S 0"]:
        """Keep the number of the keys, and nothing of what they hold."""
        return keys[..., :0]

    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S 0"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every place."""
        size = prepared.size(-2)
        scores = linear(queries, self.projection.weight[:size])  # (*B, T, S or max_positions)
        beyond = size - scores.size(-1)
        return torch.cat([scores, scores[..., -1:].expand(*scores.shape[:-1], beyond)], dim=-1)

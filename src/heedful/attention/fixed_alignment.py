"""Fixed alignments: connections that are hard-coded, not computed from the scores.

They are baselines, which show how much learned attention adds. Invariants:
weights depend only on the mask and the position of the query, and the scores get zero gradient.
"""

from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from heedful.attention.alignments import AlignmentFunction, AlignmentOutput, AttentionPartConfig
from heedful.attention.memory import AttentionState, query_positions
from heedful.shapes import Bool, Int, Mask, Queries, Scores

FixedPattern = Literal["uniform", "last", "diagonal"]


class FixedAlignment(AlignmentFunction):
    """uniform: 1 / n; last: one at n - 1; diagonal: one at min(t, n - 1) for query t.

    Positions are counted over the n unmasked ones, so padding on either side changes nothing.
    """

    def __init__(self, pattern: FixedPattern = "uniform") -> None:
        super().__init__()
        self.pattern = pattern

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        ranks = mask.cumsum(dim=-1) - 1  # (*B, T or 1, S), of the unmasked positions
        chosen = mask & self._select(ranks, scores.size(-2), state)  # (*B, T or 1, S)
        # At least float32: half precision cannot count more than 256 or 2048 positions.
        weights = chosen / chosen.sum(dim=-1, keepdim=True).clamp(min=1)
        # Zero times the scores: NaN stays visible, and parameters of the score get a zero gradient
        # instead of none, which several processes could not average.
        return AlignmentOutput(weights.to(scores.dtype) + 0 * scores.masked_fill(~mask, 0))

    def _select(
        self, ranks: Int[Tensor, "*#B #T S"], num_queries: int, state: AttentionState | None
    ) -> Bool[Tensor, "*#B #T S"]:
        """Return which positions a query attends to, by their ranks."""
        if self.pattern == "uniform":
            return torch.ones_like(ranks, dtype=torch.bool)
        last_rank = ranks[..., -1:]
        if self.pattern == "last":
            return ranks == last_rank
        positions = query_positions(state, num_queries, ranks.device).unsqueeze(-1)  # (*B, T, 1)
        return ranks == torch.minimum(positions, last_rank)


class FixedAlignmentConfig(AttentionPartConfig):
    """Hard-coded connections that ignore the scores: a baseline for learned ones."""

    module_class = FixedAlignment
    type: Literal["fixed"] = "fixed"
    pattern: FixedPattern = "uniform"
    """What every query attends to: all source positions equally (`uniform`), the last one (`last`),
    or the one of its own index, and the last one when the source has ended (`diagonal`)."""

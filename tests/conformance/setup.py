"""How conformance tests ask: one call for a mechanism, and the numbers it is asked about."""

import torch
from torch import Tensor

from heedful.attention import (
    AlignmentFunction,
    AttentionOutput,
    ScoreFunction,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    padding_mask,
)

LENGTHS = torch.tensor([5, 3])


def sentences(
    queries: int = 3, positions: int = 5, width: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows of queries and memory, the second row with padding at its end."""
    queries_ = torch.randn(2, queries, width, dtype=torch.double)
    values = torch.randn(2, positions, width, dtype=torch.double)
    return queries_, values, padding_mask(LENGTHS, positions)


def attend(
    score: ScoreFunction,
    queries: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    alignment: AlignmentFunction | None = None,
) -> AttentionOutput:
    """Ask a mechanism that takes the mean of the values, under a softmax unless told otherwise."""
    attention = SingleHeadAttention(
        score, alignment or SoftmaxAlignment(), WeightedSumReadout()
    ).double()
    return attention(queries, attention.build_memory(values, mask))


def column(*numbers: float) -> Tensor:
    """One row of so many positions, each a single number wide."""
    return torch.tensor(numbers, dtype=torch.double).view(1, -1, 1)


def row(*numbers: float) -> Tensor:
    """A matrix with a single row."""
    return torch.tensor([numbers], dtype=torch.double)


def visible(values: Tensor) -> Tensor:
    """A mask that hides nothing."""
    return torch.ones(values.size(0), 1, values.size(1), dtype=torch.bool)


def softmax(*numbers: float) -> Tensor:
    """The weights that a softmax gives to these scores."""
    exponentials = torch.tensor(numbers, dtype=torch.double).exp()
    return exponentials / exponentials.sum()

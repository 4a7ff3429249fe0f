"""Shared inputs of conformance tests, and one call for a whole attention mechanism."""

import torch
from torch import Tensor

from heedful.attention.alignments import AlignmentFunction, SoftmaxAlignment
from heedful.attention.attention import AttentionOutput, SingleHeadAttention
from heedful.attention.masks import padding_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScoreFunction

LENGTHS = torch.tensor([5, 3])


def sentences(
    queries: int = 3, positions: int = 5, width: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Return two rows of queries and values, the second with padding, and the mask."""
    query_vectors = torch.randn(2, queries, width, dtype=torch.double)
    values = torch.randn(2, positions, width, dtype=torch.double)
    return query_vectors, values, padding_mask(LENGTHS, positions)


def attend(
    score: ScoreFunction,
    queries: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    alignment: AlignmentFunction | None = None,
) -> AttentionOutput:
    """Run attention with a weighted sum and, by default, softmax."""
    attention = SingleHeadAttention(
        score, alignment or SoftmaxAlignment(), WeightedSumReadout()
    ).double()
    return attention(queries, attention.build_memory(values, mask))


def column(*numbers: float) -> Tensor:
    """Return one row of vectors of size one."""
    return torch.tensor(numbers, dtype=torch.double).view(1, -1, 1)


def row(*numbers: float) -> Tensor:
    """Return a matrix with a single row."""
    return torch.tensor([numbers], dtype=torch.double)


def visible(values: Tensor) -> Tensor:
    """Return a mask that is True everywhere."""
    return torch.ones(values.size(0), 1, values.size(1), dtype=torch.bool)


def softmax(*numbers: float) -> Tensor:
    """Return the softmax of these scores."""
    exponentials = torch.tensor(numbers, dtype=torch.double).exp()
    return exponentials / exponentials.sum()

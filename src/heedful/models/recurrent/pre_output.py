"""Outputs: what is the next token told from, once a step is done?

A step leaves four parts behind: the state before it, the state after it, what attention took and
the token it read. A wiring says which of them tell of the next token; an output makes features of
these. Law: features of one step depend on that step's parts alone, so the features of a known
target are made at once wherever none of them is fed back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.shapes import Float

StepPart = Literal["previous_state", "state", "context", "token_embedding"]


class StepVectors(NamedTuple):
    """What one step leaves behind."""

    previous_state: Float[Tensor, "B D"]  # the state that was
    state: Float[Tensor, "B D"]  # the state that is
    token_embedding: Float[Tensor, "B E"]
    context: Float[Tensor, "B V"] | Float[Tensor, "B S V"] | None = None  # the latter per place


class PreOutputParts(NamedTuple):
    """Which parts a wiring tells of the next token from, in the order of its paper."""

    shallow: tuple[StepPart, ...]
    deep: tuple[StepPart, ...]  # where a layer of its own weighs them, with the token among them


class PreOutputLayer(nn.Module, ABC):
    """What the next token is told from."""

    def __init__(self, parts: Sequence[StepPart], size: int, *, dropout: float) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.size = size
        self.dropout = nn.Dropout(dropout)

    def concat_parts(self, step_vectors: StepVectors) -> Float[Tensor, "B *S X"]:
        """Put the parts side by side; beside each context, where there is one for every place."""
        parts = [getattr(step_vectors, part) for part in self.parts]
        num_positions = next(
            (part.size(1) for part in parts if part.dim() > step_vectors.state.dim()), None
        )
        if num_positions is not None:
            parts = [
                part
                if part.dim() > step_vectors.state.dim()
                else part[:, None].expand(-1, num_positions, -1)
                for part in parts
            ]
        return torch.cat(parts, dim=-1)

    @abstractmethod
    def forward(self, pre_output_input: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Make features of parts that lie side by side."""


class TanhPreOutput(PreOutputLayer):
    """tanh(W [parts] + b)  (Luong et al. 2015, equation 5)."""

    def __init__(
        self, parts: Sequence[StepPart], input_size: int, size: int, *, dropout: float
    ) -> None:
        super().__init__(parts, size, dropout=dropout)
        self.projection = nn.Linear(input_size, size)

    def forward(self, pre_output_input: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Combine and squash the parts."""
        return self.projection(self.dropout(pre_output_input)).tanh()


class MaxoutPreOutput(PreOutputLayer):
    """t_j = max(t~_2j, t~_2j+1), t~ = U s + V y + C c + b  (Bahdanau et al. 2015, section A.2.2).

    U, V and C are one matrix, for the parts lie side by side. By the paper's formula s is the
    state before the step, s_{i-1}: what the step reads is told by y and c. Cho et al. (2014,
    appendix) have the state after it in its place, and so has much code since.
    """

    def __init__(
        self, parts: Sequence[StepPart], input_size: int, size: int, *, dropout: float
    ) -> None:
        super().__init__(parts, size, dropout=dropout)
        self.projection = nn.Linear(input_size, 2 * size)

    def forward(self, pre_output_input: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Combine the parts and keep the larger of each pair."""
        return (
            self.projection(self.dropout(pre_output_input))
            .unflatten(-1, (self.size, 2))
            .amax(dim=-1)
        )


class ConcatPreOutput(PreOutputLayer):
    """[parts]: nothing is done to them."""

    def forward(self, pre_output_input: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Give the parts on."""
        return self.dropout(pre_output_input)


PartSizes = Mapping[StepPart, int]


class TanhPreOutputConfig(BaseConfig):
    """Combine and squash what a step tells (Luong et al. 2015)."""

    type: Literal["tanh"] = "tanh"

    def build(
        self, pre_output_parts: PreOutputParts, part_sizes: PartSizes, *, dropout: float
    ) -> PreOutputLayer:
        """Make the output for parts of these widths."""
        parts = pre_output_parts.shallow
        return TanhPreOutput(
            parts, _total_size(parts, part_sizes), part_sizes["state"], dropout=dropout
        )


class MaxoutPreOutputConfig(BaseConfig):
    """Keep the larger of each pair of sums over state, token and context (Bahdanau et al. 2015).

    Under `attend-then-step` the state is the one before the step, as in that paper; elsewhere it
    is the one after it, as in Cho et al. (2014).
    """

    type: Literal["maxout"] = "maxout"
    size: PositiveInt | None = None
    """Number of pairs; if not given, the width of a state (500 for 1,000 in the paper)."""

    def build(
        self, pre_output_parts: PreOutputParts, part_sizes: PartSizes, *, dropout: float
    ) -> PreOutputLayer:
        """Make the output for parts of these widths."""
        parts, size = pre_output_parts.deep, self.size or part_sizes["state"]
        return MaxoutPreOutput(parts, _total_size(parts, part_sizes), size, dropout=dropout)


class ConcatPreOutputConfig(BaseConfig):
    """Tell the next token from state and context as they are, side by side."""

    type: Literal["concat"] = "concat"

    def build(
        self, pre_output_parts: PreOutputParts, part_sizes: PartSizes, *, dropout: float
    ) -> PreOutputLayer:
        """Make the output for parts of these widths."""
        return ConcatPreOutput(
            pre_output_parts.shallow,
            _total_size(pre_output_parts.shallow, part_sizes),
            dropout=dropout,
        )


class StateOnlyPreOutputConfig(BaseConfig):
    """Tell the next token from the state alone (Sutskever et al. 2014; Wu et al. 2016)."""

    type: Literal["state-only"] = "state-only"

    def build(
        self, pre_output_parts: PreOutputParts, part_sizes: PartSizes, *, dropout: float
    ) -> PreOutputLayer:
        """Make the output for parts of these widths."""
        del pre_output_parts  # whatever else there is to tell from
        return ConcatPreOutput(["state"], part_sizes["state"], dropout=dropout)


PreOutputConfig = Annotated[
    TanhPreOutputConfig | MaxoutPreOutputConfig | ConcatPreOutputConfig | StateOnlyPreOutputConfig,
    Field(discriminator="type"),
]


def _total_size(parts: Sequence[StepPart], part_sizes: PartSizes) -> int:
    return sum(part_sizes[part] for part in parts)

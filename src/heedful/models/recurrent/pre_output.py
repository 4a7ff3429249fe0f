"""Pre-output layers: the features from which the output head predicts the next token.

A step leaves four vectors: the state before it, the state after it, the context and the embedding
of the token it read. A wiring says which of them are used; a pre-output layer combines them.
Invariant: the features of a step depend on that step's vectors alone, so that those of a known
target are computed at once, unless they are fed back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.shapes import Embedded, Float, Hidden

StepPart = Literal["previous_state", "state", "context", "token_embedding"]
PreOutputInput = Float[Tensor, "*B X"]
Features = Float[Tensor, "*B D"]


class StepVectors(NamedTuple):
    """The vectors of one decoder step."""

    previous_state: Hidden
    state: Hidden
    token_embedding: Embedded
    context: Float[Tensor, "B V"] | Float[Tensor, "B S V"] | None = None  # maybe per position


class PreOutputParts(NamedTuple):
    """The vectors that a wiring predicts the next token from, in the order of its paper."""

    shallow: tuple[StepPart, ...]
    deep: tuple[StepPart, ...]  # for a maxout layer, including the token embedding


class PreOutputLayer(nn.Module, ABC):
    """Features from the vectors of a step."""

    def __init__(
        self, parts: Sequence[StepPart], input_size: int, size: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.size = size
        self.dropout = nn.Dropout(dropout)

    def concat_parts(self, step_vectors: StepVectors) -> Float[Tensor, "B *S X"]:
        """Concatenate the parts; with one context per source position, at every position."""
        parts = [getattr(step_vectors, part) for part in self.parts]
        max_dim = max(part.dim() for part in parts)
        if max_dim > step_vectors.state.dim():
            num_positions = next(part.size(1) for part in parts if part.dim() == max_dim)
            parts = [
                part if part.dim() == max_dim else part[:, None].expand(-1, num_positions, -1)
                for part in parts
            ]
        return torch.cat(parts, dim=-1)

    @abstractmethod
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        """Compute features from concatenated parts."""


class TanhPreOutput(PreOutputLayer):
    """tanh(W [parts] + b)  (Luong et al. 2015, equation 5)."""

    def __init__(
        self, parts: Sequence[StepPart], input_size: int, size: int, *, dropout: float
    ) -> None:
        super().__init__(parts, input_size, size, dropout=dropout)
        self.projection = nn.Linear(input_size, size)

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        return self.projection(self.dropout(pre_output_input)).tanh()


class MaxoutPreOutput(PreOutputLayer):
    """t_j = max(t~_2j, t~_2j+1), t~ = U s + V y + C c + b  (Bahdanau et al. 2015, section A.2.2).

    U, V and C are one matrix, because the parts are concatenated. In the paper s is the state
    before the step, s_{i-1}; Cho et al. (2014, appendix) and later code use the one after it.
    """

    def __init__(
        self, parts: Sequence[StepPart], input_size: int, size: int, *, dropout: float
    ) -> None:
        super().__init__(parts, input_size, size, dropout=dropout)
        self.projection = nn.Linear(input_size, 2 * size)

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        pairs = self.projection(self.dropout(pre_output_input)).unflatten(-1, (self.size, 2))
        return pairs.amax(dim=-1)


class ConcatPreOutput(PreOutputLayer):
    """The concatenated parts, after dropout."""

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        return self.dropout(pre_output_input)


PartSizes = Mapping[StepPart, int]


class PreOutputConfigBase(BaseConfig):
    """How the vectors of a step become features."""

    module_class: ClassVar[type[PreOutputLayer]]
    type: str

    def select_parts(self, parts: PreOutputParts) -> tuple[StepPart, ...]:
        """Return the vectors that are concatenated."""
        return parts.shallow

    def feature_size(self, input_size: int, hidden_size: int) -> int:
        """Return the size of the features; `input_size` is that of the concatenated vectors."""
        return hidden_size

    def build(
        self, parts: PreOutputParts, part_sizes: PartSizes, *, dropout: float
    ) -> PreOutputLayer:
        selected = self.select_parts(parts)
        input_size = sum(part_sizes[part] for part in selected)
        size = self.feature_size(input_size, part_sizes["state"])
        return self.module_class(selected, input_size, size, dropout=dropout)


class TanhPreOutputConfig(PreOutputConfigBase):
    """A tanh layer (Luong et al. 2015)."""

    module_class = TanhPreOutput
    type: Literal["tanh"] = "tanh"


class MaxoutPreOutputConfig(PreOutputConfigBase):
    """A maxout layer over state, token embedding and context (Bahdanau et al. 2015).

    With `attend-then-step` it uses the state before the step, as in that paper; elsewhere the state
    after it, as in Cho et al. (2014).
    """

    module_class = MaxoutPreOutput
    type: Literal["maxout"] = "maxout"
    size: PositiveInt | None = None
    """Number of pairs; by default the decoder's hidden_size (500 for 1,000 in the paper)."""

    @override
    def select_parts(self, parts: PreOutputParts) -> tuple[StepPart, ...]:
        return parts.deep

    @override
    def feature_size(self, input_size: int, hidden_size: int) -> int:
        return self.size or hidden_size


class ConcatPreOutputConfig(PreOutputConfigBase):
    """State and context, concatenated."""

    module_class = ConcatPreOutput
    type: Literal["concat"] = "concat"

    @override
    def feature_size(self, input_size: int, hidden_size: int) -> int:
        return input_size


class StateOnlyPreOutputConfig(PreOutputConfigBase):
    """The state alone (Sutskever et al. 2014; Wu et al. 2016)."""

    module_class = ConcatPreOutput
    type: Literal["state-only"] = "state-only"

    @override
    def select_parts(self, parts: PreOutputParts) -> tuple[StepPart, ...]:
        return ("state",)


PreOutputConfig = Annotated[
    TanhPreOutputConfig | MaxoutPreOutputConfig | ConcatPreOutputConfig | StateOnlyPreOutputConfig,
    Field(discriminator="type"),
]

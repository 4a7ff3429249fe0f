"""Parts of a recurrent decoder: pre-output layers, and the config that builds cells and attention.

A pre-output layer maps the vectors of a step to the features that predict a token. Invariant:
features depend only on the vectors of their step (state before and after it, context, embedding of
the token), so that all features of a known target are computed at once.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoESublayer, MoESublayerConfig
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.rnn_cells import RecurrentCell
from heedful.layers.self_attention import FullSelfAttention
from heedful.layers.self_attentive_cells import LowerAttentionCell
from heedful.shapes import Float

StepPart = Literal["previous_state", "state", "context", "token_embedding"]
PartSizes = Mapping[StepPart, int]
PreOutputInput = Float[Tensor, "*B X"]
Features = Float[Tensor, "*B D"]


class StepVectors(NamedTuple):
    """The vectors of a decoder step, or of all steps."""

    previous_state: Float[Tensor, "*B D"]
    state: Float[Tensor, "*B D"]
    token_embedding: Float[Tensor, "*B E"]
    context: Float[Tensor, "*B V"] | None = None  # maybe one per source position

    @property
    def gate_inputs(self) -> Float[Tensor, "*B G"]:
        """Context, state and token embedding (See et al. 2017, equation 8)."""
        assert self.context is not None, "a gate of copying reads the context of attention"
        return torch.cat([self.context, self.state, self.token_embedding], dim=-1)


class PreOutputParts(NamedTuple):
    """The vectors that a wiring predicts the next token from, in the order of its paper."""

    shallow: tuple[StepPart, ...]
    deep: tuple[StepPart, ...]  # for a maxout layer, including the token embedding


class PreOutput(nn.Module):
    """Features from the vectors of a step: their concatenation, or a layer over it.

    tanh: tanh(W [parts] + b)  (Luong et al. 2015, equation 5)
    linear: W [parts] + b
    maxout: t_j = max(t~_2j, t~_2j+1), t~ = U s + V y + C c + b  (Bahdanau et al. 2015, A.2.2)

    U, V and C are one matrix, because the parts are concatenated. In the paper s is the state
    before the step, s_{i-1}; Cho et al. (2014, appendix) and later code use the one after it. By
    default the layer has the size of the state.
    """

    def __init__(
        self,
        parts: Sequence[StepPart],
        part_sizes: PartSizes,
        *,
        activation: Literal["tanh", "linear", "maxout"] | None = None,
        size: int | None = None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.size = input_size = sum(part_sizes[part] for part in parts)
        self.projection: nn.Module = nn.Identity()
        if activation is not None:
            self.size = size or part_sizes["state"]
            num_outputs = 2 * self.size if activation == "maxout" else self.size
            self.projection = nn.Linear(input_size, num_outputs)

    def concat_parts(self, step_vectors: StepVectors) -> Float[Tensor, "B *S X"]:
        """Concatenate the parts; with one context per source position, at each position."""
        parts = [getattr(step_vectors, part) for part in self.parts]
        max_dim = max(part.dim() for part in parts)
        if max_dim > step_vectors.state.dim():
            num_positions = next(part.size(1) for part in parts if part.dim() == max_dim)
            parts = [
                part if part.dim() == max_dim else part[:, None].expand(-1, num_positions, -1)
                for part in parts
            ]
        return torch.cat(parts, dim=-1)

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        """Compute features from concatenated parts."""
        projected: Tensor = self.projection(self.dropout(pre_output_input))
        if self.activation == "tanh":
            return projected.tanh()
        if self.activation == "maxout":
            return projected.unflatten(-1, (self.size, 2)).amax(dim=-1)
        return projected


class DeepOutput(PreOutput):
    """E y + L_h h + L_z z + b, of the size of a token embedding  (Xu et al. 2015, equation 7).

    h is the state after the step, z the context and E y the embedding of the last token. The
    authors' code takes the tanh of the sum, and drops out its input and output, as is done here.
    """

    def __init__(
        self, parts: Sequence[StepPart], part_sizes: PartSizes, *, tanh: bool, dropout: float
    ) -> None:
        size = part_sizes["token_embedding"]
        super().__init__(parts, part_sizes, dropout=dropout)
        self.projection = nn.Linear(self.size, size)
        self.parts = (*self.parts, "token_embedding")
        self.size = size
        self.activation = "tanh" if tanh else None

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        vectors, embedding = pre_output_input.tensor_split([-self.size], dim=-1)
        features: Tensor = embedding + self.projection(self.dropout(vectors))
        return self.dropout(features.tanh() if self.activation == "tanh" else features)


class SumPreOutput(PreOutput):
    """c + h, the sum of context and state  (Lu et al. 2017, equation 14)."""

    def __init__(self, parts: Sequence[StepPart], part_sizes: PartSizes, *, dropout: float) -> None:
        super().__init__(parts, part_sizes, dropout=dropout)
        self.size = part_sizes["state"]

    @override
    def forward(self, pre_output_input: PreOutputInput) -> Features:
        return self.dropout(pre_output_input.unflatten(-1, (-1, self.size)).sum(dim=-2))


class TanhPreOutputConfig(BaseConfig):
    """A tanh layer (Luong et al. 2015)."""

    type: Literal["tanh"] = "tanh"

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return PreOutput(parts.shallow, sizes, activation="tanh", dropout=dropout)


class LinearPreOutputConfig(BaseConfig):
    """A linear layer (OpenNMT-py, with `global_attention: mlp`)."""

    type: Literal["linear"] = "linear"

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return PreOutput(parts.shallow, sizes, activation="linear", dropout=dropout)


class MaxoutPreOutputConfig(BaseConfig):
    """A maxout layer over state, token embedding and context (Bahdanau et al. 2015).

    With `attend-then-step` it uses the state before the step, as in that paper; elsewhere the state
    after it, as in Cho et al. (2014).
    """

    type: Literal["maxout"] = "maxout"
    size: PositiveInt | None = None
    """Number of pairs; by default the decoder's hidden_size (500 for 1,000 in the paper)."""

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return PreOutput(parts.deep, sizes, activation="maxout", size=self.size, dropout=dropout)


class ConcatPreOutputConfig(BaseConfig):
    """State and context, concatenated."""

    type: Literal["concat"] = "concat"

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return PreOutput(parts.shallow, sizes, dropout=dropout)


class StateOnlyPreOutputConfig(BaseConfig):
    """Only the state (Sutskever et al. 2014; Wu et al. 2016)."""

    type: Literal["state-only"] = "state-only"

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return PreOutput(("state",), sizes, dropout=dropout)


class DeepOutputConfig(BaseConfig):
    """Token embedding plus projections of state and context (Xu et al. 2015, Show, attend, tell).

    The features have the size of an embedding, so they fit tied embeddings.
    """

    type: Literal["deep-output"] = "deep-output"
    tanh: bool = False
    """Take the tanh of the sum, as the authors' code does; the paper does not."""

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        return DeepOutput(_without_embedding(parts), sizes, tanh=self.tanh, dropout=dropout)


class SumPreOutputConfig(BaseConfig):
    """The sum of state and context, which have one size (Lu et al. 2017, adaptive attention)."""

    type: Literal["sum"] = "sum"

    def build(self, parts: PreOutputParts, sizes: PartSizes, dropout: float) -> PreOutput:
        names = _without_embedding(parts)
        description = ", ".join(f"{name} {sizes[name]}" for name in names)
        message = f"'sum' needs vectors of one size, but they are: {description}"
        hint = "make hidden_size the memory size, or choose 'tanh' or 'deep-output'"
        check(len({sizes[name] for name in names}) == 1, "pre_output.type", message, hint)
        return SumPreOutput(names, sizes, dropout=dropout)


def _without_embedding(parts: PreOutputParts) -> tuple[StepPart, ...]:
    return tuple(part for part in parts.shallow if part != "token_embedding")


PreOutputConfig = Annotated[
    TanhPreOutputConfig
    | LinearPreOutputConfig
    | MaxoutPreOutputConfig
    | ConcatPreOutputConfig
    | StateOnlyPreOutputConfig
    | DeepOutputConfig
    | SumPreOutputConfig,
    Field(discriminator="type"),
]


class RecurrentDecoderConfigBase(BaseConfig):
    """The parts of a recurrent decoder that its wiring assembles."""

    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a hidden state."""
    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    first_residual_layer: Annotated[int, Field(gt=1)] | None = None
    """First layer, counted from 1, with a residual connection, as have all above it (Wu et al.
    2016); null for none."""
    lower_attention: AttentionConfig | None = None
    """Attention of each layer but the first to what the layer below has passed on so far; null for
    none."""
    experts: MoESublayerConfig | None = None
    """Mixture of experts between layers; null for none. Needs a wiring in which attention does not
    wait for them, such as `bottom-layer-attention`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output head."""
    attention: AttentionConfig = AttentionConfig()
    """The attention mechanism."""
    pre_output: PreOutputConfig = TanhPreOutputConfig()
    """How state, context and token embedding become the features of the output head."""

    def input_size(self, memory_size: int) -> int:
        """Return the size of the decoder's input for a token."""
        return self.embedding_size

    def build_attention(self, memory_size: int) -> Attention:
        """Build attention with hidden states as queries."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> StackedCells:
        """Build the cells; each layer reads a context of this size besides its input."""
        message = f"there is no layer {self.first_residual_layer}: num_layers is {self.num_layers}"
        hint = "choose a layer from 2 to num_layers, or remove the setting"
        is_valid = (self.first_residual_layer or 1) <= self.num_layers
        check(is_valid, "first_residual_layer", message, hint)
        min_layers = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
        }
        for name, minimum in min_layers.items():
            message = f"needs num_layers of {minimum} or more, but num_layers is {self.num_layers}"
            hint = "add a layer, or remove the section"
            check(self.num_layers >= minimum, name, message, hint)
        cells = [self._build_cell(input_size, context_size)]
        cells += [self._build_upper_cell(context_size) for _ in range(1, self.num_layers)]
        return StackedCells(
            cells,
            self.dropout,
            first_residual_layer=self.first_residual_layer,
            experts=[self._build_experts(layer) for layer in range(1, self.num_layers + 1)],
        )

    def _build_experts(self, layer: int) -> MoESublayer | None:
        if self.experts is None:
            return None
        size, dropout = self.hidden_size, self.dropout
        return self.experts.build_after(layer, self.num_layers, size=size, dropout=dropout)

    def _build_cell(self, input_size: int, context_size: int) -> RecurrentCell:
        size = input_size + context_size
        return self.cell.build(
            input_size=size, hidden_size=self.hidden_size, context_size=context_size
        )

    def _build_upper_cell(self, context_size: int) -> RecurrentCell:
        size = self.hidden_size
        if self.lower_attention is None:
            return self._build_cell(size, context_size)
        attention = build_self_attention(self.lower_attention, size, size, "lower_attention")
        cell = self._build_cell(2 * size, context_size)
        return LowerAttentionCell(cell, FullSelfAttention(attention), size)

    def build_pre_output(self, parts: PreOutputParts, memory_size: int) -> PreOutput:
        """Build the pre-output layer for the vectors that a wiring uses."""
        sizes: PartSizes = {
            "previous_state": self.hidden_size,
            "state": self.hidden_size,
            "context": memory_size,
            "token_embedding": self.input_size(memory_size),
        }
        return self.pre_output.build(parts, sizes, self.dropout)

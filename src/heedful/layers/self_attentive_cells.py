"""Self-attentive cells: recurrent cells that attend to their own past states (Cheng et al. 2016).

The context of all past states takes the place of the last state. `LowerAttentionCell` attends to
past inputs instead, which are the outputs of the layer below. The key of a state is prepared
once, when the state is appended. Invariant: step t depends on input t and on earlier states only;
the first step, whose history is empty, uses the initial state.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.additive_scores import (
    AdditiveScore,
    AdditiveScoreConfig,
    ConcatScoreConfig,
    LinearScoreConfig,
)
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.memory import Memory
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotProductScoreConfig, ProjectedDotScoreConfig, ScoreFunction
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.layers.rnn_cells import CellWrapper, Projected, RecurrentCell, RecurrentState
from heedful.layers.self_attention import BatchPositions, FullSelfAttention
from heedful.shapes import Bool, Embedded, Float, Hidden

StateVectors = Float[Tensor, "B V"]


class StateHistory(NamedTuple):
    """All past states of a cell; each step appends one position."""

    values: Float[Tensor, "B S V"]
    keys: Float[Tensor, "B S A"]  # from ScoreFunction.prepare_keys
    mask: Bool[Tensor, "B S 1"]  # False where a row had ended before others of its batch

    @property
    def memory(self) -> Memory:
        """The history as a memory to attend to."""
        return Memory(self.values, self.keys, self.mask.mT)


class SelfAttentiveCellBase(RecurrentCell):
    """A cell with a history; its state is (hidden state, last context, *history)."""

    num_gates: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, intra_attention: "IntraAttention"
    ) -> None:
        super().__init__()
        self.intra_attention = intra_attention
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.input_to_hidden = nn.Linear(input_size, self.num_gates * hidden_size)
        self.context_to_hidden = nn.Linear(hidden_size, self.num_gates * hidden_size, bias=False)

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        context = self.initial_context(hidden)
        return (hidden, context, *self.intra_attention.initial_state(context))

    def initial_context(self, hidden: Hidden) -> StateVectors:
        """Return the context of the first step."""
        return hidden

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        # The inputs follow W x, because they may be part of the query.
        return torch.cat([self.input_to_hidden(inputs), inputs], dim=-1)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        assert hidden is state[0], "the recurrent input is the context of the history"
        _, last_context, *history_parts = state
        history = StateHistory(*history_parts)
        input_projection, plain_inputs = inputs.tensor_split([-self.input_size], dim=-1)
        context = self.intra_attention(plain_inputs, last_context, history)
        values = self.next_entry(input_projection, context)
        history = self.intra_attention.append(history, values)
        return (values[:, : self.hidden_size], context, *history)

    @abstractmethod
    def next_entry(self, input_projection: Projected, context: StateVectors) -> StateVectors:
        """Return the new entry of the history, hidden state first."""


class SelfAttentiveCell(SelfAttentiveCellBase):
    """h_t = tanh(A [x_t; c] + b), c = sum_{i<t} a_i h_i  (after Cheng et al. 2016)."""

    num_gates = 1

    @override
    def next_entry(self, input_projection: Projected, context: StateVectors) -> StateVectors:
        return (input_projection + self.context_to_hidden(context)).tanh()


class SelfAttentiveLSTMCell(SelfAttentiveCellBase):
    """LSTM with self-attention over hidden and cell states, with h_t = o * c_t.

    s_t = sum_{i<t} a_i h_i; c'_t = sum_{i<t} a_i c_i; i, f, g and o from x_t and s_t;
    c_t = f * c'_t + i * g. With initial state h, the first step has s = h and c' = 0.
    """

    num_gates = 4
    has_output_tanh: ClassVar[bool] = False

    @override
    def initial_context(self, hidden: Hidden) -> StateVectors:
        return torch.cat([hidden, torch.zeros_like(hidden)], dim=-1)

    @override
    def next_entry(
        self, input_projection: Projected, context: StateVectors, added: Hidden | float = 0.0
    ) -> StateVectors:
        hidden, cell_state = context.chunk(2, dim=-1)
        gates = input_projection + self.context_to_hidden(hidden)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        retained = forget_gate.sigmoid() * cell_state
        cell_state = added + retained + input_gate.sigmoid() * candidate.tanh()
        output = cell_state.tanh() if self.has_output_tanh else cell_state
        return torch.cat([output_gate.sigmoid() * output, cell_state], dim=-1)


class IntraAttention(nn.Module):
    """Attention of a cell to its own past states, with a score that uses no attention history.

    The query is the hidden part of the last context, with `query_uses_input` after the input.
    """

    def __init__(self, score: ScoreFunction, *, hidden_size: int, query_uses_input: bool) -> None:
        super().__init__()
        assert not score.uses_history, "intra-attention has no attention history"
        self.attention = SingleHeadAttention(
            score, SoftmaxAlignment(), WeightedSumReadout(), role="intra"
        )
        self.hidden_size = hidden_size
        self.query_uses_input = query_uses_input

    def initial_state(self, context: StateVectors) -> StateHistory:
        """Return an empty history for values of the size of this context."""
        empty = context.new_zeros(len(context), 0, context.size(-1))
        keys = self.attention.score.prepare_keys(empty[..., : self.hidden_size])
        return StateHistory(empty, keys, empty[..., :1].bool())

    @override
    def forward(
        self, inputs: Embedded, last_context: StateVectors, history: StateHistory
    ) -> StateVectors:
        """Return the context of the history, or `last_context` if the history is empty."""
        if history.values.size(1) == 0:
            return last_context
        query = last_context[:, : self.hidden_size]
        if self.query_uses_input:
            query = torch.cat([inputs, query], dim=-1)
        output = self.attention(query.unsqueeze(1), history.memory, need_weights=False)
        return output.context.squeeze(1)

    def append(self, history: StateHistory, values: StateVectors) -> StateHistory:
        """Append one position: a hidden state, followed by other values read with it."""
        new = values.unsqueeze(1)
        keys = self.attention.score.prepare_keys(new[..., : self.hidden_size])
        entry = StateHistory(new, keys, torch.ones_like(new[..., :1], dtype=torch.bool))
        return StateHistory(*(torch.cat(pair, dim=1) for pair in zip(history, entry, strict=True)))


SimilarityScoreConfig = Annotated[
    DotProductScoreConfig | LinearScoreConfig | AdditiveScoreConfig | ConcatScoreConfig,
    Field(discriminator="type"),
]


class SimilarityIntraAttentionConfig(BaseConfig):
    """Compare each past state with the last context: score(h_i, c)."""

    type: Literal["similarity"] = "similarity"
    score: SimilarityScoreConfig = ProjectedDotScoreConfig()
    """Score function between the last context and a past state."""

    @model_validator(mode="after")
    def _check_no_features(self) -> "SimilarityIntraAttentionConfig":
        if isinstance(self.score, AdditiveScoreConfig) and self.score.features:
            raise ValueError("the score of intra-attention cannot have features; remove them")
        return self

    def build(self, *, input_size: int, hidden_size: int) -> IntraAttention:
        del input_size  # not part of the query
        score = self.score.build(query_size=hidden_size, key_size=hidden_size, num_heads=None)
        return IntraAttention(score, hidden_size=hidden_size, query_uses_input=False)


class AdditiveIntraAttentionConfig(BaseConfig):
    """Query with input and last context: v . tanh(W_x x_t + W_c c + W_h h_i)."""

    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Size of the tanh layer."""

    def build(self, *, input_size: int, hidden_size: int) -> IntraAttention:
        score = AdditiveScore(input_size + hidden_size, hidden_size, hidden_size=self.hidden_size)
        return IntraAttention(score, hidden_size=hidden_size, query_uses_input=True)


_IntraAttentions = AdditiveIntraAttentionConfig | SimilarityIntraAttentionConfig
IntraAttentionConfig = Annotated[
    _IntraAttentions, Field(discriminator="type"), allow_bare_type(_IntraAttentions)
]


class LSTMNCell(SelfAttentiveLSTMCell):
    """Long short-term memory-network: h_t = o * tanh(c_t)  (Cheng et al. 2016, section 3.2).

    Scores are v . tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1}); the authors' encoder lacks the last
    term.
    """

    has_output_tanh = True


class DeepFusionLSTMNCell(LSTMNCell):
    """c_t = added_t + f * c~_t + i * g; added_t follows x_t  (Cheng et al. 2016, deep fusion)."""

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        plain_inputs, added = inputs.tensor_split([self.input_size], dim=-1)
        return torch.cat([self.input_to_hidden(plain_inputs), added, plain_inputs], dim=-1)

    @override
    def next_entry(
        self, input_projection: Projected, context: StateVectors, added: Hidden | float = 0.0
    ) -> StateVectors:
        projection, added = input_projection.tensor_split([-self.hidden_size], dim=-1)
        return super().next_entry(projection, context, added)


class LowerAttentionCell(CellWrapper):
    """h_t = cell([x_t; c_t], h_{t-1}), c_t = attend(x_t) to x_1 ... x_t, from the layer below.

    What follows the first `lower_size` inputs, x_t, goes to the cell only. The state is the cell's
    own state, then the cache of the attention.
    """

    def __init__(self, cell: RecurrentCell, attention: FullSelfAttention, lower_size: int) -> None:
        super().__init__(cell)
        self.attention = attention
        self.lower_size = lower_size

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        return (*self.cell.initial_state(hidden), self.attention.initial_state(hidden[:, None]))

    @override
    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        return inputs  # they are the query

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        assert hidden is state[0], "the recurrent input is the state of the inner cell"
        *cell_state, cache = state
        num_past = 0 if cache.kv_cache is None else cache.kv_cache.values.size(-2)
        ones = torch.ones(len(inputs), dtype=torch.long, device=inputs.device)
        lower_output = inputs[:, None, : self.lower_size]  # (B, 1, D)
        positions = BatchPositions.from_lengths(lower_output, num_past * ones, ones)
        attended = self.attention(lower_output, cache, positions)
        others = inputs[:, self.lower_size :]
        cell_inputs = torch.cat([lower_output[:, 0], attended.outputs[:, 0], others], dim=-1)
        return (*self.cell(cell_inputs, tuple(cell_state)), attended.cache)


class SelfAttentiveCellConfigBase(BaseConfig):
    """A cell that attends to its own past states."""

    module_class: ClassVar[type[SelfAttentiveCellBase]]
    type: str
    intra_attention: IntraAttentionConfig = AdditiveIntraAttentionConfig()
    """Query and score function of the attention to past states."""

    def build(self, *, input_size: int, hidden_size: int, context_size: int = 0) -> RecurrentCell:
        intra_attention = self.intra_attention.build(input_size=input_size, hidden_size=hidden_size)
        return self.module_class(input_size, hidden_size, intra_attention)


class SelfAttentiveCellConfig(SelfAttentiveCellConfigBase):
    """Replace the last state by a weighted mean of all past states (after Cheng et al. 2016)."""

    module_class = SelfAttentiveCell
    type: Literal["self-attentive-rnn"] = "self-attentive-rnn"


class SelfAttentiveLSTMCellConfig(SelfAttentiveCellConfigBase):
    """Attend to all past hidden and cell states; h = o * c."""

    module_class = SelfAttentiveLSTMCell
    type: Literal["self-attentive-lstm"] = "self-attentive-lstm"


class LSTMNCellConfig(BaseConfig):
    """Attend to all past hidden and cell states; h = o * tanh(c) (Cheng et al. 2016)."""

    type: Literal["lstmn"] = "lstmn"
    score_size: PositiveInt = 256
    """Size of the tanh layer of the additive score."""

    def build(
        self, *, input_size: int, hidden_size: int, context_size: int = 0, deep_fusion: bool = False
    ) -> LSTMNCell:
        intra_config = AdditiveIntraAttentionConfig(hidden_size=self.score_size)
        intra_attention = intra_config.build(input_size=input_size, hidden_size=hidden_size)
        cell_class = DeepFusionLSTMNCell if deep_fusion else LSTMNCell
        return cell_class(input_size, hidden_size, intra_attention)

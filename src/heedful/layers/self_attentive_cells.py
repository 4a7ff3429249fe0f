""""""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BeforeValidator, Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention import (
    AdditiveScore,
    Memory,
    ScoreFunction,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
)
from heedful.attention.additive_scores import (
    AdditiveScoreConfig,
    ConcatScoreConfig,
    LinearScoreConfig,
)
from heedful.attention.dot_product_scores import (
    BilinearScoreConfig,
    CosineScoreConfig,
    DotScoreConfig,
    ProjectedDotScoreConfig,
    ScaledDotScoreConfig,
    TrilinearScoreConfig,
)
from heedful.config import BaseConfig
from heedful.layers.rnn_cells import RecurrentCell, RecurrentState
from heedful.shapes import Bool, Float

# Tapes: how does a cell look back at its own past?
#
# A tape has a place for every step so far. A place is written when its step ends and stays as it
# is; its key is prepared then and never again, so that the work of a step grows with the length of
# the tape and not with its square. Law: what is not `seen` has no influence.


class StateHistory(NamedTuple):
    """What a cell has written so far: parts of a state, which every step makes one place longer."""

    values: Float[Tensor, "B S V"]
    keys: Float[Tensor, "B S A"]  # already passed through Score.prepare
    mask: Bool[Tensor, "B S 1"]  # False where a row had ended, and others of its batch had not

    @property
    def memory(self) -> Memory:
        """The tape as something to attend to."""
        return Memory(self.values, self.keys, self.mask.mT)


class IntraAttention(nn.Module):
    """Attention of a cell to what it has written itself.

    The hidden state that was recalled last asks; where `query_uses_input`, the input does so with it.
    Every step asks of another tape, so none has a past: the score may not look back.
    """

    def __init__(self, score: ScoreFunction, *, hidden_size: int, query_uses_input: bool) -> None:
        super().__init__()
        assert not score.uses_history, "where earlier steps looked is not known"
        self.attention = SingleHeadAttention(
            score, SoftmaxAlignment(), WeightedSumReadout(), role="intra"
        )
        self.hidden_size = hidden_size
        self.query_uses_input = query_uses_input

    def initial_state(self, context: Float[Tensor, "B V"]) -> StateHistory:
        """An empty tape for values as wide as this context."""
        empty = context.new_zeros(len(context), 0, context.size(-1))
        keys = self.attention.score.prepare_keys(empty[..., : self.hidden_size])
        return StateHistory(empty, keys, empty[..., :1].bool())

    def forward(
        self, inputs: Float[Tensor, "B E"], context: Float[Tensor, "B V"], history: StateHistory
    ) -> Float[Tensor, "B V"]:
        """Take a context from the tape.

        `context` is the last one. It stays where nothing is written yet, so that the first step
        reads what its state was begun with.
        """
        if history.values.size(1) == 0:
            return context
        last_hidden = context[:, : self.hidden_size]
        query = torch.cat([inputs, last_hidden], dim=-1) if self.query_uses_input else last_hidden
        attended = self.attention(query.unsqueeze(1), history.memory, need_weights=False)
        return attended.context.squeeze(1)

    def append(self, history: StateHistory, values: Float[Tensor, "B V"]) -> StateHistory:
        """Write one more place: a hidden state, and behind it what is taken along with it."""
        new = values.unsqueeze(1)
        keys = self.attention.score.prepare_keys(new[..., : self.hidden_size])
        entry = StateHistory(new, keys, torch.ones_like(new[..., :1], dtype=torch.bool))
        return StateHistory(*(torch.cat(pair, dim=1) for pair in zip(history, entry, strict=True)))


# How a self-attentive cell asks its past, as a configuration names it: `form: additive_score`.

SimilarityScoreConfig = Annotated[
    ProjectedDotScoreConfig
    | DotScoreConfig
    | ScaledDotScoreConfig
    | BilinearScoreConfig
    | CosineScoreConfig
    | TrilinearScoreConfig
    | LinearScoreConfig
    | AdditiveScoreConfig
    | ConcatScoreConfig,
    Field(discriminator="type"),
]


class SimilarityIntraAttentionConfig(BaseConfig):
    """Compare every past state with the last context: similarity(h_i, c)."""

    type: Literal["similarity"] = "similarity"
    score: SimilarityScoreConfig = ProjectedDotScoreConfig()
    """What similar means."""

    @model_validator(mode="after")
    def _check_no_features(self) -> SimilarityIntraAttentionConfig:
        if isinstance(self.score, AdditiveScoreConfig) and self.score.features:
            raise ValueError("the score of a cell's own past takes no features; leave them out")
        return self

    def build(self, *, input_size: int, hidden_size: int) -> IntraAttention:
        """Make the attention of a cell for inputs and states of these widths."""
        del input_size  # it does not ask
        score = self.score.build(query_size=hidden_size, key_size=hidden_size)
        return IntraAttention(score, hidden_size=hidden_size, query_uses_input=False)


class AdditiveIntraAttentionConfig(BaseConfig):
    """Let input and last context ask: v . tanh(W_x x_t + W_c c + W_h h_i)."""

    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    """Width of that tanh layer."""

    def build(self, *, input_size: int, hidden_size: int) -> IntraAttention:
        """Make the attention of a cell for inputs and states of these widths."""
        score = AdditiveScore(input_size + hidden_size, hidden_size, hidden_size=self.hidden_size)
        return IntraAttention(score, hidden_size=hidden_size, query_uses_input=True)


def type_from_name(value: Any) -> Any:
    """Take a name alone for a section with that kind."""
    return {"type": value} if isinstance(value, str) else value


_Forms = AdditiveIntraAttentionConfig | SimilarityIntraAttentionConfig
IntraAttentionConfig = Annotated[
    _Forms,
    Field(discriminator="type"),
    BeforeValidator(
        type_from_name, json_schema_input_type=Literal["additive", "similarity"] | _Forms
    ),
]


# Self-attentive cells: what if a cell recalled all its past states, and not the last alone?
#
# Such a cell writes every state on a tape. At the next step it looks back at the tape and works
# with what it finds there, where another cell works with its last state: no single vector has to
# hold all that was read. Law: what step t recalls depends on the input of step t and on what was
# written before it; begun with h, the first step recalls h, for nothing is written yet.


class SelfAttentiveCellBase(RecurrentCell):
    """A cell with a tape; its state is what it shows, what it recalled last, and the tape."""

    def __init__(
        self, intra_attention: IntraAttention, *, input_size: int, hidden_size: int, num_gates: int
    ) -> None:
        super().__init__()
        self.intra_attention = intra_attention
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.input_to_hidden = nn.Linear(input_size, num_gates * hidden_size)
        self.context_to_hidden = nn.Linear(hidden_size, num_gates * hidden_size, bias=False)

    def initial_state(self, hidden: Float[Tensor, "B D"]) -> RecurrentState:
        """Recall `mask_replace_prob` at the first step, and show it."""
        context = self.initial_context(hidden)
        return (hidden, context, *self.intra_attention.initial_state(context))

    def initial_context(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """What the first step recalls."""
        return hidden

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, and beside it x, which may ask."""
        return torch.cat([self.input_to_hidden(inputs), inputs], dim=-1)

    def step(
        self,
        projected_inputs: Float[Tensor, "B X"],
        state: RecurrentState,
        recurrent_input: Float[Tensor, "B D"] | None = None,
    ) -> RecurrentState:
        """Look back, take one more input into the state, and write it down."""
        assert recurrent_input is None, "what is recalled is taken from the tape"
        _, last, *history_parts = state
        history = StateHistory(*history_parts)
        input_projection, inputs = projected_inputs.tensor_split([-self.input_size], dim=-1)
        context = self.intra_attention(inputs, last, history)
        values = self.update(input_projection, context)
        return (
            values[:, : self.hidden_size],
            context,
            *self.intra_attention.append(history, values),
        )

    @abstractmethod
    def update(
        self, input_projection: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """What is written down of this step, the hidden state first."""


class SelfAttentiveCell(SelfAttentiveCellBase):
    """h_t = tanh(A [x_t; c] + b), c = sum_{i<t} a_i h_i  (after Cheng et al. 2016).

    c is what lectures write as c_{t-1} where a context is made after a step, from h_1 to h_t, and
    as c_t where it is made before it, from h_1 to h_{t-1}. `past` says how the weights come about.
    """

    def __init__(self, input_size: int, hidden_size: int, intra_attention: IntraAttention) -> None:
        super().__init__(
            intra_attention, input_size=input_size, hidden_size=hidden_size, num_gates=1
        )

    def update(
        self, input_projection: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state."""
        return (input_projection + self.context_to_hidden(context)).tanh()


class SelfAttentiveLSTMCell(SelfAttentiveCellBase):
    """LSTM with self-attention, as lectures have it: h_t = o * c_t.

    s_t = sum_{i<t} a_i h_i; c'_t = sum_{i<t} a_i c_i; i, f, g and o from x_t and s_t;
    c_t = f * c'_t + i * g. Begun with h, the first step has s = h and c' = 0.
    """

    def __init__(self, input_size: int, hidden_size: int, intra_attention: IntraAttention) -> None:
        super().__init__(
            intra_attention, input_size=input_size, hidden_size=hidden_size, num_gates=4
        )

    def initial_context(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """What the first step recalls: `mask_replace_prob`, and an empty memory cell."""
        return torch.cat([hidden, torch.zeros_like(hidden)], dim=-1)

    def update(
        self, input_projection: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state and the memory cell."""
        return self._lstm_update(input_projection, context)

    def _lstm_update(
        self,
        sums: Float[Tensor, "B X"],
        context: Float[Tensor, "B V"],
        added: Float[Tensor, "B D"] | float = 0.0,
    ) -> Float[Tensor, "B V"]:
        recalled, memory = context.chunk(2, dim=-1)
        input_gate, forget_gate, candidate, output_gate = (
            sums + self.context_to_hidden(recalled)
        ).chunk(4, dim=-1)
        memory = added + forget_gate.sigmoid() * memory + input_gate.sigmoid() * candidate.tanh()
        return torch.cat([output_gate.sigmoid() * self.output_activation(memory), memory], dim=-1)

    def output_activation(self, memory: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """What the output gate is laid on."""
        return memory


class LSTMNCell(SelfAttentiveLSTMCell):
    """The long short-term memory-network: h_t = o * tanh(c_t)  (Cheng et al. 2016, section 3.2).

    But for that tanh it is the LSTM with self-attention, whose weights come from
    v . tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1}). Authors' code has no last term in its encoder.
    """

    def output_activation(self, memory: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """What the output gate is laid on."""
        return memory.tanh()


class DeepFusionLSTMNCell(LSTMNCell):
    """An LSTMN that is told what to add to its memory  (Cheng et al. 2016, section 4, deep fusion).

    c_t = added_t + f * c~_t + i * g. What is added comes behind the input, as wide as the state.
    """

    def project_inputs(self, inputs: Float[Tensor, "*B E"]) -> Float[Tensor, "*B X"]:
        """W x, what is to be added, and x, which asks."""
        read, added = inputs.tensor_split([self.input_size], dim=-1)
        return torch.cat([self.input_to_hidden(read), added, read], dim=-1)

    def update(
        self, input_projection: Float[Tensor, "B X"], context: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The hidden state and the memory cell."""
        sums, added = input_projection.tensor_split([-self.hidden_size], dim=-1)
        return self._lstm_update(sums, context, added)


class SelfAttentiveCellConfig(BaseConfig):
    """Work with a mean of all past states in place of the last (after Cheng et al. 2016)."""

    type: Literal["self-attentive-rnn"] = "self-attentive-rnn"
    intra_attention: IntraAttentionConfig = AdditiveIntraAttentionConfig()
    """What asks the past, and how it is compared with each state."""

    def build(self, *, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell for inputs and states of these widths."""
        intra_attention = self.intra_attention.build(input_size=input_size, hidden_size=hidden_size)
        return SelfAttentiveCell(input_size, hidden_size, intra_attention)


class SelfAttentiveLSTMCellConfig(BaseConfig):
    """Keep all past states and memory cells; show o * c, as lectures have it."""

    type: Literal["self-attentive-lstm"] = "self-attentive-lstm"
    intra_attention: IntraAttentionConfig = AdditiveIntraAttentionConfig()
    """What asks the past, and how it is compared with each state."""

    def build(self, *, input_size: int, hidden_size: int) -> RecurrentCell:
        """Make the cell for inputs and states of these widths."""
        intra_attention = self.intra_attention.build(input_size=input_size, hidden_size=hidden_size)
        return SelfAttentiveLSTMCell(input_size, hidden_size, intra_attention)


class LSTMNCellConfig(BaseConfig):
    """Keep all past states and memory cells; show o * tanh(c) (Cheng et al. 2016)."""

    type: Literal["lstmn"] = "lstmn"
    score_size: PositiveInt = 256
    """Width of the small tanh layer that compares the past with input and last context."""

    def build(self, *, input_size: int, hidden_size: int) -> LSTMNCell:
        """Make the cell for inputs and states of these widths."""
        return LSTMNCell(
            input_size, hidden_size, self._build_intra_attention(input_size, hidden_size)
        )

    def build_deep_fusion(self, *, input_size: int, hidden_size: int) -> DeepFusionLSTMNCell:
        """Make the cell that is told what to add to its memory."""
        return DeepFusionLSTMNCell(
            input_size, hidden_size, self._build_intra_attention(input_size, hidden_size)
        )

    def _build_intra_attention(self, input_size: int, hidden_size: int) -> IntraAttention:
        form = AdditiveIntraAttentionConfig(hidden_size=self.score_size)
        return form.build(input_size=input_size, hidden_size=hidden_size)

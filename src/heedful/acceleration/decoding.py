"""Decoding steps of any model on a CPU: packed linear maps, the output head, spared copies.

torch stores a weight as (out, in); products of a few rows take up to 1.5x the time of those with a
copy stored as (in, out). A copy is stale as soon as the parameter changes, so only replacements
made for inference hold copies. Weights of a query that depend neither on earlier queries nor on its
position need no attention state, which each step would update and each reordering of a beam would
copy. Invariants: a packed map matches the linear map up to rounding; selecting rows of a tracked
state is selecting rows of each tensor in it; a wiring without state equals the plain one, bit for
bit.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.precision import Int8Linear, Int8Map
from heedful.attention.memory import Memory
from heedful.data.text.batching import SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel
from heedful.models.output_heads import CopyInputs, Features, SoftmaxHead, log_softmax
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.models.recurrent.wiring import (
    AttendThenStep,
    AttentionWiring,
    BottomLayerAttention,
    CellStates,
    StepThenAttend,
    WiringState,
)
from heedful.pytree import map_rows, tensors_of
from heedful.search import StepOutput
from heedful.shapes import Float, Int, LogProbs, SourceWeights, StepTokens, Summary, TokenIds

MapOutputs = Float[Tensor, "R N"]


def can_pack(inputs: Tensor) -> bool:
    """Whether packed maps may run: on a CPU, without gradients or autocast."""
    return (
        inputs.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


class PackedLinear:
    """A linear map, or several of the same inputs side by side, with its weight as (in, out).

    Once one number of rows has repeated often enough, the weight is also kept in MKL's layout for
    exactly this number, as torch.compile does it.
    """

    def __init__(
        self,
        weight: Float[Tensor, "D N"],
        bias: Float[Tensor, "N"] | None,
        *,
        is_int8: bool = False,
    ) -> None:
        self.weight = weight
        self.bias = bias
        self.is_int8 = is_int8
        self._int8_map: Int8Map | None = None
        self.mkl_num_rows: int | None = None
        self._mkl_weights: tuple[Tensor, Tensor] | None = None  # in MKL's layout, and as (out, in)
        self._last_num_rows = 0
        self._num_repeats = 0  # calls with this number of rows in sequence

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> Self:
        """Copy the weight of a linear map."""
        is_int8 = isinstance(linear, Int8Linear)
        return cls(linear.weight.t().contiguous(), linear.bias, is_int8=is_int8)

    @classmethod
    def concatenate(cls, linears: Sequence[Self]) -> Self:
        """Join maps of the same inputs; all have biases, or none has, and likewise int8."""
        biases = [linear.bias for linear in linears if linear.bias is not None]
        assert len(biases) in {0, len(linears)}, "some maps have a bias and some have none"
        weight = torch.cat([linear.weight for linear in linears], dim=1)
        bias = torch.cat(biases) if biases else None
        return cls(weight, bias, is_int8=linears[0].is_int8)

    def map_outputs(self, transform: Callable[[Tensor], Tensor]) -> Self:
        """Return this map followed by a linear transform of its outputs."""
        bias = None if self.bias is None else transform(self.bias)
        return type(self)(transform(self.weight), bias, is_int8=self.is_int8)

    def __call__(self, inputs: Float[Tensor, "R D"]) -> MapOutputs:
        """Return inputs @ weight + bias."""
        if (outputs := self._apply_packed(inputs)) is not None:
            return outputs
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)

    def add_to(self, sums: MapOutputs, inputs: Float[Tensor, "R D"]) -> MapOutputs:
        """Return sums + inputs @ weight + bias."""
        if (outputs := self._apply_packed(inputs)) is not None:
            return outputs.add_(sums)
        added = torch.addmm(sums, inputs, self.weight)
        return added if self.bias is None else added.add_(self.bias)

    def _apply_packed(self, inputs: Float[Tensor, "R D"]) -> MapOutputs | None:
        """Return inputs @ weight + bias in int8 or, after enough repetitions, by MKL; or None."""
        if self.is_int8:
            self._int8_map = self._int8_map or Int8Map(self.weight.t().contiguous(), self.bias)
            return self._int8_map(inputs)
        num_rows = len(inputs)
        if self.mkl_num_rows != num_rows:
            self._num_repeats = self._num_repeats + 1 if num_rows == self._last_num_rows else 1
            self._last_num_rows = num_rows
            if self._num_repeats < tuning.MIN_REPEATS or not can_use_mkl(self.weight, num_rows):
                return None
            plain = self.weight.t().contiguous()
            reordered = torch.ops.mkl._mkl_reorder_linear_weight(plain, num_rows)
            self._mkl_weights, self.mkl_num_rows = (reordered, plain), num_rows
        assert self._mkl_weights is not None
        outputs: Tensor = torch.ops.mkl._mkl_linear(inputs, *self._mkl_weights, self.bias, num_rows)
        return outputs


def can_use_mkl(weight: Float[Tensor, "D N"], num_rows: int) -> bool:
    """Whether MKL is available and has a faster layout for this number of rows."""
    return (
        tuning.MIN_PACKED_ROWS <= num_rows <= tuning.MAX_PACKED_ROWS // 2
        and weight.dtype == torch.float32
        and torch.backends.mkl.is_available()
        and hasattr(torch.ops.mkl, "_mkl_linear")
    )


def activate_inplace(activation: nn.Module, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Apply an activation to a tensor that nothing else holds, in place where that is possible."""
    activated: Tensor = hidden.relu_() if type(activation) is nn.ReLU else activation(hidden)
    return activated


class PackedSoftmaxHead(SoftmaxHead):
    """log softmax(W f + b) with W packed for few rows, normalized in place."""

    _packed: PackedLinear | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy packs its own parameters; MKL's layout cannot be pickled.
        return {key: value for key, value in vars(self).items() if key != "_packed"}

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        is_single_step = features.dim() == 3 and features.size(1) == 1
        if (
            not is_single_step
            or self.training
            or not can_pack(features)
            or self.projection._forward_hooks
        ):
            return super().forward(features, weights)
        is_packed = tuning.MIN_PACKED_ROWS <= len(features) <= tuning.MAX_PACKED_ROWS
        if is_packed and not isinstance(self.projection, Int8Linear):
            self._packed = self._packed or PackedLinear.from_linear(self.projection)
            logits = self._packed(features.squeeze(1)).unsqueeze(1)
        else:
            logits = self.projection(features)
        if logits.dtype == torch.bfloat16:
            return log_softmax(logits)
        return torch.log_softmax(logits, dim=-1, out=logits)


class TrackedState(NamedTuple):
    """A decoding state that spares the copies that a reordered beam does not need.

    A tensor that each step so far has passed on unchanged is what the source gave: it is the same
    for all hypotheses of a sentence. As long as each row continues a hypothesis of its own
    sentence, such a tensor is not copied; if each row continues itself, nothing is.
    """

    state: Any
    unchanged: tuple[Tensor, ...]  # what no step has changed
    sentence_ids: Int[Tensor, "R"]

    @classmethod
    def from_initial(cls, state: Any) -> Self:
        """Track an initial state, which has one row for each sentence."""
        tensors = tuple(tensors_of(state))
        return cls(state, tensors, torch.arange(len(tensors[0])))

    def advance(self, state: Any) -> Self:
        """Return the state after a step."""
        current = {id(tensor) for tensor in tensors_of(state)}
        unchanged = tuple(tensor for tensor in self.unchanged if id(tensor) in current)
        return self._replace(state=state, unchanged=unchanged)

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> Self:
        """Select rows, copying only what differs between the old rows and the new ones."""
        row_ids = torch.arange(len(self.sentence_ids))
        if torch.equal(transform(row_ids), row_ids):
            return self
        sentence_ids = transform(self.sentence_ids)
        has_same_sentences = torch.equal(sentence_ids, self.sentence_ids)
        unchanged_ids = {id(tensor) for tensor in self.unchanged}
        unchanged: list[Tensor] = []

        def select(tensor: Tensor) -> Tensor:
            is_unchanged = id(tensor) in unchanged_ids
            selected = tensor if is_unchanged and has_same_sentences else transform(tensor)
            if is_unchanged:
                unchanged.append(selected)
            return selected

        state = map_rows(select, self.state)
        return type(self)(state, tuple(unchanged), sentence_ids)


class TrackedSteps:
    """Mixin of models that decode with tracked states."""

    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        """Run a step of the plain model; scheduled sampling passes plain states."""
        step: Callable[..., StepOutput[Any]] = super().step  # type: ignore[misc]
        if not isinstance(state, TrackedState):
            return step(tokens, state)
        output = step(tokens, state.state)
        return StepOutput(output.log_probs, state.advance(output.state), output.weights)


class TrackedEncoderDecoderModel(TrackedSteps, EncoderDecoderModel):
    """An encoder-decoder with tracked decoding states."""

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return TrackedState.from_initial(super().initial_state(sources))


class TrackedPrefixLanguageModel(TrackedSteps, PrefixLanguageModel):
    """A prefix language model with tracked decoding states."""

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return TrackedState.from_initial(super().initial_state(sources))


class TrackedLanguageModel(TrackedSteps, LanguageModel):
    """A language model with tracked states after a prompt."""

    @override
    def encode_prompt(self, tokens: TokenIds) -> Any:
        return TrackedState.from_initial(super().encode_prompt(tokens))


def needs_no_state(wiring: AttentionWiring) -> bool:
    """Whether the weights of a step depend only on its query."""
    return not wiring.attention.needs_positions


class StatelessAttention(AttentionWiring):
    """Mixin of wirings that carry no attention state, unless a hook may read it."""

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        state = super().initial_state(cells, memory, summary)
        attention = self.attention
        if attention._forward_hooks or attention._forward_pre_hooks:
            return state  # a trace tells its steps apart by their states
        return state._replace(attention_state=None)


class StatelessAttendThenStep(StatelessAttention, AttendThenStep):
    """Attend, then step."""


class StatelessStepThenAttend(StatelessAttention, StepThenAttend):
    """Step, then attend."""


class StatelessBottomLayerAttention(StatelessAttention, BottomLayerAttention):
    """Attend with the bottom layer."""


STATELESS_WIRINGS = (
    (AttendThenStep, StatelessAttendThenStep),
    (StepThenAttend, StatelessStepThenAttend),
    (BottomLayerAttention, StatelessBottomLayerAttention),
)

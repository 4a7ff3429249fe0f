"""Decoding states on a CPU without copies that nothing reads.

Weights of a query that depend neither on earlier queries nor on its position need no attention
state, which each step would update and each reordering of a beam would copy. Invariants: selecting
rows of a tracked state is selecting rows of each tensor in it; a wiring without state equals the
plain one, bit for bit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.attention.memory import Memory
from heedful.data.text.batching import SourceBatch
from heedful.layers.self_attention import KVCache
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.models.recurrent.wiring import (
    AttendThenStep,
    AttentionWiring,
    BottomLayerAttention,
    CellStates,
    StepThenAttend,
    WiringState,
)
from heedful.pytree import map_pairs, map_rows, tensors_of
from heedful.search import StepOutput
from heedful.shapes import Int, Lengths, StepTokens, Summary, TokenIds


class GrowingCache(KVCache):
    """A cache that may own a buffer of which it is the start, with spare positions behind it.

    Appending passes the buffer on to the longer cache, so that nothing is written twice. A cache
    that was appended to before, or whose rows were selected, owns none: it is copied.
    """

    buffers: KVCache | None = None

    def append(self, new: KVCache) -> Self:
        """Return the cache with new positions behind it."""
        size, new_size = self.values.size(-2), self.values.size(-2) + new.values.size(-2)
        buffers, self.buffers = self.buffers, None
        if buffers is None:
            buffers = map_pairs(lambda *parts: torch.cat(parts, dim=-2), KVCache(*self), new)
        else:
            if buffers.values.size(-2) < new_size:
                growth = max(tuning.CACHE_GROWTH_FACTOR * (new_size - size), size // 2)
                buffers = KVCache(*(pad(part, (0, 0, 0, growth)) for part in self))
                if new_size - size > tuning.MAX_ROWS_OF_PLAIN_KEYS:
                    buffers = buffers._replace(keys=buffers.keys.mT.contiguous().mT)
            for buffer, added in zip(buffers, new, strict=True):
                buffer[..., size:new_size, :] = added
        grown = type(self)(*(buffer[..., :new_size, :] for buffer in buffers))
        grown.buffers = buffers
        return grown


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
    def encode_prompt(self, tokens: TokenIds, lengths: Lengths | None = None) -> Any:
        return TrackedState.from_initial(super().encode_prompt(tokens, lengths))


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

"""Models whose decoding states spare the copies that a reordered beam does not need.

A tensor that every step so far has passed on unchanged is what the source gave: it is the same for
all hypotheses of a sentence. As long as every row continues a hypothesis of its own sentence, such
a tensor is not copied; if every row continues itself, nothing is.

Invariant: selecting rows of a tracked state is selecting rows of every tensor in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from heedful.data.batching import SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.pytree import map_rows, tensors_of
from heedful.search.protocol import StepOutput
from heedful.shapes import Int


class TrackedState(NamedTuple):
    """A state of a model, with the tensors that no step has changed."""

    state: Any
    unchanged: tuple[Tensor, ...]
    sentence_ids: Int[Tensor, "R"]

    @classmethod
    def from_initial(cls, state: Any) -> TrackedState:
        """Track an initial state, which has one row for each sentence."""
        tensors = tuple(tensors_of(state))
        return cls(state, tensors, torch.arange(len(tensors[0])))

    def advance(self, state: Any) -> TrackedState:
        """Return the state after a step."""
        current = {id(tensor) for tensor in tensors_of(state)}
        unchanged = tuple(tensor for tensor in self.unchanged if id(tensor) in current)
        return self._replace(state=state, unchanged=unchanged)

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> TrackedState:
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

        return TrackedState(map_rows(select, self.state), tuple(unchanged), sentence_ids)


def tracked_step(
    step: Callable[[Tensor, Any], StepOutput[Any]], tokens: Int[Tensor, "B"], state: Any
) -> StepOutput[Any]:
    """Run a step of the plain model on a tracked state, or on a plain one (scheduled sampling)."""
    if not isinstance(state, TrackedState):
        return step(tokens, state)
    output = step(tokens, state.state)
    return StepOutput(output.log_probs, state.advance(output.state), output.weights)


class TrackedEncoderDecoderModel(EncoderDecoderModel):
    """An encoder-decoder with tracked decoding states."""

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return TrackedState.from_initial(super().initial_state(sources))

    @override
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        return tracked_step(super().step, tokens, state)


class TrackedPrefixLanguageModel(PrefixLanguageModel):
    """A prefix language model with tracked decoding states."""

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return TrackedState.from_initial(super().initial_state(sources))

    @override
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        return tracked_step(super().step, tokens, state)


class TrackedLanguageModel(LanguageModel):
    """A language model with tracked states after a prompt."""

    @override
    def encode_prompt(self, tokens: Int[Tensor, "B T"]) -> Any:
        return TrackedState.from_initial(super().encode_prompt(tokens))

    @override
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        return tracked_step(super().step, tokens, state)

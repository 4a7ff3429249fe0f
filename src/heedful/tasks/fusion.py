"""Fusion: what would a model say that also knows how texts of its language run?

A language model, trained on its own, reads along with what is written and has a say in what comes
next. Law: with weight 0 it has none, and all is as the model has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from heedful.data.collate import Sources
from heedful.errors import ConfigError
from heedful.search import Step
from heedful.shapes import Int
from heedful.tasks.decodable import Decodable
from heedful.tasks.language_model import Bounded, BoundedState, LanguageModel
from heedful.text.vocabulary import BOS, EOS


class FusedState(NamedTuple):
    """What the model carries on, and what its language model does."""

    model: Any
    language: BoundedState


class Fused(Decodable):
    """log p(y | x) + weight * log p_LM(y), at every step (Gulcehre et al. 2015, section 4.1).

    Outputs are lines to the language model: they begin on a new line, and their end is a line's.
    It looks back over `context` tokens, as it learned to. What is said is no distribution: it
    sums to less than one. But it is never above zero, and that is all a search asks of it.
    """

    def __init__(
        self, model: Decodable, language_model: LanguageModel, *, weight: float, context: int
    ) -> None:
        assert weight >= 0, f"a language model does not speak against itself: {weight}"
        self.model = model
        self.language_model = Bounded(language_model, context)
        self.weight = weight

    def start(self, sources: Sources) -> FusedState:
        """Read sources; of the output nothing has been read yet."""
        nothing = sources.tokens[:, :0]
        return FusedState(self.model.start(sources), self.language_model.start(nothing))

    def step(self, tokens: Int[Tensor, "B"], state: FusedState) -> Step[FusedState]:
        """Let both read one token; add up what they say is next."""
        step = self.model.step(tokens, state.model)
        # Running text has no begin symbol: a line begins where the one before it has ended.
        language = self.language_model.step(tokens.masked_fill(tokens == BOS, EOS), state.language)
        _require_one_vocabulary(step.log_probs.size(1), language.log_probs.size(1))
        log_probs = step.log_probs + self.weight * language.log_probs.to(step.log_probs)
        return Step(log_probs, FusedState(step.state, language.state), step.weights)


def _require_one_vocabulary(model: int, language: int) -> None:
    if model != language:
        raise ConfigError(
            "language_model",
            f"it knows {language} tokens, but the model it is fused with knows {model}",
            "train it on target texts with the tokenizer of the model",
        )

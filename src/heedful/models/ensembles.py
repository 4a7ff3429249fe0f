"""Ensembles: what do several models say together?

The members may be as unlike as they please, as long as they share their vocabularies: each goes on
by its own state, and only what they say of the next token is put together, and where they look.
Laws: an ensemble of one is that member; the order of members does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.data.batching import SourceBatch
from heedful.errors import ConfigError
from heedful.models.base import DecodableModel
from heedful.models.language_model import BoundedContextModel, BoundedContextState, LanguageModel
from heedful.search import StepOutput
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import BOS, EOS

EnsembleAveraging = Literal["log-probabilities", "probabilities"]


class Ensemble(DecodableModel):
    """The average of what its members say.

    Of `log-probabilities`: log p = mean_k log p_k - log Z, where Z makes it sum to one; a token
    that one member rules out is ruled out. Of `probabilities`: log p = log mean_k p_k; one member
    that finds a token likely is enough. Where the ensemble looks is the mean over those members
    that look anywhere.
    """

    def __init__(self, members: Sequence[DecodableModel], averaging: EnsembleAveraging) -> None:
        assert members, "an ensemble has members"
        self.members = tuple(members)
        self.averaging = averaging

    def initial_state(self, sources: SourceBatch) -> tuple[Any, ...]:
        """Let every member read the sources."""
        return tuple(member.initial_state(sources) for member in self.members)

    def step(self, tokens: Int[Tensor, "B"], state: tuple[Any, ...]) -> StepOutput[tuple[Any, ...]]:
        """Let every member read one token; average what they say is next."""
        steps = [member.step(tokens, own) for member, own in zip(self.members, state, strict=True)]
        said = _stack_log_probs([step.log_probs for step in steps])
        return StepOutput(
            average_log_probs(said, self.averaging),
            tuple(step.state for step in steps),
            average_weights([step.weights for step in steps]),
        )


def average_log_probs(
    member_log_probs: Float[Tensor, "members B N"], averaging: EnsembleAveraging
) -> Float[Tensor, "B N"]:
    """Average what members say, by logarithms or as probabilities."""
    if averaging == "probabilities":
        return member_log_probs.logsumexp(dim=0) - math.log(len(member_log_probs))
    return member_log_probs.mean(dim=0).log_softmax(dim=-1)


def average_weights(member_weights: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "B S"]:
    """Average where members look, row by row over those that look; nowhere, if none does.

    Members may see sources of unlike widths: what is past the end of one is hidden from it.
    """
    width = max(weights.size(1) for weights in member_weights)
    seen = torch.stack(
        [pad(_upcast(weights), (0, width - weights.size(1))) for weights in member_weights]
    )
    num_attending = (seen.sum(dim=-1, keepdim=True) > 0).sum(dim=0).clamp(min=1)  # (B, 1)
    return seen.sum(dim=0) / num_attending


def _stack_log_probs(
    member_log_probs: Sequence[Float[Tensor, "B _"]],
) -> Float[Tensor, "members B N"]:
    sizes = sorted({each.size(1) for each in member_log_probs})
    if len(sizes) > 1:
        raise ConfigError(
            "ensemble",
            f"its members know unlike numbers of tokens: {', '.join(map(str, sizes))}",
            "put together models that were trained with the same vocabularies",
        )
    return torch.stack([_upcast(each) for each in member_log_probs])


def _upcast(numbers: Float[Tensor, "B _"]) -> Float[Tensor, "B _"]:
    """Members may compute in half precision, each in another; they meet in single at least."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))


# Fusion: what would a model say that also knows how texts of its language run?
#
# A language model, trained on its own, reads along with what is written and has a say in what comes
# next. Law: with weight 0 it has none, and all is as the model has it.


class ShallowFusionState(NamedTuple):
    """What the model carries on, and what its language model does."""

    model_state: Any
    language_model_state: BoundedContextState


class ShallowFusion(DecodableModel):
    """log p(y | x) + weight * log p_LM(y), at every step (Gulcehre et al. 2015, section 4.1).

    Outputs are lines to the language model: they begin on a new line, and their end is a line's.
    It looks back over `context` tokens, as it learned to. What is said is no distribution: it
    sums to less than one. But it is never above zero, and that is all a search asks of it.
    """

    def __init__(
        self,
        model: DecodableModel,
        language_model: LanguageModel,
        *,
        weight: float,
        context_length: int,
    ) -> None:
        assert weight >= 0, f"a language model does not speak against itself: {weight}"
        self.model = model
        self.language_model = BoundedContextModel(language_model, context_length)
        self.weight = weight

    def initial_state(self, sources: SourceBatch) -> ShallowFusionState:
        """Read sources; of the output nothing has been read yet."""
        nothing = sources.tokens[:, :0]
        return ShallowFusionState(
            self.model.initial_state(sources), self.language_model.encode_prompt(nothing)
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: ShallowFusionState
    ) -> StepOutput[ShallowFusionState]:
        """Let both read one token; add up what they say is next."""
        step = self.model.step(tokens, state.model_state)
        # Running text has no begin symbol: a line begins where the one before it has ended.
        language = self.language_model.step(
            tokens.masked_fill(tokens == BOS, EOS), state.language_model_state
        )
        _check_same_vocabulary(step.log_probs.size(1), language.log_probs.size(1))
        log_probs = step.log_probs + self.weight * language.log_probs.to(step.log_probs)
        return StepOutput(log_probs, ShallowFusionState(step.state, language.state), step.weights)


def _check_same_vocabulary(model: int, language: int) -> None:
    if model != language:
        raise ConfigError(
            "language_model",
            f"it knows {language} tokens, but the model it is fused with knows {model}",
            "train it on target texts with the tokenizer of the model",
        )

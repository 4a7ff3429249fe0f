"""Ensembles of models, and shallow fusion of a model with a language model.

Members share their vocabularies; their predictions and attention weights are averaged. Invariants:
an ensemble of one is its member; the order of members does not matter; shallow fusion with weight 0
is the model without fusion.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.data.text.batching import SourceBatch
from heedful.errors import check
from heedful.models.base import DecodableModel
from heedful.models.language_model import BoundedContextModel, BoundedContextState, LanguageModel
from heedful.search import StepOutput
from heedful.shapes import Float, StepTokens
from heedful.tokenization.vocabulary import BOS, EOS, UNK

EnsembleAveraging = Literal["log-probabilities", "probabilities"]


class Ensemble(DecodableModel):
    """The average of the predictions of its members.

    `log-probabilities`: log p = mean_k log p_k - log Z, where Z normalizes; a token that one member
    excludes is excluded. `probabilities`: log p = log mean_k p_k. The weights are averaged over the
    members that attend.
    """

    def __init__(self, members: Sequence[DecodableModel], averaging: EnsembleAveraging) -> None:
        assert members, "an ensemble has members"
        self.members = tuple(members)
        self.averaging = averaging

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of all members."""
        members: Sequence[Any] = self.members
        return chain.from_iterable(member.parameters() for member in members)

    @override
    def initial_state(self, sources: SourceBatch) -> tuple[Any, ...]:
        return tuple(member.initial_state(sources) for member in self.members)

    @override
    def step(self, tokens: StepTokens, state: tuple[Any, ...]) -> StepOutput[tuple[Any, ...]]:
        members = zip(self.members, state, strict=True)
        steps = [member.step(tokens, member_state) for member, member_state in members]
        vocab_sizes = sorted({step.log_probs.size(1) for step in steps})
        message = f"members have different vocabulary sizes: {', '.join(map(str, vocab_sizes))}"
        hint = "use models that were trained with the same vocabularies"
        check(len(vocab_sizes) == 1, "ensemble", message, hint)
        log_probs = torch.stack([_upcast(step.log_probs) for step in steps])
        return StepOutput(
            average_log_probs(log_probs, self.averaging),
            tuple(step.state for step in steps),
            average_weights([step.weights for step in steps]),
        )


def average_log_probs(
    member_log_probs: Float[Tensor, "members B N"], averaging: EnsembleAveraging
) -> Float[Tensor, "B N"]:
    """Average predictions as log-probabilities or as probabilities."""
    if averaging == "probabilities":
        return member_log_probs.logsumexp(dim=0) - math.log(len(member_log_probs))
    return member_log_probs.mean(dim=0).log_softmax(dim=-1)


def average_weights(member_weights: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "B S"]:
    """Average attention weights, in each row over the members that attend; zeros if none does.

    Members may have sources of different lengths: shorter ones are padded.
    """
    source_length = max(weights.size(1) for weights in member_weights)
    stacked = torch.stack(
        [pad(_upcast(weights), (0, source_length - weights.size(1))) for weights in member_weights]
    )
    num_attending = (stacked.sum(dim=-1, keepdim=True) > 0).sum(dim=0).clamp(min=1)  # (B, 1)
    return stacked.sum(dim=0) / num_attending


def _upcast(values: Float[Tensor, "B _"]) -> Float[Tensor, "B _"]:
    """Convert to at least float32: members may compute in different half precisions."""
    return values.to(torch.promote_types(values.dtype, torch.float))


class ShallowFusionState(NamedTuple):
    """States of the model and of its language model."""

    model_state: Any
    language_model_state: BoundedContextState


class ShallowFusion(DecodableModel):
    """log p(y | x) + weight * log p_LM(y), at each step (Gulcehre et al. 2015, section 4.1).

    To the language model an output is a line of text; it sees `context_length` tokens, as in its
    training. The result is not normalized: it sums to less than one, and no log-probability is
    above zero, which is all that search needs. With `copies_source` the model may predict copied
    words that are not in the vocabulary; to the language model they are unknown.
    """

    def __init__(
        self,
        model: DecodableModel,
        lm: LanguageModel,
        *,
        weight: float,
        context_length: int,
        copies_source: bool = False,
    ) -> None:
        assert weight >= 0, f"the weight of a language model is negative: {weight}"
        self.model = model
        self.language_model = BoundedContextModel(lm, context_length)
        self.weight = weight
        self.copies_source = copies_source
        self.vocab_size = lm.lm_head.out_features

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of both models."""
        model: Any = self.model
        return chain(model.parameters(), self.language_model.model.parameters())

    @override
    def initial_state(self, sources: SourceBatch) -> ShallowFusionState:
        lm_state = self.language_model.encode_prompt(
            sources.lengths[:, None][:, :0]
        )  # an empty prompt
        return ShallowFusionState(self.model.initial_state(sources), lm_state)

    @override
    def step(self, tokens: StepTokens, state: ShallowFusionState) -> StepOutput[ShallowFusionState]:
        step = self.model.step(tokens, state.model_state)
        # Running text has no BOS: a line begins where the one before it has ended.
        lm_tokens = tokens.masked_fill(tokens == BOS, EOS)
        lm_tokens = lm_tokens.masked_fill(tokens >= self.vocab_size, UNK)
        lm_step = self.language_model.step(lm_tokens, state.language_model_state)
        lm_log_probs = lm_step.log_probs.to(step.log_probs)
        if self.copies_source:
            num_copied = step.log_probs.size(1) - self.vocab_size
            unknown = lm_log_probs[:, UNK : UNK + 1].expand(-1, num_copied)
            lm_log_probs = torch.cat([lm_log_probs, unknown], dim=1)
        vocab_size, lm_vocab_size = step.log_probs.size(1), lm_log_probs.size(1)
        message = f"the language model has {lm_vocab_size} tokens, but the model has {vocab_size}"
        hint = "train it on target texts with the tokenizer of the model"
        check(vocab_size == lm_vocab_size, "shallow_fusion", message, hint)
        log_probs = step.log_probs + self.weight * lm_log_probs
        return StepOutput(log_probs, ShallowFusionState(step.state, lm_step.state), step.weights)


def ensemble_members(model: DecodableModel) -> Sequence[DecodableModel]:
    """Return the members of an ensemble, or the model alone; without a language model."""
    base = model.model if isinstance(model, ShallowFusion) else model
    return base.members if isinstance(base, Ensemble) else [base]


def replace_members(model: DecodableModel, members: Sequence[DecodableModel]) -> DecodableModel:
    """Return a model with other `ensemble_members`, joined in the same way."""
    if isinstance(model, ShallowFusion):
        fusion = copy.copy(model)
        fusion.model = replace_members(model.model, members)
        return fusion
    return Ensemble(members, model.averaging) if isinstance(model, Ensemble) else members[0]

"""Distributions over the tags of a sentence: independent tags, and a linear-chain CRF.

Inference is exact and in log space: forward-backward for probabilities, Viterbi for the best tags.
Invariants: results equal an enumeration of all tag sequences; padding has no influence; with
zero transitions the tags are independent; a sentence without words has log-likelihood 0.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import ModuleConfig
from heedful.config.base import allow_bare_type
from heedful.markov.chain import LinearChain
from heedful.shapes import Float, Int, TargetMask

Emissions = Float[Tensor, "B T N"]
"""A score of each tag for each word."""
Tags = Int[Tensor, "B T"]
"""Indices of tags; of any value in padding."""
FORBIDDEN = -1e4
"""Score of a forbidden transition. Finite, so that a sentence without a valid tag sequence has the
one with the fewest forbidden transitions."""


class Transitions(NamedTuple):
    """Scores of tags that follow one another, of first tags and of last tags."""

    between: Float[Tensor, "N N"]  # from row to column
    start: Float[Tensor, "N"]
    end: Float[Tensor, "N"]


class TagHead(nn.Module, ABC):
    """p(tags | words) of a sentence, from a score of each tag for each word."""

    @abstractmethod
    def transition_scores(self, emissions: Emissions) -> Transitions:
        """Return the scores of transitions, as tensors like `emissions`."""

    def log_likelihood(
        self, emissions: Emissions, tags: Tags, mask: TargetMask
    ) -> Float[Tensor, "B"]:
        """Return log p(tags | words) of each sentence; 0 without words."""
        chain = self._chain(emissions, mask)
        tags = tags.masked_fill(~mask, 0)
        scores = chain.emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1)  # (B, T)
        steps = chain.transitions[0, tags[:, :-1], tags[:, 1:]]
        scores = scores + torch.cat([chain.initial[tags[:, :1]], steps], dim=1)
        total = scores.masked_fill(~mask, 0).sum(dim=1) - chain.log_partition()
        return total.masked_fill(~mask[:, 0], 0)

    def log_marginals(self, emissions: Emissions, mask: TargetMask) -> Emissions:
        """Return the log-probability of each tag of each word; zeros in padding."""
        chain = self._chain(emissions, mask)
        forward, log_norms = chain.forward()
        return (forward + chain.backward(log_norms)).masked_fill(~mask.unsqueeze(-1), 0)

    def decode(
        self, emissions: Emissions, mask: TargetMask, penalties: Transitions | None = None
    ) -> Tags:
        """Return the most probable tags of each sentence; `penalties` are added to transitions."""
        return self._chain(emissions, mask, penalties).viterbi().states

    def _chain(
        self, emissions: Emissions, mask: TargetMask, penalties: Transitions | None = None
    ) -> LinearChain:
        """Return the scores of tag sequences; the score of ending is added to the last emission."""
        emissions = _upcast(emissions)
        transitions = self.transition_scores(emissions)
        if penalties is not None:
            sums = zip(transitions, penalties, strict=True)
            transitions = Transitions(*(one + other for one, other in sums))
        between, start, end = transitions
        lengths = mask.sum(dim=1)
        positions = torch.arange(mask.size(1), device=mask.device)
        is_last = positions == lengths[:, None] - 1
        emissions = emissions + is_last.unsqueeze(-1) * end
        return LinearChain(start, between.unsqueeze(0), emissions, lengths.clamp(min=1))


class SoftmaxTagHead(TagHead):
    """p(y | x) = prod_t p(y_t | x): the tags are independent, given the words.

    That is a chain with zero transitions; only penalties need its recursions.
    """

    @override
    def transition_scores(self, emissions: Emissions) -> Transitions:
        zeros = emissions.new_zeros(emissions.size(-1))
        return Transitions(zeros.expand(len(zeros), -1), zeros, zeros)

    @override
    def log_likelihood(
        self, emissions: Emissions, tags: Tags, mask: TargetMask
    ) -> Float[Tensor, "B"]:
        tags = tags.masked_fill(~mask, 0)
        return self.log_marginals(emissions, mask).gather(-1, tags.unsqueeze(-1)).sum(dim=(1, 2))

    @override
    def log_marginals(self, emissions: Emissions, mask: TargetMask) -> Emissions:
        return _upcast(emissions).log_softmax(dim=-1).masked_fill(~mask.unsqueeze(-1), 0)

    @override
    def decode(
        self, emissions: Emissions, mask: TargetMask, penalties: Transitions | None = None
    ) -> Tags:
        if penalties is not None:
            return super().decode(emissions, mask, penalties)
        return emissions.argmax(dim=-1)


class LinearChainCRF(TagHead):
    """p(y | x) = exp(sum_t s_t(y_t) + A(y_(t-1), y_t)) / Z, with learned scores A.

    (Lafferty et al. 2001; Lample et al. 2016, section 2.2.) First and last tags also have scores.
    Transitions start at zero, where the tags are independent.
    """

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))

    @override
    def transition_scores(self, emissions: Emissions) -> Transitions:
        parts = (self.transitions, self.start, self.end)
        return Transitions(*(part.to(emissions.dtype) for part in parts))


def _upcast(emissions: Emissions) -> Emissions:
    """Convert to at least float32: sums over a sentence need more than half precision."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


class SoftmaxTagHeadConfig(ModuleConfig):
    """Tags that are independent, given the words."""

    module_class = SoftmaxTagHead
    type: Literal["softmax"] = "softmax"


class LinearChainCRFConfig(ModuleConfig):
    """A linear-chain conditional random field (Lafferty et al. 2001)."""

    module_class = LinearChainCRF
    type: Literal["crf"] = "crf"


_Heads = SoftmaxTagHeadConfig | LinearChainCRFConfig
TagHeadConfig = Annotated[_Heads, Field(discriminator="type"), allow_bare_type(_Heads)]

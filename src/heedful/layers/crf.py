"""Distributions over the tags of a sentence: independent tags, and a linear-chain CRF.

Inference is exact and in log space: forward-backward for probabilities, Viterbi for the best tags.
Invariants: results equal those of enumerating all tag sequences; padding has no influence; with
zero transitions the tags are independent.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
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


class Chain(NamedTuple):
    """All scores of a batch of sentences: score(y) = start[y_1] + sum_t s_t[y_t] + ... + end[y_n].

    The dots stand for the sum over t > 1 of between[y_(t-1), y_t].
    """

    emissions: Emissions
    transitions: Transitions
    mask: TargetMask  # real words; they come first

    def forward_scores(self) -> Emissions:
        """Return log sum exp score(y_1 .. y_t) over prefixes that end in each tag (alpha)."""
        emissions, (between, start, _), mask = self
        alphas = [start + emissions[:, 0]]
        for step in range(1, emissions.size(1)):
            reached = (alphas[-1].unsqueeze(2) + between).logsumexp(dim=1) + emissions[:, step]
            alphas.append(torch.where(mask[:, step, None], reached, alphas[-1]))
        return torch.stack(alphas, dim=1)

    def backward_scores(self) -> Emissions:
        """Return log sum exp score(y_(t+1) .. y_n) over suffixes that follow each tag (beta)."""
        emissions, (between, _, end), mask = self
        betas = [end.expand_as(emissions[:, 0])]
        for step in range(emissions.size(1) - 1, 0, -1):
            following = (emissions[:, step] + betas[-1]).unsqueeze(1)
            left = (between + following).logsumexp(dim=2)
            betas.append(torch.where(mask[:, step, None], left, betas[-1]))
        return torch.stack(betas[::-1], dim=1)

    def log_partition(self) -> Float[Tensor, "B"]:
        """Return log Z, the log sum exp of the scores of all tag sequences; 0 without words."""
        total = (self.forward_scores()[:, -1] + self.transitions.end).logsumexp(dim=-1)
        return total.masked_fill(~self.mask[:, 0], 0)

    def score(self, tags: Tags) -> Float[Tensor, "B"]:
        """Return the score of these tags."""
        emissions, (between, start, end), mask = self
        tags = tags.masked_fill(~mask, 0)
        scores = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1)
        scores = torch.cat([scores[:, :1] + start[tags[:, :1]], scores[:, 1:]], dim=1)
        scores[:, 1:] += between[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
        return scores.masked_fill(~mask, 0).sum(dim=1) + end[last] * mask[:, 0]

    def log_marginals(self) -> Emissions:
        """Return log p(y_t | x) of each tag, by forward-backward; zeros in padding."""
        joint = self.forward_scores() + self.backward_scores()
        return joint.log_softmax(dim=-1).masked_fill(~self.mask.unsqueeze(-1), 0)

    def best_tags(self) -> Tags:
        """Return the tags with the highest score (Viterbi 1967)."""
        emissions, (between, start, end), mask = self
        best, unchanged = start + emissions[:, 0], torch.arange(len(start), device=mask.device)
        pointers = []
        for step in range(1, emissions.size(1)):
            reached = (best.unsqueeze(2) + between).max(dim=1)
            is_real = mask[:, step, None]
            best = torch.where(is_real, reached.values + emissions[:, step], best)
            pointers.append(torch.where(is_real, reached.indices, unchanged))
        tags = [(best + end).argmax(dim=-1, keepdim=True)]
        for previous in reversed(pointers):
            tags.append(previous.gather(1, tags[-1]))
        return torch.cat(tags[::-1], dim=1)


class TagHead(nn.Module, ABC):
    """p(tags | words) of a sentence, from a score of each tag for each word."""

    @abstractmethod
    def chain(self, emissions: Emissions, mask: TargetMask) -> Chain:
        """Return all scores, in at least float32."""

    def log_likelihood(
        self, emissions: Emissions, tags: Tags, mask: TargetMask
    ) -> Float[Tensor, "B"]:
        """Return log p(tags | words) of each sentence; 0 without words."""
        chain = self.chain(emissions, mask)
        return chain.score(tags) - chain.log_partition()

    def log_marginals(self, emissions: Emissions, mask: TargetMask) -> Emissions:
        """Return the log-probability of each tag of each word; zeros in padding."""
        return self.chain(emissions, mask).log_marginals()

    def decode(
        self, emissions: Emissions, mask: TargetMask, penalties: Transitions | None = None
    ) -> Tags:
        """Return the most probable tags of each sentence; `penalties` are added to transitions."""
        chain = self.chain(emissions, mask)
        if penalties is not None:
            sums = zip(chain.transitions, penalties, strict=True)
            chain = chain._replace(transitions=Transitions(*(one + other for one, other in sums)))
        return chain.best_tags()


class SoftmaxTagHead(TagHead):
    """p(y | x) = prod_t p(y_t | x): the tags are independent, given the words.

    Its chain has zero transitions, so that all inference is that of a CRF, and as fast as a softmax
    where it can be.
    """

    @override
    def chain(self, emissions: Emissions, mask: TargetMask) -> Chain:
        emissions = _upcast(emissions)
        zeros = emissions.new_zeros(emissions.size(-1))
        return Chain(emissions, Transitions(zeros.expand(len(zeros), -1), zeros, zeros), mask)

    @override
    def log_likelihood(
        self, emissions: Emissions, tags: Tags, mask: TargetMask
    ) -> Float[Tensor, "B"]:
        log_probs = _upcast(emissions).log_softmax(dim=-1)
        chosen = log_probs.gather(-1, tags.masked_fill(~mask, 0).unsqueeze(-1)).squeeze(-1)
        return chosen.masked_fill(~mask, 0).sum(dim=1)

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
    """p(y | x) = exp(score(y)) / Z, with a learned score for each pair of neighboring tags.

    (Lafferty et al. 2001; Lample et al. 2016, section 2.2.) First and last tags have scores, too.
    Transitions start at zero, where the tags are independent.
    """

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))

    @override
    def chain(self, emissions: Emissions, mask: TargetMask) -> Chain:
        emissions = _upcast(emissions)
        parts = (part.to(emissions.dtype) for part in (self.transitions, self.start, self.end))
        return Chain(emissions, Transitions(*parts), mask)


def _upcast(emissions: Emissions) -> Emissions:
    """Convert to at least float32: sums over a sentence need more than half precision."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


class SoftmaxTagHeadConfig(BaseConfig):
    """Tags that are independent, given the words."""

    type: Literal["softmax"] = "softmax"

    def build(self, *, num_labels: int) -> TagHead:
        return SoftmaxTagHead()


class LinearChainCRFConfig(BaseConfig):
    """A linear-chain conditional random field (Lafferty et al. 2001)."""

    type: Literal["crf"] = "crf"

    def build(self, *, num_labels: int) -> TagHead:
        return LinearChainCRF(num_labels)


_Heads = SoftmaxTagHeadConfig | LinearChainCRFConfig
TagHeadConfig = Annotated[
    _Heads, Field(discriminator="type"), allow_bare_type(Literal["softmax", "crf"] | _Heads)
]

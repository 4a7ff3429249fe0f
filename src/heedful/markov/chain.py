"""Exact inference in linear chains, in log space and batched: forward, backward, Viterbi.

A chain scores every path of states: score(q_1 .. q_T) = initial(q_1) + emission_1(q_1) + sum over
t > 1 of transition(q_t-1, q_t) + emission_t(q_t). With log-probabilities that is a hidden Markov
model; with any other scores, a linear-chain CRF. Invariant: results equal those of enumerating all
paths, whatever the padding contains; a score of -inf excludes a path and has finite gradients.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Bool, Float, Int


class ForwardOutput(NamedTuple):
    """Forward scores of prefixes; in an HMM, filtered posteriors and one-step predictions."""

    scores: Float[Tensor, "B T N"]  # log p(q_t | o_1 .. o_t); padding repeats the last position
    log_norms: Float[Tensor, "B T"]  # log p(o_t | o_1 .. o_t-1); 0 in padding


class ViterbiOutput(NamedTuple):
    """The best path of each row and its score."""

    states: Int[Tensor, "B T"]  # 0 in padding
    scores: Float[Tensor, "B"]


class ChainPosteriors(NamedTuple):
    """Expectations over a path drawn with probability exp(score - log_partition).

    Zeros where no path is possible, and in padding.
    """

    marginals: Float[Tensor, "B T N"]  # p(q_t = j)
    transition_counts: Float[Tensor, "B N N"]  # number of steps from i to j
    log_partition: Float[Tensor, "B"]


class LinearChain(NamedTuple):
    """The scores of a batch of chains with N states."""

    initial: Float[Tensor, "N"]
    transitions: Float[Tensor, "#B N N"]  # from a row to a column
    emissions: Float[Tensor, "B T N"]  # anything in padding
    lengths: Int[Tensor, "B"]  # 1 to T

    @property
    def mask(self) -> Bool[Tensor, "B T"]:
        """True for real positions, False for padding."""
        return length_mask(self.lengths, self.emissions.size(1))

    def forward(self) -> ForwardOutput:
        """Run the forward recursion, normalized at each position.

        alpha_t(j) = emission_t(j) + logsumexp over i of alpha_t-1(i) + transition(i, j), minus its
        logsumexp over j, so that float32 is exact enough for long sequences.
        """
        columns = self._masked_emissions().unbind(dim=1)
        score, log_norm = _normalize(self.initial + columns[0])
        scores, log_norms = [score], [log_norm]
        for is_real, emission in zip(self._real_columns(), columns[1:], strict=True):
            pairs = score.unsqueeze(-1) + self.transitions  # (B, N, N)
            normalized, log_norm = _normalize(log_sum_exp(pairs, -2) + emission)
            score = torch.where(is_real, normalized, score)
            scores.append(score)
            log_norms.append(log_norm.masked_fill(~is_real.squeeze(-1), 0))
        return ForwardOutput(torch.stack(scores, dim=1), torch.stack(log_norms, dim=1))

    def backward(self, log_norms: Float[Tensor, "B T"]) -> Float[Tensor, "B T N"]:
        """Run the backward recursion with the normalizers of `forward`.

        beta_t(i) = logsumexp over j of transition(i, j) + emission_t+1(j) + beta_t+1(j), minus
        log_norms_t+1; 0 at the last position and in padding. exp(alpha_t + beta_t) is p(q_t).
        """
        columns = (self._masked_emissions() - _finite(log_norms).unsqueeze(-1)).unbind(dim=1)
        scores = [torch.zeros_like(columns[0])]
        for is_real, emission in reversed([*zip(self._real_columns(), columns[1:], strict=True)]):
            pairs = self.transitions + (emission + scores[-1]).unsqueeze(-2)  # (B, N, N)
            scores.append(torch.where(is_real, log_sum_exp(pairs, -1), scores[-1]))
        return torch.stack(scores[::-1], dim=1)

    def log_partition(self) -> Float[Tensor, "B"]:
        """Return the log of the sum over all paths; in an HMM, the log-likelihood."""
        return self.forward().log_norms.sum(dim=1)

    def posteriors(self) -> ChainPosteriors:
        """Return the distribution of states and transitions over all paths, by both recursions."""
        forward, log_norms = self.forward()
        backward = self.backward(log_norms)
        following = self._masked_emissions() + backward - _finite(log_norms).unsqueeze(-1)
        counts = torch.zeros_like(self.transitions + forward[:, :1])  # (B, N, N)
        for index, is_real in enumerate(self._real_columns()):
            pairs = forward[:, index, :, None] + self.transitions + following[:, index + 1, None, :]
            counts = counts + pairs.exp() * is_real.unsqueeze(-1)
        marginals = (forward + backward).exp().masked_fill(~self.mask.unsqueeze(-1), 0)
        return ChainPosteriors(marginals, counts, log_norms.sum(dim=1))

    def viterbi(self) -> ViterbiOutput:
        """Return the best path: the recursion of `forward` with max for logsumexp."""
        columns = self._masked_emissions().unbind(dim=1)
        scores = self.initial + columns[0]  # (B, N)
        same_state = torch.arange(scores.size(-1), device=scores.device).expand_as(scores)
        pointers = []
        for is_real, emission in zip(self._real_columns(), columns[1:], strict=True):
            best, previous = (scores.unsqueeze(-1) + self.transitions).max(dim=-2)
            scores = torch.where(is_real, best + emission, scores)
            pointers.append(torch.where(is_real, previous, same_state))
        best_scores, last = scores.max(dim=-1)
        path = [last]
        for previous in reversed(pointers):
            path.append(previous.gather(-1, path[-1].unsqueeze(-1)).squeeze(-1))
        return ViterbiOutput(torch.stack(path[::-1], dim=1) * self.mask, best_scores)

    def _masked_emissions(self) -> Float[Tensor, "B T N"]:
        return self.emissions.masked_fill(~self.mask.unsqueeze(-1), 0)

    def _real_columns(self) -> tuple[Bool[Tensor, "B 1"], ...]:
        """Return, for the second and each later position, which rows are not padding there."""
        return self.mask.unsqueeze(-1).unbind(dim=1)[1:]


def length_mask(lengths: Int[Tensor, "B"], size: int) -> Bool[Tensor, "B T"]:
    """Return True for real positions, False for padding."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)


def _normalize(scores: Float[Tensor, "B N"]) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"]]:
    log_norms = log_sum_exp(scores, -1)
    return scores - _finite(log_norms).unsqueeze(-1), log_norms


def _finite(log_norms: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Replace -inf, the normalizer of no path, by 0: subtracted from -inf it would give NaN."""
    return log_norms.masked_fill(log_norms == -torch.inf, 0)


def log_sum_exp(scores: Tensor, dim: int) -> Tensor:
    """torch.logsumexp with zero gradients, not NaN, where all scores are -inf."""
    is_impossible = (scores == -torch.inf).all(dim=dim, keepdim=True)
    sums = scores.masked_fill(is_impossible, 0).logsumexp(dim=dim)
    return sums.masked_fill(is_impossible.squeeze(dim), -torch.inf)

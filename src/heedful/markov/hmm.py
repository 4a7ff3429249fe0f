"""Hidden Markov models: likelihood, posteriors, Viterbi, sampling and EM, exact and batched.

p(o, q) = p(q_1) p(o_1 | q_1) prod over t > 1 of p(q_t | q_t-1) p(o_t | q_t)  (Rabiner 1989). Rows
are padded to one length. Invariants: everything equals enumeration of all paths; the gradient of
the log-likelihood with respect to a log-probability is its posterior count; EM never lowers the
likelihood.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ArgumentError, check
from heedful.markov.chain import LinearChain, ViterbiOutput, length_mask
from heedful.markov.emissions import (
    Emission,
    Generator,
    Observations,
    sample_rows,
    set_from_counts,
    to_logits,
)
from heedful.shapes import Float, Int

MaybeLengths = Int[Tensor, "B"] | None
"""None means that no row has padding."""


class HMMSample(NamedTuple):
    """Hidden states and their emissions."""

    states: Int[Tensor, "B T"]
    observations: Observations


class HiddenMarkovModel(nn.Module):
    """A hidden Markov model with N states.

    Probabilities are normalized, as in `torch.distributions.Categorical`: `torch.rand` gives a
    random model. Parameters are logits, so `log_likelihood` can also be maximized by gradients; a
    probability of 0 stays 0.
    """

    def __init__(
        self,
        initial_probs: Float[Tensor, "N"],
        transition_probs: Float[Tensor, "N N"],
        emission: Emission,
    ) -> None:
        super().__init__()
        self.num_states = emission.num_states
        sizes = {*initial_probs.shape, *transition_probs.shape, self.num_states}
        message = f"{tuple(initial_probs.shape)} initial and {tuple(transition_probs.shape)} "
        message += f"transition probabilities, but emissions of {self.num_states} states"
        hint = f"give ({self.num_states},) and ({self.num_states}, {self.num_states})"
        is_square = initial_probs.dim() == 1 and transition_probs.dim() == 2
        check(is_square and len(sizes) == 1, "hmm", message, hint, ArgumentError)
        self.initial_logits = nn.Parameter(to_logits(initial_probs, "initial_probs"))
        self.transition_logits = nn.Parameter(to_logits(transition_probs, "transition_probs"))
        self.emission = emission

    def chain(self, observations: Observations, lengths: MaybeLengths = None) -> LinearChain:
        """Return the chain whose path scores are log p(o, q)."""
        num_rows, size = observations.shape[:2]
        if lengths is None:
            lengths = torch.full((num_rows,), size, device=observations.device)
        is_possible = bool((lengths >= 1).all() and (lengths <= size).all())
        message = f"must be from 1 to {size}, but are {lengths.tolist()}"
        check(is_possible, "lengths", message, "leave empty sequences out", ArgumentError)
        self.emission.check_observations(observations, length_mask(lengths, size))
        return LinearChain(
            self.initial_logits.log_softmax(dim=-1),
            self.transition_logits.log_softmax(dim=-1).unsqueeze(0),
            self.emission.log_probs(observations),
            lengths,
        )

    def log_likelihood(
        self, observations: Observations, lengths: MaybeLengths = None
    ) -> Float[Tensor, "B"]:
        """Return log p(o_1 .. o_T); -inf if the model excludes it."""
        return self.chain(observations, lengths).log_partition()

    def filtered_posteriors(
        self, observations: Observations, lengths: MaybeLengths = None
    ) -> Float[Tensor, "B T N"]:
        """Return p(q_t | o_1 .. o_t), the normalized forward scores; zeros in padding."""
        chain = self.chain(observations, lengths)
        forward = chain.forward()
        _check_possible(forward.log_norms.sum(dim=1))
        return forward.scores.exp().masked_fill(~chain.mask.unsqueeze(-1), 0)

    def smoothed_posteriors(
        self, observations: Observations, lengths: MaybeLengths = None
    ) -> Float[Tensor, "B T N"]:
        """Return p(q_t | o_1 .. o_T), by forward and backward; zeros in padding."""
        posteriors = self.chain(observations, lengths).posteriors()
        _check_possible(posteriors.log_partition)
        return posteriors.marginals

    def viterbi(self, observations: Observations, lengths: MaybeLengths = None) -> ViterbiOutput:
        """Return the most probable path given all observations, and log p(o, q) of it."""
        return self.chain(observations, lengths).viterbi()

    @torch.no_grad()
    def sample(self, num_sequences: int, length: int, generator: Generator = None) -> HMMSample:
        """Draw states and observations."""
        first = torch.zeros(num_sequences, dtype=torch.long, device=self.initial_logits.device)
        states = [sample_rows(self.initial_logits.unsqueeze(0), first, generator)]
        for _ in range(length - 1):
            states.append(sample_rows(self.transition_logits, states[-1], generator))
        stacked = torch.stack(states, dim=1)
        return HMMSample(stacked, self.emission.sample(stacked, generator))


@torch.no_grad()
def baum_welch(
    hmm: HiddenMarkovModel,
    observations: Observations,
    lengths: MaybeLengths = None,
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-6,
) -> list[float]:
    """Fit a model by EM, in place; return the log-likelihood before each iteration and at the end.

    Stops when an iteration gains less than `tolerance` per observation. EM finds a local maximum:
    start from several random models and keep the best. States that are equal stay equal.
    """
    log_likelihoods: list[float] = []
    gain = math.inf
    while True:
        chain = hmm.chain(observations, lengths)
        posteriors = chain.posteriors()
        _check_possible(posteriors.log_partition)
        log_likelihoods.append(posteriors.log_partition.sum().item())
        if len(log_likelihoods) > 1:
            gain = log_likelihoods[-1] - log_likelihoods[-2]
        if gain < tolerance * int(chain.lengths.sum()) or len(log_likelihoods) > max_iterations:
            return log_likelihoods
        set_from_counts(hmm.initial_logits, posteriors.marginals[:, 0].sum(dim=0))
        set_from_counts(hmm.transition_logits, posteriors.transition_counts.sum(dim=0))
        hmm.emission.maximize(observations, posteriors.marginals)


def _check_possible(log_likelihoods: Float[Tensor, "B"]) -> None:
    impossible = (log_likelihoods == -torch.inf).nonzero().flatten().tolist()
    message = f"row {impossible[0]} has probability 0" if impossible else ""
    hint = "leave it out, or give the model no probability of 0 that excludes it"
    check(not impossible, "observations", message, hint, ArgumentError)

"""Baselines: what reward is expected before a place is chosen?

A choice is good or bad by what it brought beyond that. Whatever is expected must not depend on
the choice itself: then it changes how much the gradients of REINFORCE scatter, not their mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from heedful.attention.alignments import (
    AlignmentFunction,
    SoftAlignment,
    SoftAlignmentConfig,
    SoftmaxAlignmentConfig,
)
from heedful.attention.auxiliary_losses import entropy
from heedful.attention.outputs import AlignmentLossInputs, AlignmentOutput, AttentionState
from heedful.config import BaseConfig
from heedful.shapes import Bool, Float, Int


class Baseline(nn.Module, ABC):
    """What reward is expected before a place is chosen."""

    @abstractmethod
    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect a reward for each choice, from the query that it was made for.

        Of the choices only their shape and kind of number are used.
        """

    @abstractmethod
    def update(
        self,
        rewards: Float[Tensor, "*B T"],
        predicted: Float[Tensor, "*B T"],
        target_mask: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Take in the rewards that came; say, by name, what is added to the loss."""


class ZeroBaseline(Baseline):
    """b = 0: a choice is as good as its reward."""

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect nothing."""
        return torch.zeros_like(log_probs)

    def update(
        self,
        rewards: Float[Tensor, "*B T"],
        predicted: Float[Tensor, "*B T"],
        target_mask: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Learn nothing."""
        return {}


class MovingAverageBaseline(Baseline):
    """b_k = momentum b_{k-1} + (1 - momentum) mean reward of batch k, b_0 = 0.

    (Xu et al. 2015, section 4.1; momentum 0.9 there.) The mean is over all choices made for real
    targets. It is saved with the weights, so that training goes on from it.
    """

    running_mean: Float[Tensor, ""]

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        assert 0 <= momentum < 1, momentum
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(()))

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect of every choice what the last ones brought."""
        # A sum, not a view: what was expected stays when the value moves on.
        return torch.zeros_like(log_probs) + self.running_mean.to(log_probs.dtype)

    def update(
        self,
        rewards: Float[Tensor, "*B T"],
        predicted: Float[Tensor, "*B T"],
        target_mask: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Move towards the mean reward, in training only; nothing is added to the loss."""
        if self.training:
            # No question is put to a GPU: a batch without real targets moves nothing.
            mean = rewards.masked_fill(~target_mask, 0).sum() / target_mask.sum().clamp(min=1)
            step_size = (1 - self.momentum) * target_mask.any()
            self.running_mean.lerp_(
                mean.to(self.running_mean.dtype), step_size.to(self.running_mean.dtype)
            )
        return {}


class LearnedBaseline(Baseline):
    """b_t = w . q_t + c, by regression on the rewards  (Mnih et al. 2014).

    The query is taken as it is: what the baseline learns does not reach the model.
    """

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, 1)

    def forward(
        self, log_probs: Float[Tensor, "*B T"], queries: Float[Tensor, "*B T Q"] | None = None
    ) -> Float[Tensor, "*B T"]:
        """Expect what the query promises."""
        assert queries is not None, "a learned baseline is read from the query"
        return self.projection(queries.detach()).squeeze(-1)

    def update(
        self,
        rewards: Float[Tensor, "*B T"],
        predicted: Float[Tensor, "*B T"],
        target_mask: Bool[Tensor, "*B T"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Half the squared distance from the rewards."""
        squared_error = (rewards - predicted).square().masked_fill(~target_mask, 0)
        return {"baseline": squared_error.sum() / 2}


# Hard alignments: at which one place does attention look?
#
# Each wraps an alignment that shares attention, and takes its shares for the probabilities of the
# places. When a model is used, all look at the likeliest place. They differ in how it is trained:
# not at all, by reward, or by a gradient that stands in for the one that a choice does not have.
# Hidden places are never chosen, and where nothing is visible nothing is.

CreditAssignment = Literal["sentence", "future"]


class ArgmaxAlignment(AlignmentFunction):
    """One at the likeliest place, zero elsewhere; no gradient reaches the scores."""

    def __init__(self, inner: SoftAlignment) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Look at the likeliest place."""
        probabilities = self.inner.normalize(scores, mask)
        return AlignmentOutput(_one_hot(_argmax(probabilities), probabilities), probabilities)


class SampledAlignment(AlignmentFunction):
    """s ~ probabilities, learned by reward  (Xu et al. 2015, section 4.1).

    gradient = d log p(y|s) + reward_scale (reward - baseline) d log p(s) + entropy_bonus d H[s]

    With probability `soft_probability`, drawn once per source, a row uses the probabilities themselves.
    The reward of a choice is the log-likelihood of the whole sentence, as in the paper, or of its
    own target and those after it: of the ones before it is no cause, so that scatters less. The
    constants are those of the authors' code.
    """

    def __init__(
        self,
        inner: SoftAlignment,
        baseline: Baseline,
        *,
        soft_probability: float = 0.5,
        reward_scale: float = 0.1,
        entropy_bonus: float = 0.002,
        credit: CreditAssignment = "sentence",
    ) -> None:
        super().__init__()
        self.inner = inner
        self.baseline = baseline
        self.soft_probability = soft_probability
        self.reward_scale = reward_scale
        self.entropy_bonus = entropy_bonus
        self.credit = credit

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Draw a place for each query; when not training, take the likeliest."""
        probabilities = self.inner.normalize(scores, mask)
        if not self.training:
            return AlignmentOutput(_one_hot(_argmax(probabilities), probabilities), probabilities)
        uniform_sample = (
            torch.rand(scores.shape[:-2], device=scores.device)
            if state is None
            else state.uniform_sample
        )
        is_soft = (uniform_sample < self.soft_probability).unsqueeze(-1)  # (*B, 1)
        places = _sample(probabilities)
        drawn = _one_hot(places, probabilities)
        weights = torch.where(is_soft.unsqueeze(-1), probabilities, drawn)
        chosen = probabilities.gather(-1, places).squeeze(-1)  # (*B, T)
        log_probs = chosen.masked_fill(is_soft | (chosen == 0), 1).log()
        return AlignmentOutput(weights, probabilities, log_probs, self.baseline(log_probs, queries))

    def compute_auxiliary_losses(
        self, loss_inputs: AlignmentLossInputs
    ) -> dict[str, Float[Tensor, ""]]:
        """Give the terms whose gradient is that of the expected reward; none if none was drawn."""
        _, probabilities, log_probs, expected, *_ = loss_inputs.alignment
        if probabilities is None or log_probs is None or expected is None:
            return {}
        rewards = self._rewards(loss_inputs)
        weighted_log_probs = (rewards - expected).detach() * log_probs
        entropies = entropy(probabilities)
        return {
            "reinforce": -self.reward_scale
            * weighted_log_probs.masked_fill(~loss_inputs.target_mask, 0).sum(),
            "entropy-bonus": -self.entropy_bonus
            * entropies.masked_fill(~loss_inputs.target_mask, 0).sum(),
            **self.baseline.update(rewards, expected, loss_inputs.target_mask),
        }

    def _rewards(self, loss_inputs: AlignmentLossInputs) -> Float[Tensor, "*B T"]:
        rewards = loss_inputs.log_likelihoods.detach().masked_fill(~loss_inputs.target_mask, 0)
        if self.credit == "sentence":
            return rewards.sum(dim=-1, keepdim=True).expand_as(rewards)
        return rewards.flip(-1).cumsum(dim=-1).flip(-1)


class StraightThroughAlignment(AlignmentFunction):
    """One at a single place in value, the probabilities in gradient  (Bengio et al. 2013).

    In training the place is drawn or, if `sample_in_training` is False, the likeliest as in use.
    """

    def __init__(self, inner: SoftAlignment, *, sample_in_training: bool = True) -> None:
        super().__init__()
        self.inner = inner
        self.sample_in_training = sample_in_training

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Look at one place for each query."""
        probabilities = self.inner.normalize(scores, mask)
        choose = _sample if self.training and self.sample_in_training else _argmax
        hard = _one_hot(choose(probabilities), probabilities)
        return AlignmentOutput(_straight_through(hard, probabilities), probabilities)


class GumbelSoftmaxAlignment(AlignmentFunction):
    """softmax((log probabilities + g) / temperature), g = -log(-log(uniform)).

    (Jang et al. 2017, equation 2; Maddison et al. 2017.) The largest of these weights lies at a
    place drawn from the probabilities; the lower the temperature, the nearer they come to it
    alone. With `straight_through` they are that place in value and themselves in gradient.
    """

    def __init__(
        self, inner: SoftAlignment, *, temperature: float = 1.0, straight_through: bool = False
    ) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.inner = inner
        self.temperature = temperature
        self.straight_through = straight_through

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Relax a draw for each query; when not training, take the likeliest place."""
        probabilities = self.inner.normalize(scores, mask)
        if not self.training:
            return AlignmentOutput(_one_hot(_argmax(probabilities), probabilities), probabilities)
        noisy = _add_gumbel_noise(probabilities, self.temperature).softmax(dim=-1)
        relaxed = noisy.to(scores.dtype) * mask
        if self.straight_through:
            relaxed = _straight_through(_one_hot(_argmax(relaxed), relaxed), relaxed)
        return AlignmentOutput(relaxed, probabilities)


def _argmax(probabilities: Float[Tensor, "*B T S"]) -> Int[Tensor, "*B T 1"]:
    return probabilities.argmax(dim=-1, keepdim=True)


def _sample(probabilities: Float[Tensor, "*B T S"]) -> Int[Tensor, "*B T 1"]:
    """Draw by the largest of the perturbed: torch.multinomial refuses rows of zeros and NaN."""
    return _argmax(_add_gumbel_noise(probabilities.detach()))


def _add_gumbel_noise(
    probabilities: Float[Tensor, "*B T S"], temperature: float = 1.0
) -> Float[Tensor, "*B T S"]:
    """(log p + g) / temperature; the least number there is where p is zero."""
    # In half precision too many sums would be equal, and the first of equals would win.
    wide = probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))
    is_never = wide == 0
    noise = -torch.empty_like(wide).exponential_().log()
    noisy = (wide.masked_fill(is_never, 1).log() + noise) / temperature
    return noisy.masked_fill(is_never, torch.finfo(wide.dtype).min)


def _one_hot(
    places: Int[Tensor, "*B T 1"], probabilities: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    shares = probabilities.detach()
    chosen = shares.gather(-1, places)
    ones = chosen.masked_fill(chosen > 0, 1)  # zero where nothing is visible; NaN stays NaN
    return torch.zeros_like(shares).scatter(-1, places, ones)


def _straight_through(
    hard: Float[Tensor, "*B T S"], soft: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    """Take the value of one and the gradient of the other."""
    return hard + (soft - soft.detach())


# The alignments that look at one place, as a configuration names them.


class ZeroBaselineConfig(BaseConfig):
    """Expect no reward."""

    type: Literal["zero"] = "zero"

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return ZeroBaseline()


class MovingAverageBaselineConfig(BaseConfig):
    """Expect what the last choices brought (Xu et al. 2015)."""

    type: Literal["moving-average"] = "moving-average"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of what was expected stays with each batch."""

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return MovingAverageBaseline(self.momentum)


class LearnedBaselineConfig(BaseConfig):
    """Read from the query what reward to expect (Mnih et al. 2014)."""

    type: Literal["learned"] = "learned"

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return LearnedBaseline(query_size)


BaselineConfig = Annotated[
    ZeroBaselineConfig | MovingAverageBaselineConfig | LearnedBaselineConfig,
    Field(discriminator="type"),
]


class ArgmaxAlignmentConfig(BaseConfig):
    """Look at the likeliest place; the scores learn from penalties alone."""

    type: Literal["argmax"] = "argmax"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""

    def build(self, *, query_size: int) -> AlignmentFunction:
        """Make the alignment."""
        return ArgmaxAlignment(self.inner.build(query_size=query_size))


class SampledAlignmentConfig(BaseConfig):
    """Draw the place and learn from what came of it (Xu et al. 2015)."""

    type: Literal["sampled"] = "sampled"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    baseline: BaselineConfig = MovingAverageBaselineConfig()
    """What reward is expected before a place is drawn."""
    credit: CreditAssignment = "sentence"
    """Whether a choice is rewarded for the whole sentence, or for its own target and later ones."""
    soft_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the sources for which nothing is drawn and the probabilities are the weights."""
    reward_scale: PositiveFloat = 0.1
    """What rewards are multiplied by."""
    entropy_bonus: NonNegativeFloat = 0.002
    """What the entropy of the probabilities is multiplied by, to keep them from settling early."""

    def build(self, *, query_size: int) -> AlignmentFunction:
        """Make the alignment."""
        return SampledAlignment(
            self.inner.build(query_size=query_size),
            self.baseline.build(query_size=query_size),
            soft_probability=self.soft_probability,
            reward_scale=self.reward_scale,
            entropy_bonus=self.entropy_bonus,
            credit=self.credit,
        )


class StraightThroughAlignmentConfig(BaseConfig):
    """Look at one place, and learn as if all had been looked at (Bengio et al. 2013)."""

    type: Literal["straight-through"] = "straight-through"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    sample_in_training: bool = True
    """Whether the place is drawn in training; if not, it is the likeliest, as in use."""

    def build(self, *, query_size: int) -> AlignmentFunction:
        """Make the alignment."""
        return StraightThroughAlignment(
            self.inner.build(query_size=query_size), sample_in_training=self.sample_in_training
        )


class GumbelSoftmaxAlignmentConfig(BaseConfig):
    """Learn from draws that are softened (Jang et al. 2017, Maddison et al. 2017)."""

    type: Literal["gumbel-softmax"] = "gumbel-softmax"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    temperature: PositiveFloat = 1.0
    """How soft: the lower, the nearer the weights come to a single place."""
    straight_through: bool = False
    """Whether the weights are that single place in value, and the soft ones only in gradient."""

    def build(self, *, query_size: int) -> AlignmentFunction:
        """Make the alignment."""
        return GumbelSoftmaxAlignment(
            self.inner.build(query_size=query_size),
            temperature=self.temperature,
            straight_through=self.straight_through,
        )


HardAlignmentConfig = Annotated[
    ArgmaxAlignmentConfig
    | SampledAlignmentConfig
    | StraightThroughAlignmentConfig
    | GumbelSoftmaxAlignmentConfig,
    Field(discriminator="type"),
]

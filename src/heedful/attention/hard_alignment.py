"""Hard attention: each query attends to a single source position.

Each class takes the weights of a soft alignment as probabilities. At inference all use the most
probable position. In training they differ: no gradient (argmax), REINFORCE (sampled), or a
surrogate gradient (straight-through, Gumbel-softmax). Masked positions are never chosen; a fully
masked row stays zero.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentLossInputs,
    AlignmentOutput,
    InferenceBehavior,
    SoftAlignment,
    SoftAlignmentConfig,
    SoftmaxAlignmentConfig,
    mask_scores,
    upcast,
)
from heedful.attention.auxiliary_losses import entropy
from heedful.attention.memory import AttentionState
from heedful.config import ModuleConfig
from heedful.shapes import Int, Losses, Mask, PerQuery, Queries, Scalar, Scores, TargetMask, Weights

CreditAssignment = Literal["sentence", "future"]
PositionIds = Int[Tensor, "*B T 1"]


class ArgmaxAlignment(AlignmentFunction):
    """One at the most probable position, without gradient: hard alignment at inference."""

    def __init__(self, inner: SoftAlignment) -> None:
        super().__init__()
        self.inner = inner

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        probabilities = self.inner.normalize(scores, mask)
        return AlignmentOutput(_one_hot(_argmax(probabilities), probabilities), probabilities)


class ArgmaxAlignmentConfig(ModuleConfig):
    """The most probable position; only auxiliary losses train the scores."""

    module_class = ArgmaxAlignment
    type: Literal["argmax"] = "argmax"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""


class Baseline(nn.Module):
    """Expected reward of a sampled position; here b = 0.

    Independent of the sample, it reduces the variance of REINFORCE gradients and not their mean.
    """

    def forward(self, log_probs: PerQuery, queries: Queries | None = None) -> PerQuery:
        """Return the expected reward of each query, in shape and dtype of `log_probs`."""
        return torch.zeros_like(log_probs)

    def update(self, rewards: PerQuery, predicted: PerQuery, target_mask: TargetMask) -> Losses:
        """Update from observed rewards; return losses by name."""
        return {}


class ZeroBaselineConfig(ModuleConfig):
    """No baseline."""

    module_class = Baseline
    type: Literal["zero"] = "zero"


class MovingAverageBaseline(Baseline):
    """b_k = momentum b_{k-1} + (1 - momentum) mean reward of batch k, b_0 = 0.

    (Xu et al. 2015, section 4.1.) The mean is over real targets; the value is saved as a buffer.
    """

    running_mean: Scalar

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        assert 0 <= momentum < 1, momentum
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(()))

    @override
    def forward(self, log_probs: PerQuery, queries: Queries | None = None) -> PerQuery:
        # A sum, not a view: the result must not change when the running mean does.
        return torch.zeros_like(log_probs) + self.running_mean.to(log_probs.dtype)

    @override
    def update(self, rewards: PerQuery, predicted: PerQuery, target_mask: TargetMask) -> Losses:
        if self.training:
            # No sync with the GPU: a batch without real targets has step size zero.
            mean = rewards.masked_fill(~target_mask, 0).sum() / target_mask.sum().clamp(min=1)
            step_size = (1 - self.momentum) * target_mask.any()
            dtype = self.running_mean.dtype
            self.running_mean.lerp_(mean.to(dtype), step_size.to(dtype))
        return {}


class MovingAverageBaselineConfig(ModuleConfig):
    """Exponential moving average of the rewards (Xu et al. 2015)."""

    module_class = MovingAverageBaseline
    type: Literal["moving-average"] = "moving-average"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Weight of the old average at each batch."""


class LearnedBaseline(Baseline):
    """b_t = w . q_t + c, by regression on the rewards, with q_t detached  (Mnih et al. 2014)."""

    def __init__(self, query_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, 1)

    @override
    def forward(self, log_probs: PerQuery, queries: Queries | None = None) -> PerQuery:
        assert queries is not None, "a learned baseline needs the queries"
        return self.projection(queries.detach()).squeeze(-1)

    @override
    def update(self, rewards: PerQuery, predicted: PerQuery, target_mask: TargetMask) -> Losses:
        squared_error = (rewards - predicted).square().masked_fill(~target_mask, 0)
        return {"baseline": squared_error.sum() / 2}


class LearnedBaselineConfig(ModuleConfig):
    """Linear function of the query, fitted to the rewards (Mnih et al. 2014)."""

    module_class = LearnedBaseline
    type: Literal["learned"] = "learned"


BaselineConfig = Annotated[
    ZeroBaselineConfig | MovingAverageBaselineConfig | LearnedBaselineConfig,
    Field(discriminator="type"),
]


class SampledAlignment(ArgmaxAlignment):
    """s ~ probabilities, trained by REINFORCE  (Xu et al. 2015, section 4.1).

    gradient = d log p(y|s) + reward_scale (reward - baseline) d log p(s) + entropy_bonus d H[s]

    With probability `soft_probability`, drawn once per source, a row uses the probabilities as
    weights. The paper's credit is that of the sentence; that of the future has lower variance,
    since a sample has no effect on earlier targets. Defaults are those of the authors' code, which
    decodes with the probabilities: `inference="expected"`.
    """

    has_auxiliary_losses = True

    def __init__(
        self,
        inner: SoftAlignment,
        baseline: Baseline,
        *,
        soft_probability: float = 0.5,
        reward_scale: float = 0.1,
        entropy_bonus: float = 0.002,
        credit: CreditAssignment = "sentence",
        inference: InferenceBehavior = "hard",
    ) -> None:
        super().__init__(inner)
        self.baseline = baseline
        self.soft_probability = soft_probability
        self.reward_scale = reward_scale
        self.entropy_bonus = entropy_bonus
        self.credit = credit
        self.inference = inference

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        if not self.training and self.inference == "hard":
            return super().align(scores, mask, queries, state)
        probabilities = self.inner.normalize(scores, mask)
        if not self.training:
            return AlignmentOutput(probabilities, probabilities)
        rows = scores.shape[:-2]
        uniform = torch.rand(rows, device=scores.device) if state is None else state.uniform_sample
        is_soft = (uniform < self.soft_probability).unsqueeze(-1)  # (*B, 1)
        positions = _sample(probabilities)
        sampled = _one_hot(positions, probabilities)
        weights = torch.where(is_soft.unsqueeze(-1), probabilities, sampled)
        chosen = probabilities.gather(-1, positions).squeeze(-1)  # (*B, T)
        log_probs = chosen.masked_fill(is_soft | (chosen == 0), 1).log()
        return AlignmentOutput(weights, probabilities, log_probs, self.baseline(log_probs, queries))

    @override
    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        """Return the losses of REINFORCE, entropy and baseline, or none if nothing was sampled."""
        alignment, log_likelihoods, target_mask, _ = loss_inputs
        _, probabilities, log_probs, predicted, *_ = alignment
        if probabilities is None or log_probs is None or predicted is None:
            return {}
        rewards = log_likelihoods.detach().masked_fill(~target_mask, 0)
        if self.credit == "sentence":
            rewards = rewards.sum(dim=-1, keepdim=True).expand_as(rewards)
        else:
            rewards = rewards.flip(-1).cumsum(dim=-1).flip(-1)
        weighted_log_probs = (rewards - predicted).detach() * log_probs
        entropies = entropy(probabilities).masked_fill(~target_mask, 0)
        return {
            "reinforce": -self.reward_scale * weighted_log_probs.masked_fill(~target_mask, 0).sum(),
            "entropy-bonus": -self.entropy_bonus * entropies.sum(),
            **self.baseline.update(rewards, predicted, target_mask),
        }


class SampledAlignmentConfig(ModuleConfig):
    """A sampled position, trained by REINFORCE (Xu et al. 2015)."""

    module_class = SampledAlignment
    type: Literal["sampled"] = "sampled"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    baseline: BaselineConfig = MovingAverageBaselineConfig()
    """Expected reward, subtracted from the reward of a sample."""
    credit: CreditAssignment = "sentence"
    """Reward of a sample: `sentence` is the log-likelihood of all targets, `future` that of its own
    target and later ones."""
    soft_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Fraction of sources that use the probabilities as weights instead of a sample."""
    reward_scale: PositiveFloat = 0.1
    """Factor of the REINFORCE loss."""
    entropy_bonus: NonNegativeFloat = 0.002
    """Factor of the entropy of the probabilities, which is maximized."""
    inference: InferenceBehavior = "hard"
    """At inference, `hard` uses the most probable position; `expected` keeps the probabilities as
    weights, as the code of Xu et al. does."""


class StraightThroughAlignment(ArgmaxAlignment):
    """One-hot weights forward, the gradient of the probabilities backward  (Bengio et al. 2013)."""

    def __init__(self, inner: SoftAlignment, *, sample_in_training: bool = True) -> None:
        super().__init__(inner)
        self.sample_in_training = sample_in_training

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        probabilities = self.inner.normalize(scores, mask)
        choose = _sample if self.training and self.sample_in_training else _argmax
        hard = _one_hot(choose(probabilities), probabilities)
        return AlignmentOutput(_straight_through(hard, probabilities), probabilities)


class StraightThroughAlignmentConfig(ModuleConfig):
    """One position forward, the gradient of the probabilities backward (Bengio et al. 2013)."""

    module_class = StraightThroughAlignment
    type: Literal["straight-through"] = "straight-through"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    sample_in_training: bool = True
    """Whether to sample the position in training; otherwise the most probable one is used."""


class GumbelSoftmaxAlignment(ArgmaxAlignment):
    """softmax((log probabilities + g) / temperature), g = -log(-log(uniform)).

    (Jang et al. 2017, equation 2; Maddison et al. 2017.) The largest weight is at a position
    sampled from the probabilities.
    """

    def __init__(
        self, inner: SoftAlignment, *, temperature: float = 1.0, straight_through: bool = False
    ) -> None:
        super().__init__(inner)
        assert temperature > 0, temperature
        self.temperature = temperature
        self.straight_through = straight_through

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        if not self.training:
            return super().align(scores, mask, queries, state)
        probabilities = self.inner.normalize(scores, mask)
        noisy = _add_gumbel_noise(probabilities, self.temperature).softmax(dim=-1)
        weights = noisy.to(scores.dtype) * mask
        if self.straight_through:
            weights = _straight_through(_one_hot(_argmax(weights), weights), weights)
        return AlignmentOutput(weights, probabilities)


class GumbelSoftmaxAlignmentConfig(ModuleConfig):
    """Gumbel-softmax relaxation of sampling (Jang et al. 2017, Maddison et al. 2017)."""

    module_class = GumbelSoftmaxAlignment
    type: Literal["gumbel-softmax"] = "gumbel-softmax"
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become probabilities."""
    temperature: PositiveFloat = 1.0
    """Temperature of the relaxation; the lower, the closer weights are to one-hot."""
    straight_through: bool = False
    """Whether weights are one-hot in the forward pass, relaxed only in the gradient."""


HardAlignmentConfig = Annotated[
    ArgmaxAlignmentConfig
    | SampledAlignmentConfig
    | StraightThroughAlignmentConfig
    | GumbelSoftmaxAlignmentConfig,
    Field(discriminator="type"),
]


def _argmax(probabilities: Weights) -> PositionIds:
    return probabilities.argmax(dim=-1, keepdim=True)


def _sample(probabilities: Weights) -> PositionIds:
    """Sample by the Gumbel-max trick: torch.multinomial rejects rows of zeros and NaN."""
    return _argmax(_add_gumbel_noise(probabilities.detach()))


def _add_gumbel_noise(probabilities: Weights, temperature: float = 1.0) -> Scores:
    """Return (log p + g) / temperature, and the lowest finite number where p is zero."""
    # In half precision many sums would be equal, and argmax would favor the first.
    upcast_probs = upcast(probabilities)
    is_zero = upcast_probs == 0
    noise = -torch.empty_like(upcast_probs).exponential_().log()
    noisy = (upcast_probs.masked_fill(is_zero, 1).log() + noise) / temperature
    return mask_scores(noisy, ~is_zero)


def _one_hot(positions: PositionIds, probabilities: Weights) -> Weights:
    detached = probabilities.detach()
    chosen = detached.gather(-1, positions)
    ones = chosen.masked_fill(chosen > 0, 1)  # zero in a fully masked row; NaN stays NaN
    return torch.zeros_like(detached).scatter(-1, positions, ones)


def _straight_through(hard: Weights, soft: Weights) -> Weights:
    """Return the value of `hard` with the gradient of `soft`."""
    return hard + (soft - soft.detach())

"""Training objectives: cross-entropy, minimum risk, REINFORCE and self-critical training.

Invariant: an objective is a sum over tokens or sentences, never a mean. The trainer divides, so the
gradient does not depend on how examples are grouped into micro-batches.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import check
from heedful.models.output_heads import negative_log_likelihood
from heedful.models.scheduled_sampling import (
    InputSampler,
    ScheduledSamplingConfig,
    TeacherForcingConfig,
)
from heedful.shapes import Losses, Scalar
from heedful.training.guided_alignment import LOSS_NAME, AlignmentGuide
from heedful.training.rollouts import (
    PAIR_REWARDS,
    CiderDReward,
    LengthLimit,
    PairReward,
    PairRewardName,
    Reward,
    RolloutSampler,
    ScoredOutputs,
)

RewardName = PairRewardName | Literal["cider-d"]


class LossTerms(NamedTuple):
    """Summed losses of a batch."""

    main_loss: Scalar  # by which models are compared
    auxiliary_losses: Losses  # by name


class Objective(ABC):
    """A loss to minimize."""

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def normalizer(self, batch: Any) -> int:
        """Return the divisor of the sum over a batch: by default its targets."""
        return batch.num_targets

    @abstractmethod
    def __call__(self, model: Any, batch: Any, step: int, unwrapped_model: nn.Module) -> LossTerms:
        """Return the summed losses of a batch at a step, counted from 1.

        `model` may be wrapped for DDP and is called once; `unwrapped_model` is it, for decoding.
        """


class LikelihoodObjective(Objective):
    """-log p of the targets, of which the model returns the sum for each row."""

    @override
    def __call__(self, model: Any, batch: Any, step: int, unwrapped_model: nn.Module) -> LossTerms:
        output = model(batch)
        return LossTerms(-output.log_probs.sum(), output.auxiliary_losses)


class CrossEntropyObjective(Objective):
    """-log p(y | x), summed over target tokens, with teacher forcing or scheduled sampling.

    With a `guide`, the loss of guided alignment is added.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        scheduled_sampling: ScheduledSamplingConfig | None = None,
    ) -> None:
        super().__init__(label_smoothing=label_smoothing)
        self.guide: AlignmentGuide | None = None
        is_sampled = not isinstance(scheduled_sampling, TeacherForcingConfig)
        self.scheduled_sampling = scheduled_sampling if is_sampled else None

    @override
    def __call__(self, model: Any, batch: Any, step: int, unwrapped_model: nn.Module) -> LossTerms:
        sampling = self.scheduled_sampling
        ratio = sampling.teacher_forcing_ratio(step) if sampling is not None else 1.0
        if sampling is None or ratio >= 1:
            output = model(batch, need_weights=True) if self.guide else model(batch)
        else:
            sampler = InputSampler(ratio, sampling.token_choice)
            output = model.forward_scheduled_sampling(batch, sampler)
        loss = negative_log_likelihood(output.log_probs, batch.targets, self.label_smoothing)
        if self.guide is None:
            return LossTerms(loss, output.auxiliary_losses)
        guided = {LOSS_NAME: self.guide.loss(output.soft_weights, batch)}
        return LossTerms(loss, {**output.auxiliary_losses, **guided})


class CrossEntropyObjectiveConfig(BaseConfig):
    """Cross-entropy of the target tokens (maximum likelihood)."""

    type: Literal["cross-entropy"] = "cross-entropy"

    def check(self, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig) -> None:
        """Accept both: teacher forcing uses them."""

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> CrossEntropyObjective:
        return CrossEntropyObjective(label_smoothing, scheduled_sampling)


@dataclass(frozen=True, kw_only=True)
class SequenceLevelObjective(Objective):
    """A sum over sentences of a loss of sampled outputs."""

    rollout_sampler: RolloutSampler
    auxiliary_loss_weight: float

    @override
    def normalizer(self, batch: Any) -> int:
        return len(batch.targets)

    def add_auxiliary_losses(self, loss: Scalar, scored: ScoredOutputs) -> LossTerms:
        """Add the weighted auxiliary losses of the model, which are sums over tokens."""
        weight, losses = self.auxiliary_loss_weight, scored.auxiliary_losses
        return LossTerms(loss, {name: weight * value for name, value in losses.items()})


class SequenceObjectiveConfigBase(BaseConfig):
    """An objective of outputs that the model samples."""

    type: str
    reward: RewardName
    """Sentence-level reward: smoothed BLEU or GLEU against the reference, or CIDEr-D against all
    references of the source."""
    num_samples: PositiveInt
    """Outputs to sample per source; memory grows in proportion."""
    max_length_ratio: float = Field(default=1.5, ge=1, le=1000)
    """Maximum length of an output relative to its reference."""
    max_length_offset: PositiveInt = 5
    """Tokens added to the maximum length."""
    auxiliary_loss_weight: NonNegativeFloat = 0.05
    """Weight of auxiliary losses, which are sums over tokens, beside a reward per sentence; 0.05
    equals their weight in cross-entropy for sentences of 20 tokens."""

    def check(self, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig) -> None:
        """Raise ConfigError for settings that have no effect on outputs the model samples."""
        location, sampling_type = "training.scheduled_sampling.type", scheduled_sampling.type
        message = f"{sampling_type!r} has no effect: the objective {self.type!r} samples outputs"
        is_off = isinstance(scheduled_sampling, TeacherForcingConfig)
        check(is_off, location, message, "remove training.scheduled_sampling")

    def build_sampler(self) -> RolloutSampler:
        """Build the sampler of outputs and their rewards."""
        length_limit = LengthLimit(self.max_length_ratio, self.max_length_offset)
        reward: Reward
        if self.reward == "cider-d":
            reward = CiderDReward()
        else:
            reward = PairReward(PAIR_REWARDS[self.reward])
        return RolloutSampler(reward, length_limit, self.num_samples)


@dataclass(frozen=True, kw_only=True)
class MinimumRiskObjective(SequenceLevelObjective):
    """sum_y Q(y) (1 - reward(y)), Q(y) = p(y|x)^a / sum_z p(z|x)^a  (Shen et al. 2016, section 3).

    y and z run over the reference and the distinct sampled outputs; a is `alpha`. A sum over
    sentences.
    """

    alpha: float

    @override
    def __call__(self, model: Any, batch: Any, step: int, unwrapped_model: nn.Module) -> LossTerms:
        candidates = self.rollout_sampler(model, batch, unwrapped_model)
        posterior = (self.alpha * candidates.scored.sequence_log_probs).softmax(dim=-1)
        risk = (posterior * (1 - candidates.rewards)).sum()
        return self.add_auxiliary_losses(risk, candidates.scored)


class MinimumRiskObjectiveConfig(SequenceObjectiveConfigBase):
    """Minimum risk training (Shen et al. 2016)."""

    type: Literal["minimum-risk"] = "minimum-risk"
    reward: RewardName = "bleu"
    """Sentence-level reward: smoothed BLEU or GLEU against the reference, or CIDEr-D against all
    references of the source."""
    num_samples: PositiveInt = Field(default=20, le=10_000)
    """Outputs to sample per source; memory grows in proportion. 100 in the paper."""
    alpha: PositiveFloat = 0.005
    """Exponent of the likelihoods, which smooths the distribution over outputs."""

    @override
    def check(self, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig) -> None:
        super().check(label_smoothing, scheduled_sampling)
        location, value = "training.label_smoothing", f"{label_smoothing:g}"
        message = f"is {value}, but the objective {self.type!r} has no targets to smooth"
        check(not label_smoothing, location, message, f"set {location} to 0")

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> MinimumRiskObjective:
        sampler, weight = self.build_sampler(), self.auxiliary_loss_weight
        return MinimumRiskObjective(
            rollout_sampler=sampler, alpha=self.alpha, auxiliary_loss_weight=weight
        )


BaselineName = Literal["mean", "greedy"]


@dataclass(frozen=True, kw_only=True)
class ReinforceObjective(SequenceLevelObjective):
    """weight * -log p(y* | x) - E[reward(y)], y sampled from p(y | x)  (Wu et al. 2016, eq. 9).

    The gradient of the second term is the mean over samples of -(reward(y) - b) d log p(y | x). The
    baseline b is the mean reward of the *other* samples of the same source, or the reward of the
    greedy output (self-critical: Rennie et al. 2017, section 4). The mean of all m samples, as the
    former paper may be read, would scale the gradient by (m - 1) / m. Invariant: for any baseline
    the expected gradient is that of the expected reward; the baseline only reduces its variance.

    The reported loss has 1 - reward for -reward. A sum over sentences.
    """

    baseline: BaselineName
    mle_weight: float
    label_smoothing: float

    @override
    def __call__(self, model: Any, batch: Any, step: int, unwrapped_model: nn.Module) -> LossTerms:
        scored, counts, rewards = candidates = self.rollout_sampler(model, batch, unwrapped_model)
        num_samples = self.rollout_sampler.num_samples
        if self.baseline == "greedy":
            baseline = self.rollout_sampler.greedy_rewards(batch, unwrapped_model, candidates)
        else:
            total = (counts * rewards).sum(dim=1, keepdim=True)
            baseline = (total - rewards) / (num_samples - 1)
        fractions = counts / num_samples
        advantages = fractions * (rewards - baseline)
        surrogate = (advantages * scored.sequence_log_probs.masked_fill(counts == 0, 0)).sum()
        risk = (fractions * (1 - rewards)).sum()
        nll = negative_log_likelihood(scored.log_probs, batch.targets, self.label_smoothing)
        # The value of `risk` with the gradient of `surrogate`.
        loss = self.mle_weight * nll + risk - (surrogate - surrogate.detach())
        return self.add_auxiliary_losses(loss, scored)


class PolicyGradientConfigBase(SequenceObjectiveConfigBase):
    """REINFORCE on sampled outputs, with a baseline of the reward."""

    mle_weight: NonNegativeFloat
    """Weight of the cross-entropy of the reference."""
    baseline: BaselineName
    """Baseline of the reward: the mean of the other samples, or the greedy output (self-critical:
    Rennie et al. 2017)."""

    @model_validator(mode="after")
    def _check_baseline(self) -> Self:
        if self.baseline == "mean" and self.num_samples == 1:
            raise ValueError("a mean of other samples needs num_samples 2, or baseline 'greedy'")
        return self

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> ReinforceObjective:
        return ReinforceObjective(
            rollout_sampler=self.build_sampler(),
            baseline=self.baseline,
            mle_weight=self.mle_weight,
            label_smoothing=label_smoothing,
            auxiliary_loss_weight=self.auxiliary_loss_weight,
        )


class ReinforceObjectiveConfig(PolicyGradientConfigBase):
    """Cross-entropy plus REINFORCE on sampled outputs (Wu et al. 2016, section 5)."""

    type: Literal["reinforce"] = "reinforce"
    reward: RewardName = "gleu"
    """Sentence-level reward: smoothed BLEU or GLEU against the reference, or CIDEr-D against all
    references of the source."""
    num_samples: PositiveInt = Field(default=15, le=10_000)
    """Outputs to sample per source; memory grows in proportion."""
    mle_weight: NonNegativeFloat = 0.017
    """Weight of the cross-entropy; the paper's alpha."""
    baseline: BaselineName = "mean"
    """Baseline of the reward: the mean of the other samples, or the greedy output (self-critical:
    Rennie et al. 2017)."""


class SelfCriticalObjectiveConfig(PolicyGradientConfigBase):
    """Self-critical sequence training: REINFORCE on CIDEr-D only (Rennie et al. 2017)."""

    type: Literal["self-critical"] = "self-critical"
    reward: RewardName = "cider-d"
    """Sentence-level reward: smoothed BLEU or GLEU against the reference, or CIDEr-D against all
    references of the source."""
    num_samples: PositiveInt = Field(default=1, le=10_000)
    """Outputs to sample per row: an image with five captions is a row of each."""
    mle_weight: NonNegativeFloat = 0.0
    """Weight of the cross-entropy of the reference; none in the paper."""
    baseline: BaselineName = "greedy"
    """Baseline of the reward: the greedy output, or the mean of the other samples."""


ObjectiveConfig = Annotated[
    CrossEntropyObjectiveConfig
    | MinimumRiskObjectiveConfig
    | ReinforceObjectiveConfig
    | SelfCriticalObjectiveConfig,
    Field(discriminator="type"),
    with_default_type("cross-entropy"),
]


def check_objective_supported(objective: ObjectiveConfig, model: str) -> None:
    """Raise ConfigError for a sequence-level objective of a model without sources."""
    is_supported = not isinstance(objective, SequenceObjectiveConfigBase)
    message = f"{objective.type!r} compares outputs with references, and a {model} has neither"
    hint = "set training.objective.type to 'cross-entropy'"
    check(is_supported, "training.objective.type", message, hint)

"""The objectives, as a configuration names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import ConfigError
from heedful.models.base import ModelOutput
from heedful.models.scheduled_sampling import ScheduledSamplingConfig, TeacherForcingConfig
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import PAD
from heedful.training.rollouts import (
    REWARDS,
    LengthLimit,
    RewardName,
    RolloutSampler,
    ScoredCandidates,
)

# Objectives: what is made small?
#
# An objective is a sum over what it counts, never a mean: who divides, and by how many, is the
# learner's business, so that no grouping of batches changes the gradient.


class LossTerms(NamedTuple):
    """What is made small: how wrong the model was, and what else was wrong, by name.

    Apart, because models are compared by the first alone.
    """

    main_loss: Float[Tensor, ""]
    auxiliary_losses: Mapping[str, Float[Tensor, ""]]


class Objective(ABC):
    """What is made small."""

    @abstractmethod
    def normalizer(self, batch: Any) -> int:
        """What the sum over a batch is divided by: real target tokens, or sentences."""

    @abstractmethod
    def __call__(
        self, model: nn.Module, batch: Any, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        """Say how wrong a model is about a batch; `step` is the update it is for, from 1 on.

        `model` is what is differentiated through, and is called once; it may be wrapped. `bare`
        is the same model without a wrapper, to be asked for outputs.
        """


# Whole outputs: what objectives share that let a model speak by itself.


class SequenceLevelObjective(Objective):
    """A sum over sentences of how bad a model's outputs are."""

    def __init__(self, rollout_sampler: RolloutSampler, *, auxiliary_loss_weight: float) -> None:
        self.rollout_sampler = rollout_sampler
        self.auxiliary_loss_weight = auxiliary_loss_weight

    def normalizer(self, batch: Any) -> int:
        """Count the sentences."""
        return len(batch.targets)

    def auxiliary_losses(self, candidates: ScoredCandidates) -> dict[str, Float[Tensor, ""]]:
        """The penalties of the model: sums over tokens, where a reward is one number."""
        return {
            name: self.auxiliary_loss_weight * each
            for name, each in candidates.scored.auxiliary_losses.items()
        }


# Likelihood: how unlikely did the model find what should have been said?
#
# A sum over real target tokens.

_TEACHER_FORCING = TeacherForcingConfig()


class CrossEntropyObjective(Objective):
    """-log p(y | x), token by token, told the known tokens before it or some of the model's own."""

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        scheduled_sampling: ScheduledSamplingConfig = _TEACHER_FORCING,
    ) -> None:
        self.smoothing = label_smoothing
        self.sampling = scheduled_sampling

    def normalizer(self, batch: Any) -> int:
        """Count the real target tokens."""
        return batch.num_targets

    def __call__(
        self, model: nn.Module, batch: Any, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        del unwrapped_model
        ratio = self.sampling.teacher_forcing_ratio(step)
        output: ModelOutput
        if ratio < 1:
            scheduled_sampling = cast(Any, model).forward_scheduled_sampling
            output = scheduled_sampling(batch, ratio, self.sampling.token_choice)
        else:
            output = model(batch)
        error = negative_log_likelihood(
            output.log_probs, batch.targets, label_smoothing=self.smoothing
        )
        return LossTerms(error, output.auxiliary_losses)


def negative_log_likelihood(
    log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"], *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum -log p over real targets, a share of it spread evenly over the vocabulary.

    (1 - e) * -log p(y) + e * mean over v of -log p(v)  (Szegedy et al. 2016, section 7).
    """
    real = targets != PAD
    wide = torch.promote_types(log_probs.dtype, torch.float32)  # 16 bits cannot add up a batch
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).to(wide)  # (B, T)
    if label_smoothing:
        chosen = torch.lerp(chosen, log_probs.mean(dim=-1, dtype=wide), label_smoothing)
    return -(chosen * real).sum()


def count_correct(
    log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"]
) -> Int[Tensor, ""]:
    """Count the real targets that the model held the likeliest."""
    return ((log_probs.argmax(dim=-1) == targets) & (targets != PAD)).sum()


# Rewarded: does the model say better than could be expected of it?
#
# Outputs that are better than a baseline become likelier, and worse ones less likely. Law: whatever
# the baseline, the mean of the gradient over what may be drawn is that of the expected reward; the
# baseline is there to make it scatter less.

BaselineName = Literal["mean", "greedy"]


class ReinforceObjective(SequenceLevelObjective):
    """weight * -log p(y* | x) - E[reward(y)], y drawn from p(y | x)  (Wu et al. 2016, equation 9).

    The gradient of the second part is the mean over draws of -(reward(y) - b) d log p(y | x). The
    baseline b is the mean reward of the *other* draws for the same source, or the reward of the
    greedy output (self-critical: Rennie et al. 2017, section 4). The mean of all draws, as the
    former paper may be read, has a draw in its own baseline: its gradient is (m - 1) / m of ours.

    What is reported is the value that is made small, with 1 - reward for -reward. A sum over
    sentences.
    """

    def __init__(
        self,
        rollout_sampler: RolloutSampler,
        *,
        baseline: BaselineName,
        mle_weight: float,
        label_smoothing: float,
        auxiliary_loss_weight: float,
    ) -> None:
        super().__init__(rollout_sampler, auxiliary_loss_weight=auxiliary_loss_weight)
        self.baseline = baseline
        self.mle_weight = mle_weight
        self.label_smoothing = label_smoothing

    def __call__(
        self, model: nn.Module, batch: Any, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        """Say how unlikely the references are and how much reward is missed."""
        del step
        tried = self.rollout_sampler(model, batch, unwrapped_model)
        scored, shares = tried.scored, tried.counts / self.rollout_sampler.num_samples
        gains = shares * (tried.rewards - self._baseline_rewards(tried, batch, unwrapped_model))
        never = tried.counts == 0
        gained = (gains * scored.sequence_log_probs.masked_fill(never, 0)).sum()
        missed = (shares * (1 - tried.rewards)).sum()
        unlikely = negative_log_likelihood(
            scored.log_probs, batch.targets, label_smoothing=self.label_smoothing
        )
        # The value is that of `missed`, the gradient that of `gained`.
        error = self.mle_weight * unlikely + missed - (gained - gained.detach())
        return LossTerms(error, self.auxiliary_losses(tried))

    def _baseline_rewards(
        self, candidates: ScoredCandidates, batch: Any, unwrapped_model: nn.Module
    ) -> Float[Tensor, "B #K"]:
        if self.baseline == "greedy":
            return self.rollout_sampler.greedy_rewards(batch, unwrapped_model, candidates)
        total = (candidates.counts * candidates.rewards).sum(dim=1, keepdim=True)
        return (total - candidates.rewards) / (self.rollout_sampler.num_samples - 1)


# Minimum risk: how bad are the outputs that the model finds likely?


class MinimumRiskObjective(SequenceLevelObjective):
    """sum_y Q(y) (1 - reward(y)), Q(y) = p(y|x)^a / sum_z p(z|x)^a  (Shen et al. 2016, section 3).

    y and z run over the reference and what was drawn, equal outputs taken once; a is the
    sharpness. A sum over sentences.
    """

    def __init__(
        self, rollout_sampler: RolloutSampler, *, alpha: float, auxiliary_loss_weight: float
    ) -> None:
        super().__init__(rollout_sampler, auxiliary_loss_weight=auxiliary_loss_weight)
        self.alpha = alpha

    def __call__(
        self, model: nn.Module, batch: Any, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        """Say how bad a model's outputs are."""
        del step
        candidates = self.rollout_sampler(model, batch, unwrapped_model)
        shares = (self.alpha * candidates.scored.sequence_log_probs).softmax(dim=-1)
        return LossTerms(
            (shares * (1 - candidates.rewards)).sum(), self.auxiliary_losses(candidates)
        )


class CrossEntropyObjectiveConfig(BaseConfig):
    """Make what should be said likely, token by token."""

    type: Literal["cross-entropy"] = "cross-entropy"

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> CrossEntropyObjective:
        """Make the objective."""
        return CrossEntropyObjective(
            label_smoothing=label_smoothing, scheduled_sampling=scheduled_sampling
        )


class SequenceObjectiveConfigBase(BaseConfig):
    """An objective over whole outputs that the model itself says."""

    type: str
    reward: RewardName
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    num_samples: PositiveInt
    """Outputs that are drawn for every source; a batch takes about as many times the memory."""
    max_length_ratio: float = Field(default=1.5, ge=1)
    """The longest output that is drawn, in tokens per token of its reference."""
    max_length_offset: PositiveInt = 5
    """Tokens allowed on top of that."""
    auxiliary_loss_weight: NonNegativeFloat = 0.05
    """What the model's penalties count here: they are sums over the tokens of a sentence, of which
    a reward is one number; 0.05 is as in likelihood where sentences have 20 tokens."""

    @property
    def rollout_sampler(self) -> RolloutSampler:
        """How outputs are drawn and rewarded."""
        limits = LengthLimit(self.max_length_ratio, self.max_length_offset)
        return RolloutSampler(REWARDS[self.reward], limits, num_samples=self.num_samples)


class MinimumRiskObjectiveConfig(SequenceObjectiveConfigBase):
    """Make bad outputs unlikely beside good ones (Shen et al. 2016)."""

    type: Literal["minimum-risk"] = "minimum-risk"
    reward: RewardName = "bleu"
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    num_samples: PositiveInt = 20
    """Outputs that are drawn for every source; a batch takes about as many times the memory. 100 in
    the paper."""
    alpha: PositiveFloat = 0.005
    """The power that likelihoods are raised to before outputs are weighed by them; the paper's
    alpha."""

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> MinimumRiskObjective:
        """Make the objective."""
        _check_no_scheduled_sampling(self.type, scheduled_sampling)
        if label_smoothing:
            raise ConfigError(
                "training.label_smoothing",
                f"the objective '{self.type}' has no single targets to smooth, but this is "
                f"{label_smoothing:g}",
                "set training.label_smoothing to 0",
            )
        return MinimumRiskObjective(
            self.rollout_sampler,
            alpha=self.alpha,
            auxiliary_loss_weight=self.auxiliary_loss_weight,
        )


class ReinforceObjectiveConfig(SequenceObjectiveConfigBase):
    """Likelihood, and reward for what the model itself says (Wu et al. 2016, section 5)."""

    type: Literal["reinforce"] = "reinforce"
    reward: RewardName = "gleu"
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    num_samples: PositiveInt = 15
    """Outputs that are drawn for every source; a batch takes about as many times the memory."""
    mle_weight: NonNegativeFloat = 0.017
    """What the likelihood of a reference counts beside the reward; the paper's alpha."""
    baseline: BaselineName = "mean"
    """What a reward is compared with: the mean of the other outputs for that source, or the greedy
    output (self-critical: Rennie et al. 2017)."""

    @model_validator(mode="after")
    def _check_baseline(self) -> ReinforceObjectiveConfig:
        if self.baseline == "mean" and self.num_samples == 1:
            raise ValueError("one sample has no others; set samples to 2 or baseline to 'greedy'")
        return self

    def build(
        self, *, label_smoothing: float, scheduled_sampling: ScheduledSamplingConfig
    ) -> ReinforceObjective:
        """Make the objective."""
        _check_no_scheduled_sampling(self.type, scheduled_sampling)
        return ReinforceObjective(
            self.rollout_sampler,
            baseline=self.baseline,
            mle_weight=self.mle_weight,
            label_smoothing=label_smoothing,
            auxiliary_loss_weight=self.auxiliary_loss_weight,
        )


def _check_no_scheduled_sampling(
    objective_type: str, scheduled_sampling: ScheduledSamplingConfig
) -> None:
    if not isinstance(scheduled_sampling, TeacherForcingConfig):
        raise ConfigError(
            "training.scheduled_sampling.type",
            f"under the objective '{objective_type}' whole outputs are the model's own already, so "
            f"'{scheduled_sampling.type}' has no meaning",
            "leave training.scheduled_sampling out",
        )


ObjectiveConfig = Annotated[
    CrossEntropyObjectiveConfig | MinimumRiskObjectiveConfig | ReinforceObjectiveConfig,
    Field(discriminator="type"),
    with_default_type("cross-entropy"),
]


def check_objective_supported(objective: ObjectiveConfig, model: str) -> None:
    """Refuse objectives over whole outputs for a kind of model that has no sources."""
    if isinstance(objective, SequenceObjectiveConfigBase):
        raise ConfigError(
            "training.objective.type",
            f"'{objective.type}' compares outputs with the reference of their source, and a "
            f"{model} has neither",
            "set training.objective.type to 'likelihood'",
        )

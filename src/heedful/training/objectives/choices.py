"""The objectives, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from heedful.config import Choice
from heedful.config.choice import assuming
from heedful.errors import ConfigError
from heedful.training.objectives.likelihood import Likelihood
from heedful.training.objectives.minimum_risk import MinimumRisk
from heedful.training.objectives.outputs import Limits
from heedful.training.objectives.rewarded import BaselineName, Rewarded
from heedful.training.objectives.rewards import REWARDS, RewardName
from heedful.training.objectives.trial import Trial
from heedful.training.sampling import SamplingConfig, TeacherForcingConfig


class LikelihoodConfig(Choice):
    """Make what should be said likely, token by token."""

    kind: Literal["likelihood"] = "likelihood"

    def build(self, *, smoothing: float, sampling: SamplingConfig) -> Likelihood:
        """Make the objective."""
        return Likelihood(smoothing=smoothing, sampling=sampling)


class SequenceChoice(Choice):
    """An objective over whole outputs that the model itself says."""

    kind: str
    reward: RewardName
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    samples: PositiveInt
    """Outputs that are drawn for every source; a batch takes about as many times the memory."""
    max_output_ratio: float = Field(default=1.5, ge=1)
    """The longest output that is drawn, in tokens per token of its reference."""
    max_output_extra: PositiveInt = 5
    """Tokens allowed on top of that."""
    penalty_weight: NonNegativeFloat = 0.05
    """What the model's penalties count here: they are sums over the tokens of a sentence, of which
    a reward is one number; 0.05 is as in likelihood where sentences have 20 tokens."""

    @property
    def trial(self) -> Trial:
        """How outputs are drawn and rewarded."""
        limits = Limits(self.max_output_ratio, self.max_output_extra)
        return Trial(REWARDS[self.reward], limits, num_samples=self.samples)


class MinimumRiskConfig(SequenceChoice):
    """Make bad outputs unlikely beside good ones (Shen et al. 2016)."""

    kind: Literal["minimum-risk"] = "minimum-risk"
    reward: RewardName = "bleu"
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    samples: PositiveInt = 20
    """Outputs that are drawn for every source; a batch takes about as many times the memory. 100 in
    the paper."""
    sharpness: PositiveFloat = 0.005
    """The power that likelihoods are raised to before outputs are weighed by them; the paper's
    alpha."""

    def build(self, *, smoothing: float, sampling: SamplingConfig) -> MinimumRisk:
        """Make the objective."""
        _refuse_sampling(self.kind, sampling)
        if smoothing:
            raise ConfigError(
                "training.label_smoothing",
                f"the objective '{self.kind}' has no single targets to smooth, but this is "
                f"{smoothing:g}",
                "set training.label_smoothing to 0",
            )
        return MinimumRisk(self.trial, sharpness=self.sharpness, penalty_weight=self.penalty_weight)


class MixedConfig(SequenceChoice):
    """Likelihood, and reward for what the model itself says (Wu et al. 2016, section 5)."""

    kind: Literal["mixed"] = "mixed"
    reward: RewardName = "gleu"
    """How an output is held against its reference: smoothed BLEU of the sentence, or GLEU."""
    samples: PositiveInt = 15
    """Outputs that are drawn for every source; a batch takes about as many times the memory."""
    likelihood_weight: NonNegativeFloat = 0.017
    """What the likelihood of a reference counts beside the reward; the paper's alpha."""
    baseline: BaselineName = "mean"
    """What a reward is compared with: the mean of the other outputs for that source, or the greedy
    output (self-critical: Rennie et al. 2017)."""

    @model_validator(mode="after")
    def _has_others_to_compare_with(self) -> MixedConfig:
        if self.baseline == "mean" and self.samples == 1:
            raise ValueError("one sample has no others; set samples to 2 or baseline to 'greedy'")
        return self

    def build(self, *, smoothing: float, sampling: SamplingConfig) -> Rewarded:
        """Make the objective."""
        _refuse_sampling(self.kind, sampling)
        return Rewarded(
            self.trial,
            baseline=self.baseline,
            likelihood_weight=self.likelihood_weight,
            smoothing=smoothing,
            penalty_weight=self.penalty_weight,
        )


ObjectiveConfig = Annotated[
    LikelihoodConfig | MinimumRiskConfig | MixedConfig,
    Field(discriminator="kind"),
    assuming("likelihood"),
]


def refuse_whole_outputs(objective: ObjectiveConfig, model: str) -> None:
    """Refuse objectives over whole outputs for a kind of model that has no sources."""
    if isinstance(objective, SequenceChoice):
        raise ConfigError(
            "training.objective.kind",
            f"'{objective.kind}' compares outputs with the reference of their source, and a "
            f"{model} has neither",
            "set training.objective.kind to 'likelihood'",
        )


def _refuse_sampling(kind: str, sampling: SamplingConfig) -> None:
    if not isinstance(sampling, TeacherForcingConfig):
        raise ConfigError(
            "training.sampling.kind",
            f"under the objective '{kind}' whole outputs are the model's own already, so "
            f"'{sampling.kind}' has no meaning",
            "leave training.sampling out",
        )

"""The alignments that look at one place, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from heedful.attention.alignments import Alignment
from heedful.attention.baselines import Baseline, LearnedBaseline, MovingBaseline, NoBaseline
from heedful.attention.choices.sharing import SharingConfig, SoftmaxConfig
from heedful.attention.hard import Argmax, Credit, GumbelSoftmax, Sampled, StraightThrough
from heedful.config import Choice


class NoBaselineConfig(Choice):
    """Expect no reward."""

    kind: Literal["none"] = "none"

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return NoBaseline()


class MovingBaselineConfig(Choice):
    """Expect what the last choices brought (Xu et al. 2015)."""

    kind: Literal["moving"] = "moving"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of what was expected stays with each batch."""

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return MovingBaseline(self.momentum)


class LearnedBaselineConfig(Choice):
    """Read from the query what reward to expect (Mnih et al. 2014)."""

    kind: Literal["learned"] = "learned"

    def build(self, *, query_size: int) -> Baseline:
        """Make the baseline."""
        return LearnedBaseline(query_size)


BaselineConfig = Annotated[
    NoBaselineConfig | MovingBaselineConfig | LearnedBaselineConfig, Field(discriminator="kind")
]


class ArgmaxConfig(Choice):
    """Look at the likeliest place; the scores learn from penalties alone."""

    kind: Literal["argmax"] = "argmax"
    inner: SharingConfig = SoftmaxConfig()
    """How scores become probabilities."""

    def build(self, *, query_size: int) -> Alignment:
        """Make the alignment."""
        return Argmax(self.inner.build(query_size=query_size))


class SampledConfig(Choice):
    """Draw the place and learn from what came of it (Xu et al. 2015)."""

    kind: Literal["sampled"] = "sampled"
    inner: SharingConfig = SoftmaxConfig()
    """How scores become probabilities."""
    baseline: BaselineConfig = MovingBaselineConfig()
    """What reward is expected before a place is drawn."""
    credit: Credit = "sentence"
    """Whether a choice is rewarded for the whole sentence, or for its own target and later ones."""
    soft_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the sources for which nothing is drawn and the probabilities are the weights."""
    reward_scale: PositiveFloat = 0.1
    """What rewards are multiplied by."""
    entropy_bonus: NonNegativeFloat = 0.002
    """What the entropy of the probabilities is multiplied by, to keep them from settling early."""

    def build(self, *, query_size: int) -> Alignment:
        """Make the alignment."""
        return Sampled(
            self.inner.build(query_size=query_size),
            self.baseline.build(query_size=query_size),
            soft_share=self.soft_share,
            reward_scale=self.reward_scale,
            entropy_bonus=self.entropy_bonus,
            credit=self.credit,
        )


class StraightThroughConfig(Choice):
    """Look at one place, and learn as if all had been looked at (Bengio et al. 2013)."""

    kind: Literal["straight-through"] = "straight-through"
    inner: SharingConfig = SoftmaxConfig()
    """How scores become probabilities."""
    drawn: bool = True
    """Whether the place is drawn in training; if not, it is the likeliest, as in use."""

    def build(self, *, query_size: int) -> Alignment:
        """Make the alignment."""
        return StraightThrough(self.inner.build(query_size=query_size), drawn=self.drawn)


class GumbelSoftmaxConfig(Choice):
    """Learn from draws that are softened (Jang et al. 2017, Maddison et al. 2017)."""

    kind: Literal["gumbel-softmax"] = "gumbel-softmax"
    inner: SharingConfig = SoftmaxConfig()
    """How scores become probabilities."""
    temperature: PositiveFloat = 1.0
    """How soft: the lower, the nearer the weights come to a single place."""
    straight_through: bool = False
    """Whether the weights are that single place in value, and the soft ones only in gradient."""

    def build(self, *, query_size: int) -> Alignment:
        """Make the alignment."""
        return GumbelSoftmax(
            self.inner.build(query_size=query_size),
            temperature=self.temperature,
            straight_through=self.straight_through,
        )


HardConfig = Annotated[
    ArgmaxConfig | SampledConfig | StraightThroughConfig | GumbelSoftmaxConfig,
    Field(discriminator="kind"),
]

"""Rewarded: does the model say better than could be expected of it?

Outputs that are better than a baseline become likelier, and worse ones less likely. Law: whatever
the baseline, the mean of the gradient over what may be drawn is that of the expected reward; the
baseline is there to make it scatter less.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from heedful.shapes import Float
from heedful.training.objectives.likelihood import negative_log_likelihood
from heedful.training.objectives.objective import Loss
from heedful.training.objectives.trial import Trial, Tried
from heedful.training.objectives.whole_outputs import WholeOutputs

BaselineName = Literal["mean", "greedy"]


class Rewarded(WholeOutputs):
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
        trial: Trial,
        *,
        baseline: BaselineName,
        likelihood_weight: float,
        smoothing: float,
        penalty_weight: float,
    ) -> None:
        super().__init__(trial, penalty_weight=penalty_weight)
        self.baseline = baseline
        self.likelihood_weight = likelihood_weight
        self.smoothing = smoothing

    def __call__(self, model: nn.Module, batch: Any, step: int, bare: nn.Module) -> Loss:
        """Say how unlikely the references are and how much reward is missed."""
        del step
        tried = self.trial(model, batch, bare)
        told, shares = tried.told, tried.counts / self.trial.num_samples
        gains = shares * (tried.rewards - self._expected(tried, batch, bare))
        never = tried.counts == 0
        gained = (gains * told.log_likelihoods.masked_fill(never, 0)).sum()
        missed = (shares * (1 - tried.rewards)).sum()
        unlikely = negative_log_likelihood(told.log_probs, batch.targets, smoothing=self.smoothing)
        # The value is that of `missed`, the gradient that of `gained`.
        error = self.likelihood_weight * unlikely + missed - (gained - gained.detach())
        return Loss(error, self.penalties(tried))

    def _expected(self, tried: Tried, batch: Any, bare: nn.Module) -> Float[Tensor, "B #K"]:
        if self.baseline == "greedy":
            return self.trial.reward_likeliest(batch, bare, tried)
        total = (tried.counts * tried.rewards).sum(dim=1, keepdim=True)
        return (total - tried.rewards) / (self.trial.num_samples - 1)

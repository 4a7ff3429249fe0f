"""Validating: how good is the model now, in every score that is asked for?"""

from __future__ import annotations

import math

import torch

from heedful.corpora import Corpora
from heedful.experiment.judging import Judge, cost
from heedful.nested import map_tensors
from heedful.recipes import Recipe
from heedful.training.engine import Learner
from heedful.training.observers import Sample, Validation
from heedful.training.validation import validate


class Validator:
    """Measures a learner's model on held-out data; on several ranks, all must do so."""

    def __init__(
        self, learner: Learner, corpora: Corpora, recipe: Recipe, device: torch.device
    ) -> None:
        self.learner = learner
        self.corpora = corpora
        self.metric = recipe.training.metric
        self.num_samples = recipe.training.samples
        self.device = device
        self.model = learner.ranks.asked(learner.model)
        self.judge = Judge(self.model, corpora, recipe, device)

    def scores(self) -> dict[str, float]:
        """Loss and accuracy, and the metric that counts if it is neither."""
        with self.learner.precision.computing():
            validated = validate(
                self.model,
                self.corpora.held_out(),
                place=lambda batch: map_tensors(lambda each: each.to(self.device), batch),
                ranks=self.learner.ranks,
            )
        scores = validated._asdict()
        return scores if self.metric in scores else {**scores, self.metric: self._judged()}

    def cost(self, scores: dict[str, float]) -> float:
        """What counts of these scores, as a number of which the smaller is the better."""
        return cost(self.metric, scores[self.metric])

    def samples(self) -> list[Sample]:
        """What the model makes of a few held-out texts; the first rank looks at them."""
        return self.judge.samples(self.num_samples) if self.learner.ranks.is_first else []

    def _judged(self) -> float:
        ranks = self.learner.ranks
        mine = self.judge.scores([self.metric])[self.metric] if ranks.is_first else 0.0
        return ranks.total(torch.tensor(mine, dtype=torch.float64)).item()


def in_words(validation: Validation, *, metric: str, best: float) -> str:
    """Say how a validation went, in one line."""
    scores = dict(validation.scores)
    loss, accuracy = scores.pop("loss"), scores.pop("accuracy")
    others = "".join(f", {name} {score:.2f}" for name, score in scores.items())
    # Costs of metrics of which more is better are their negatives.
    mark = "" if validation.is_best else f"  (best {metric} so far: {abs(best):.4f})"
    return (
        f"step {validation.step}: validation loss {loss:.4f}, "
        f"perplexity {math.exp(min(loss, 50)):.2f}, {100 * accuracy:.1f} % of tokens right"
        f"{others}{mark}"
    )

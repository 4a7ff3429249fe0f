"""Learners: all that learns by a recipe, put together."""

from __future__ import annotations

from collections.abc import Callable

import torch

from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.text.config import TextPair
from heedful.training.averaging import MovingAverage
from heedful.training.clipping import Clipping
from heedful.training.devices import suit
from heedful.training.engine import Learner
from heedful.training.precision import Precision
from heedful.training.ranks import Ranks


def build_learner(
    recipe: Recipe,
    text: TextPair,
    learning_rate: Callable[[int], float],
    *,
    ranks: Ranks,
    device: torch.device,
) -> Learner:
    """Build a model and how it learns; every rank begins with the same weights."""
    config = recipe.training
    if ranks.is_sharded:
        _refuse_writing(config.objective.kind)
    suit(device)
    torch.manual_seed(config.seed)
    built = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
    model = ranks.place(built.to(device))
    torch.manual_seed(config.seed + ranks.rank)
    return Learner(
        model,
        config.objective.build(smoothing=config.label_smoothing, sampling=config.sampling),
        config.optimizer.build(model),
        learning_rate,
        clipping=Clipping(config.max_grad_norm, config.max_grad_value),
        precision=Precision(config.precision, device.type),
        average=MovingAverage(model, config.average.decay) if config.average else None,
        ranks=ranks,
        device=device,
    )


def _refuse_writing(objective: str) -> None:
    """A model whose weights are parted cannot write while it learns."""
    if objective != "likelihood":
        raise ConfigError(
            "training.parallel",
            f"the objective {objective!r} lets the model write at every step, for which sharded "
            "weights would have to be gathered every time",
            "set training.parallel=replicated",
        )

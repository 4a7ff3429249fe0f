"""What is trained on data when no recipe is named: a task's recipe, sized by device and data."""

from collections.abc import Mapping
from typing import Any, NamedTuple

MIN_MINUTES = 5
_UNLIMITED_STEPS = 1_000_000


class DefaultRecipe(NamedTuple):
    """A bundled recipe, and the settings that depend on the data."""

    name: str
    settings: Mapping[str, Any] = {}


def training_minutes(num_examples: int, per_minute: int) -> int:
    """Return the minutes of training on so many examples, at least `MIN_MINUTES`."""
    return max(MIN_MINUTES, round(num_examples / per_minute))


def until_time_is_over(*, warmup_ratio: float = 0.05) -> dict[str, Any]:
    """Return the settings that end a recipe, and its learning rate, with `max_minutes`."""
    return {
        "training.max_steps": _UNLIMITED_STEPS,
        "training.max_minutes": MIN_MINUTES,
        "training.validate_every": None,
        "training.patience": None,
        "training.lr_scheduler": {"type": "cosine", "warmup_ratio": warmup_ratio},
    }

"""Foretelling: how many steps fit into a time, by those that were taken in its first part?

The first step pays for what is set up once, so it does not count for the pace; nor do validations,
which take their part of the time that is left.

    steps = s + (T - t_s - n v) (s - 1) / (t_s - t_1)

where the first part ended after step s at time t_s, T is the whole time, t_1 the time of the first
step, and n validations that take v each are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.inspection.run_curves import Entry, number, of_kind


def foretell_steps(
    entries: Sequence[Entry], *, step: int, taken: float, whole: float, validations: int
) -> int:
    """Tell how many steps `whole` seconds have room for, from the lines of a run's first part.

    After `step` steps and `taken` seconds so many `validations` are still to come.
    """
    first = _seconds_at_first_step(entries) if step > 1 else 0.0
    each = (taken - first) / max(1, step - 1)
    left = whole - taken - validations * _validation_seconds(entries, taken)
    return step + max(1, round(left / each)) if each > 0 else step + 1


def _seconds_at_first_step(entries: Sequence[Entry]) -> float:
    training = of_kind(entries, "training")
    is_first = bool(training) and training[0]["step"] == 1
    return (number(training[0].get("seconds")) or 0.0) if is_first else 0.0


def _validation_seconds(entries: Sequence[Entry], taken: float) -> float:
    """How long the validation took that ended the first part."""
    held_out = of_kind(entries, "validation")
    ended = number(held_out[-1].get("seconds")) if held_out else None
    return max(0.0, ended - taken) if ended is not None else 0.0

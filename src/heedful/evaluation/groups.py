"""Groups: are some sentences harder than others?

Sentences are sorted into groups by name, each is in any number of them, and every group is measured
by itself. A group of few outputs says little: below a given number it is counted but not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from heedful.evaluation.measures import Metric, References

Measuring = Callable[[Sequence[str], References], Metric]
"""What is to be known of outputs and their references."""


class Group(NamedTuple):
    """Outputs that have something in common, and how good they are."""

    name: str
    size: int  # outputs
    metric: Metric | None  # None where they are too few to tell


def by_group(
    names: Iterable[Sequence[str]],
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    *,
    order: Sequence[str] = (),
    least: int = 1,
) -> list[Group]:
    """Measure outputs by the names of their groups.

    Groups come in the order given, and others after them by name. Groups without outputs are left
    out; groups of fewer than `least` are not measured.
    """
    members: dict[str, list[int]] = {name: [] for name in order}
    for row, (found, _, _) in enumerate(zip(names, outputs, references, strict=True)):
        for name in found:
            members.setdefault(name, []).append(row)
    ordered = [*order, *sorted(members.keys() - set(order))]
    return [
        Group(name, len(rows), _measured(rows, outputs, references, measure, least))
        for name in ordered
        if (rows := members[name])
    ]


def _measured(
    rows: list[int],
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    least: int,
) -> Metric | None:
    if len(rows) < least:
        return None
    return measure([outputs[row] for row in rows], [references[row] for row in rows])

"""Remarks: what must a reader of the table know that does not stand in it?"""

from __future__ import annotations

from collections.abc import Iterator

from heedful.comparison.columns import columns
from heedful.comparison.results import Comparison
from heedful.evaluation.sheet import MARK
from heedful.evaluation.significance import LEVEL, TRIALS


def remarks(comparison: Comparison) -> Iterator[str]:
    """What was tested and how, one remark after the other, in plain text."""
    yield f"tested on {comparison.test}"
    if comparison.budget:
        yield f"budget of each run: {comparison.budget}"
    yield from _on_numbers(comparison)
    yield from _on_marks(comparison)
    for name, run, problem in comparison.failures:
        yield f"failed: {name} ({run}): {problem}"


def _on_numbers(comparison: Comparison) -> Iterator[str]:
    judged = comparison.systems[0].judged
    lower = [each.metric.name for each in judged if each.better == "lower"]
    if lower:
        yield f"lower is better: {', '.join(lower)}"
    counts = sorted({len(system.runs) for system in comparison.systems})
    if counts[-1] > 1:
        runs = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        yield f"means and +- deviations of {runs} runs"


def _on_marks(comparison: Comparison) -> Iterator[str]:
    if any(each.difference for system in comparison.systems for each in system.judged):
        marked = any(cell.mark for column in columns(comparison) for cell in column.cells)
        which = f"{MARK} differs" if marked else "nothing differs"
        yield (
            f"{which} from {comparison.baseline} with p < {LEVEL:g}, by approximate randomisation "
            f"({TRIALS} trials)"
        )

"""By length: does quality fall as sources grow?

Outputs are parted by how many words their sources have, into bins of one width, and every bin is
measured by itself. A bin of few outputs says little: below a given number it is counted but not
measured. Law: every output is in one bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heedful.evaluation.groups import Measuring
from heedful.evaluation.measures import Metric, References


class Bin(NamedTuple):
    """Outputs whose sources are about equally long, and how good they are."""

    shortest: int  # words
    longest: int
    size: int  # outputs
    metric: Metric | None  # None where they are too few to tell

    @property
    def name(self) -> str:
        """The lengths in it, as a table shows them."""
        is_one = self.shortest == self.longest
        return f"{self.longest}" if is_one else f"{self.shortest}-{self.longest}"

    @property
    def middle(self) -> float:
        """The length it stands for on an axis."""
        return (self.shortest + self.longest) / 2


def by_length(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    *,
    width: int = 1,
    least: int = 1,
) -> list[Bin]:
    """Measure outputs by the length of their sources, shortest first.

    Bins hold 1 to `width` words, the next `width` lengths, and so on; texts without a word have a
    bin of their own, and lengths that do not occur have none. Words are what white space parts.
    Bins of fewer than `least` outputs are not measured.
    """
    assert width >= 1, f"no bin is {width} wide"
    found: dict[int, list[tuple[str, str | Sequence[str]]]] = {}
    for source, output, reference in zip(sources, outputs, references, strict=True):
        number = -(-len(source.split()) // width)  # from 1; 0 without a word
        found.setdefault(number, []).append((output, reference))
    return [
        Bin(
            shortest=(number - 1) * width + 1 if number else 0,
            longest=number * width,
            size=len(pairs),
            metric=_measured(pairs, measure) if len(pairs) >= least else None,
        )
        for number, pairs in sorted(found.items())
    ]


def _measured(pairs: Sequence[tuple[str, str | Sequence[str]]], measure: Measuring) -> Metric:
    outputs, references = zip(*pairs, strict=True)
    return measure(outputs, references)

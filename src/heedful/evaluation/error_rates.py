"""Error rates: how many words must be mended, for each word that was wanted?

Words are what white space parts: phonemes, if texts are written in phonemes. Of several references
the nearest counts: the one with fewest errors, and of those the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.evaluation.measures import Array, Direction, count_references, paired, per_cent
from heedful.evaluation.sequences import edit_distance, in_common


@dataclass(frozen=True)
class ErrorRate:
    """100 errors / length of the reference, over all sentences together."""

    name: str
    unit: str
    items: Callable[[str], Sequence[str]]
    errors: Callable[[Sequence[str], Sequence[str]], int]
    better: Direction = "lower"

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """Errors, and the length of the reference they are counted by."""
        rows = [
            min(
                (self._compare(output, each) for each in choices), key=lambda row: (row[0], -row[1])
            )
            for output, choices in paired(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def total(self, sums: Array) -> Array:
        """Errors by length; all that is said where nothing was wanted is wrong."""
        return per_cent(
            sums[..., 0], sums[..., 1], of_nothing=np.where(sums[..., 0] > 0, 100.0, 0.0)
        )

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        return f"{count_references(references)}|case:mixed|tok:{self.unit}|nearest:errors"

    def _compare(self, output: str, reference: str) -> tuple[int, int]:
        wanted = self.items(reference)
        return self.errors(self.items(output), wanted), len(wanted)


def _misplaced_or_not(output: Sequence[str], reference: Sequence[str]) -> int:
    return max(len(output), len(reference)) - in_common(output, reference)


WORD_ERRORS = ErrorRate("WER", "space", str.split, edit_distance)
"""Word error rate: insertions, deletions and substitutions of words. Over texts of phonemes it is
the phoneme error rate."""
FREE_ERRORS = ErrorRate("PER", "space", str.split, _misplaced_or_not)
"""Position-independent error rate (Tillmann et al. 1997): as if words could be put in order free of
charge."""
CHARACTER_ERRORS = ErrorRate("CER", "character", list, edit_distance)
"""Character error rate, spaces counted."""

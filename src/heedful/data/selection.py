"""Selection: which pairs are learned from, and which are left out.

A pair is left out only by a policy that is a setting, and every pair left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import PositiveInt

from heedful.config import Choice
from heedful.data.records import Pair
from heedful.errors import DataError

Ids = Sequence[int]


class SelectionConfig(Choice):
    """Which pairs are fit to learn from."""

    max_tokens: PositiveInt = 256
    """Most tokens on either side, without the symbols that begin and end a sequence."""
    empty: Literal["drop", "refuse"] = "drop"
    """What to do with a pair of which a side is nothing but white space."""
    too_long: Literal["drop", "refuse"] = "drop"
    """What to do with a pair of which a side has more than `max_tokens`."""


class SelectionReport(NamedTuple):
    """How many pairs were kept and left out; `first_...` counts pairs from 1, and 0 is none."""

    kept: int
    dropped_empty: int
    dropped_too_long: int
    first_empty: int
    first_too_long: int
    max_tokens: int
    carriage_returns: int

    @property
    def total(self) -> int:
        """All the pairs there were."""
        return self.kept + self.dropped_empty + self.dropped_too_long

    def lines(self) -> list[str]:
        """Say it in sentences; what did not happen is not said."""
        said = [f"{self.kept} of {self.total} pairs kept"]
        if self.dropped_empty:
            said.append(
                f"{self.dropped_empty} dropped, a side being empty (first: pair {self.first_empty})"
            )
        if self.dropped_too_long:
            said.append(
                f"{self.dropped_too_long} dropped, a side having more than {self.max_tokens} "
                f"tokens (first: pair {self.first_too_long})"
            )
        if self.carriage_returns:
            said.append(
                f"{self.carriage_returns} end in a carriage return, which is text unless "
                "`normalisation.strip` is set"
            )
        return said


class Selected(NamedTuple):
    """The rows to keep, in order, and what to report."""

    rows: list[int]
    report: SelectionReport


def select(
    pairs: Sequence[Pair],
    config: SelectionConfig,
    *,
    source_ids: Sequence[Ids],
    target_ids: Sequence[Ids],
    at: str,
) -> Selected:
    """Choose the rows that are fit to learn from; `at` names the data in errors."""
    rows, empty, too_long = [], [], []
    for row, (pair, source, target) in enumerate(zip(pairs, source_ids, target_ids, strict=True)):
        if not (pair.source.strip() and pair.target.strip()):
            if config.empty == "refuse":
                raise _empty(pair, f"{at}, pair {row + 1}")
            empty.append(row)
        elif max(len(source), len(target)) > config.max_tokens:
            if config.too_long == "refuse":
                raise _too_long(len(source), len(target), config, f"{at}, pair {row + 1}")
            too_long.append(row)
        else:
            rows.append(row)
    report = SelectionReport(
        kept=len(rows),
        dropped_empty=len(empty),
        dropped_too_long=len(too_long),
        first_empty=empty[0] + 1 if empty else 0,
        first_too_long=too_long[0] + 1 if too_long else 0,
        max_tokens=config.max_tokens,
        carriage_returns=sum(map(_has_carriage_return, pairs)),
    )
    if not rows:
        raise _nothing_left(report, at)
    return Selected(rows, report)


def _has_carriage_return(pair: Pair) -> bool:
    return pair.source.endswith("\r") or pair.target.endswith("\r")


def _empty(pair: Pair, at: str) -> DataError:
    side = "target" if pair.source.strip() else "source"
    return DataError(at, f"the {side} is empty", "mend the pair, or set `empty: drop`")


def _too_long(source: int, target: int, config: SelectionConfig, at: str) -> DataError:
    side = "source" if source > config.max_tokens else "target"
    return DataError(
        at,
        f"the {side} has {max(source, target)} tokens, more than max_tokens ({config.max_tokens})",
        "raise max_tokens, shorten the pair, or set `too_long: drop`",
    )


def _nothing_left(report: SelectionReport, at: str) -> DataError:
    problem = (
        f"no pair is left of {report.total}: {report.dropped_empty} with an empty side, "
        f"{report.dropped_too_long} with more than {report.max_tokens} tokens on a side"
    )
    return DataError(at, problem, "raise max_tokens, or give other data")

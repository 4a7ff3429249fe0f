"""Selection: which pairs are learned from, and which are left out?

A pair is left out only by a policy that is a setting, every pair left out is counted, and it is
counted once: by the first of the reasons below that holds of it. All but the last look at a pair
alone, so a corpus may be looked at in chunks, by several workers, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.data.records import Pair
from heedful.errors import DataError

Ids = Sequence[int]
Reasons = NDArray[np.uint8]
Hashes = NDArray[np.uint64]


class SelectionConfig(Choice):
    """Which pairs are fit to learn from."""

    max_tokens: PositiveInt = 256
    """Most tokens on either side, without the symbols that begin and end a sequence."""
    empty: Literal["drop", "refuse"] = "drop"
    """What to do with a pair of which a side is nothing but white space."""
    too_long: Literal["drop", "refuse"] = "drop"
    """What to do with a pair of which a side has more than `max_tokens`."""
    min_tokens: PositiveInt = 1
    """Fewest tokens on either side; pairs with fewer are dropped."""
    max_ratio: Annotated[float, Field(ge=1)] | None = None
    """How many times as many tokens one side may have as the other; others are dropped."""
    duplicates: Literal["keep", "drop"] = "keep"
    """What to do with a pair that has come before with the same text on both sides."""


class Reason(IntEnum):
    """Why a pair is left out."""

    KEPT = 0
    EMPTY = 1
    TOO_LONG = 2
    TOO_SHORT = 3
    UNEVEN = 4
    REPEATED = 5


class SelectionReport(NamedTuple):
    """How many pairs were kept and left out, by reason."""

    config: SelectionConfig
    counts: Sequence[int]
    firsts: Sequence[int]  # the number of the first such pair, counted from 1; 0 is none
    carriage_returns: int

    @property
    def kept(self) -> int:
        """Pairs to learn from."""
        return self.counts[Reason.KEPT]

    @property
    def total(self) -> int:
        """All the pairs there were."""
        return sum(self.counts)

    def lines(self) -> list[str]:
        """Say it in sentences; what did not happen is not said."""
        said = [f"{self.kept} of {self.total} pairs kept"]
        for reason, sentence in _sentences(self.config).items():
            if self.counts[reason]:
                first = f"(first: pair {self.firsts[reason]})"
                said.append(f"{self.counts[reason]} dropped, {sentence} {first}")
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


class Seen:
    """The pairs that have come before, held in memory as 8 bytes of hash each."""

    def __init__(self) -> None:
        self._hashes = set[int]()

    def again(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Say which of these have come before; from now on all of them have."""
        found = np.zeros(len(hashes), dtype=np.bool_)
        for place, each in enumerate(hashes.tolist()):
            found[place] = each in self._hashes
            self._hashes.add(each)
        return found


def hash_pairs(pairs: Sequence[Pair]) -> Hashes:
    """Give 64 bits that two pairs share if they are equal, and hardly ever otherwise.

    Among 100 million unlike pairs, the chance that any two share them is 3 in 10,000.
    """
    # No text holds the byte 0xFF, so it tells where the source ends.
    digests = [
        blake2b(pair.source.encode() + b"\xff" + pair.target.encode(), digest_size=8).digest()
        for pair in pairs
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def reasons(
    pairs: Sequence[Pair],
    config: SelectionConfig,
    *,
    source_ids: Sequence[Ids],
    target_ids: Sequence[Ids],
    at: str,
    first: int = 1,
    seen: Seen | None = None,
) -> Reasons:
    """Say of each pair of a chunk why it is left out, or `Reason.KEPT`.

    `at` names the data in errors, and `first` is the number of the chunk's first pair in it.
    Without `seen` no pair counts as one that has come before.
    """
    sides = zip(pairs, source_ids, target_ids, strict=True)
    lengths = np.array([(len(source), len(target)) for _, source, target in sides]).reshape(-1, 2)
    empty = np.array([not (pair.source.strip() and pair.target.strip()) for pair in pairs], bool)
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    ratio = np.inf if config.max_ratio is None else config.max_ratio
    # The first that holds is the one that counts.
    why = {
        Reason.EMPTY: empty,
        Reason.TOO_LONG: longer > config.max_tokens,
        Reason.TOO_SHORT: shorter < config.min_tokens,
        Reason.UNEVEN: longer > ratio * np.maximum(shorter, 1),
    }
    found = np.select(list(why.values()), list(why), Reason.KEPT).astype(np.uint8)
    _refuse(found, pairs, lengths, config, at=at, first=first)
    if seen is not None and config.duplicates == "drop":
        kept = np.flatnonzero(found == Reason.KEPT)
        again = seen.again(hash_pairs([pairs[row] for row in kept.tolist()]))
        found[kept[again]] = Reason.REPEATED
    return found


def report_on(
    found: Reasons, pairs: Sequence[Pair], config: SelectionConfig, *, first: int = 1
) -> SelectionReport:
    """Count what was found in a chunk whose first pair has this number."""
    places = [np.flatnonzero(found == reason) for reason in Reason]
    return SelectionReport(
        config,
        counts=[len(each) for each in places],
        firsts=[first + int(each[0]) if len(each) else 0 for each in places],
        carriage_returns=sum(map(_has_carriage_return, pairs)),
    )


def join_reports(reports: Iterable[SelectionReport]) -> SelectionReport:
    """Put the reports on all chunks of a corpus together, in whatever order they come."""
    reports = list(reports)
    firsts = [
        min(filter(None, numbers), default=0)
        for numbers in zip(*(each.firsts for each in reports), strict=True)
    ]
    return SelectionReport(
        reports[0].config,
        counts=[sum(each) for each in zip(*(each.counts for each in reports), strict=True)],
        firsts=firsts,
        carriage_returns=sum(each.carriage_returns for each in reports),
    )


def refuse_nothing_left(report: SelectionReport, *, at: str) -> None:
    """Refuse a corpus of which no pair is kept."""
    if report.kept:
        return
    named = _remainders(report.config)
    counts = ", ".join(
        f"{report.counts[reason]} {text}"
        for reason, text in named.items()
        if report.counts[reason] or reason <= Reason.TOO_LONG
    )
    problem = f"no pair is left of {report.total}: {counts}"
    raise DataError(at, problem, "raise max_tokens, or give other data")


def select(
    pairs: Sequence[Pair],
    config: SelectionConfig,
    *,
    source_ids: Sequence[Ids],
    target_ids: Sequence[Ids],
    at: str,
) -> Selected:
    """Choose the rows of a whole corpus that are fit to learn from; `at` names it in errors."""
    found = reasons(pairs, config, source_ids=source_ids, target_ids=target_ids, at=at, seen=Seen())
    report = report_on(found, pairs, config)
    refuse_nothing_left(report, at=at)
    return Selected(np.flatnonzero(found == Reason.KEPT).tolist(), report)


def _has_carriage_return(pair: Pair) -> bool:
    return pair.source.endswith("\r") or pair.target.endswith("\r")


def _sentences(config: SelectionConfig) -> dict[Reason, str]:
    return {
        Reason.EMPTY: "a side being empty",
        Reason.TOO_LONG: f"a side having more than {config.max_tokens} tokens",
        Reason.TOO_SHORT: f"a side having fewer than {config.min_tokens} tokens",
        Reason.UNEVEN: f"a side having more than {config.max_ratio} times the tokens of the other",
        Reason.REPEATED: "having come before",
    }


def _remainders(config: SelectionConfig) -> dict[Reason, str]:
    return {
        Reason.EMPTY: "with an empty side",
        Reason.TOO_LONG: f"with more than {config.max_tokens} tokens on a side",
        Reason.TOO_SHORT: f"with fewer than {config.min_tokens} tokens on a side",
        Reason.UNEVEN: f"with more than {config.max_ratio} times the tokens on one side",
    }


def _refuse(
    found: Reasons,
    pairs: Sequence[Pair],
    lengths: NDArray[np.int64],
    config: SelectionConfig,
    *,
    at: str,
    first: int,
) -> None:
    """Refuse the first pair that is empty or too long, if the policy is to refuse it."""
    policies = {Reason.EMPTY: config.empty, Reason.TOO_LONG: config.too_long}
    refused = [reason for reason, policy in policies.items() if policy == "refuse"]
    for row in np.flatnonzero(np.isin(found, refused)).tolist():
        where = f"{at}, pair {first + row}"
        if found[row] == Reason.EMPTY:
            raise _empty(pairs[row], where)
        source, target = lengths[row].tolist()
        raise _too_long(source, target, config, where)


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

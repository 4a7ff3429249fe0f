"""Duplicates: which pairs of a corpus larger than memory have come before?

The hashes of all pairs lie in files, parted by their first byte: equal ones are in one file, and
a file at a time fits into memory. Which pair is the first of its like does not depend on chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Pair
from heedful.errors import DataError
from heedful.storage import explain_os_errors

# Selection: which pairs are learned from, and which are left out?
#
# A pair is left out only by a policy that is a setting, every pair left out is counted, and it is
# counted once: by the first of the reasons below that holds of it. All but the last look at a pair
# alone, so a corpus may be looked at in chunks, by several workers, in any order.

Ids = Sequence[int]
FilterReasons = NDArray[np.uint8]
Hashes = NDArray[np.uint64]


class FilterConfig(BaseConfig):
    """Which pairs are fit to learn from."""

    max_length: PositiveInt = 256
    """Most tokens on either side, without the symbols that begin and end a sequence."""
    on_empty: Literal["drop", "error"] = "drop"
    """What to do with a pair of which a side is nothing but white space."""
    on_too_long: Literal["drop", "error"] = "drop"
    """What to do with a pair of which a side has more than `max_length`."""
    min_length: PositiveInt = 1
    """Fewest tokens on either side; pairs with fewer are dropped."""
    max_length_ratio: Annotated[float, Field(ge=1)] | None = None
    """How many times as many tokens one side may have as the other; others are dropped."""
    duplicates: Literal["keep", "drop"] = "keep"
    """What to do with a pair that has come before with the same text on both sides."""


class FilterReason(IntEnum):
    """Why a pair is left out."""

    KEPT = 0
    EMPTY = 1
    TOO_LONG = 2
    TOO_SHORT = 3
    LENGTH_RATIO = 4
    DUPLICATE = 5


class FilterReport(NamedTuple):
    """How many pairs were kept and left out, by reason."""

    config: FilterConfig
    counts: Sequence[int]
    first_rows: Sequence[int]  # the number of the first such pair, counted from 1; 0 is none
    carriage_returns: int

    @property
    def num_kept(self) -> int:
        """Pairs to learn from."""
        return self.counts[FilterReason.KEPT]

    @property
    def num_pairs(self) -> int:
        """All the pairs there were."""
        return sum(self.counts)

    def format_lines(self) -> list[str]:
        """Say it in sentences; what did not happen is not said."""
        lines_out = [f"{self.num_kept} of {self.num_pairs} pairs kept"]
        for reason, sentence in _drop_messages(self.config).items():
            if self.counts[reason]:
                first = f"(first: pair {self.first_rows[reason]})"
                lines_out.append(f"{self.counts[reason]} dropped, {sentence} {first}")
        if self.carriage_returns:
            lines_out.append(
                f"{self.carriage_returns} end in a carriage return, which is text unless "
                "`normalization.strip` is set"
            )
        return lines_out


class FilterResult(NamedTuple):
    """The rows to keep, in order, and what to report."""

    rows: list[int]
    report: FilterReport


class SeenPairs:
    """The pairs that have come before, held in memory as 8 bytes of hash each."""

    def __init__(self) -> None:
        self._hashes = set[int]()

    def mark_duplicates(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Say which of these have come before; from now on all of them have."""
        found = np.zeros(len(hashes), dtype=np.bool_)
        for index, each in enumerate(hashes.tolist()):
            found[index] = each in self._hashes
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


def compute_filter_reasons(
    pairs: Sequence[Pair],
    config: FilterConfig,
    *,
    source_ids: Sequence[Ids],
    target_ids: Sequence[Ids],
    location: str,
    first_row: int = 1,
    seen_pairs: SeenPairs | None = None,
) -> FilterReasons:
    """Say of each pair of a chunk why it is left out, or `FilterReason.KEPT`.

    `at` names the data in errors, and `first` is the number of the chunk's first pair in it.
    Without `seen` no pair counts as one that has come before.
    """
    sides = zip(pairs, source_ids, target_ids, strict=True)
    lengths = np.array([(len(source), len(target)) for _, source, target in sides]).reshape(-1, 2)
    empty = np.array([not (pair.source.strip() and pair.target.strip()) for pair in pairs], bool)
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    ratio = np.inf if config.max_length_ratio is None else config.max_length_ratio
    # The first that holds is the one that counts.
    why = {
        FilterReason.EMPTY: empty,
        FilterReason.TOO_LONG: longer > config.max_length,
        FilterReason.TOO_SHORT: shorter < config.min_length,
        FilterReason.LENGTH_RATIO: longer > ratio * np.maximum(shorter, 1),
    }
    found = np.select(list(why.values()), list(why), FilterReason.KEPT).astype(np.uint8)
    _raise_on_first(found, pairs, lengths, config, location=location, first_row=first_row)
    if seen_pairs is not None and config.duplicates == "drop":
        kept = np.flatnonzero(found == FilterReason.KEPT)
        again = seen_pairs.mark_duplicates(hash_pairs([pairs[row] for row in kept.tolist()]))
        found[kept[again]] = FilterReason.DUPLICATE
    return found


def make_report(
    reasons: FilterReasons, pairs: Sequence[Pair], config: FilterConfig, *, first_row: int = 1
) -> FilterReport:
    """Count what was found in a chunk whose first pair has this number."""
    rows_by_reason = [np.flatnonzero(reasons == reason) for reason in FilterReason]
    return FilterReport(
        config,
        counts=[len(each) for each in rows_by_reason],
        first_rows=[first_row + int(each[0]) if len(each) else 0 for each in rows_by_reason],
        carriage_returns=sum(map(_has_carriage_return, pairs)),
    )


def merge_reports(reports: Iterable[FilterReport]) -> FilterReport:
    """Put the reports on all chunks of a corpus together, in whatever order they come."""
    reports = list(reports)
    firsts = [
        min(filter(None, numbers), default=0)
        for numbers in zip(*(each.first_rows for each in reports), strict=True)
    ]
    return FilterReport(
        reports[0].config,
        counts=[sum(each) for each in zip(*(each.counts for each in reports), strict=True)],
        first_rows=firsts,
        carriage_returns=sum(each.carriage_returns for each in reports),
    )


def check_not_empty(report: FilterReport, *, location: str) -> None:
    """Refuse a corpus of which no pair is kept."""
    if report.num_kept:
        return
    named = _summary_messages(report.config)
    counts = ", ".join(
        f"{report.counts[reason]} {text}"
        for reason, text in named.items()
        if report.counts[reason] or reason <= FilterReason.TOO_LONG
    )
    problem = f"no pair is left of {report.num_pairs}: {counts}"
    raise DataError(location, problem, "raise max_tokens, or give other data")


def filter_pairs(
    pairs: Sequence[Pair],
    config: FilterConfig,
    *,
    source_ids: Sequence[Ids],
    target_ids: Sequence[Ids],
    location: str,
) -> FilterResult:
    """Choose the rows of a whole corpus that are fit to learn from; `at` names it in errors."""
    found = compute_filter_reasons(
        pairs,
        config,
        source_ids=source_ids,
        target_ids=target_ids,
        location=location,
        seen_pairs=SeenPairs(),
    )
    report = make_report(found, pairs, config)
    check_not_empty(report, location=location)
    return FilterResult(np.flatnonzero(found == FilterReason.KEPT).tolist(), report)


def _has_carriage_return(pair: Pair) -> bool:
    return pair.source.endswith("\r") or pair.target.endswith("\r")


def _drop_messages(config: FilterConfig) -> dict[FilterReason, str]:
    return {
        FilterReason.EMPTY: "a side being empty",
        FilterReason.TOO_LONG: f"a side having more than {config.max_length} tokens",
        FilterReason.TOO_SHORT: f"a side having fewer than {config.min_length} tokens",
        FilterReason.LENGTH_RATIO: f"a side having more than {config.max_length_ratio} times the tokens of the other",
        FilterReason.DUPLICATE: "having come before",
    }


def _summary_messages(config: FilterConfig) -> dict[FilterReason, str]:
    return {
        FilterReason.EMPTY: "with an empty side",
        FilterReason.TOO_LONG: f"with more than {config.max_length} tokens on a side",
        FilterReason.TOO_SHORT: f"with fewer than {config.min_length} tokens on a side",
        FilterReason.LENGTH_RATIO: f"with more than {config.max_length_ratio} times the tokens on one side",
    }


def _raise_on_first(
    reasons: FilterReasons,
    pairs: Sequence[Pair],
    lengths: NDArray[np.int64],
    config: FilterConfig,
    *,
    location: str,
    first_row: int,
) -> None:
    """Refuse the first pair that is empty or too long, if the policy is to refuse it."""
    policies = {FilterReason.EMPTY: config.on_empty, FilterReason.TOO_LONG: config.on_too_long}
    refused = [reason for reason, policy in policies.items() if policy == "error"]
    for row in np.flatnonzero(np.isin(reasons, refused)).tolist():
        where = f"{location}, pair {first_row + row}"
        if reasons[row] == FilterReason.EMPTY:
            raise _empty_error(pairs[row], where)
        source, target = lengths[row].tolist()
        raise _too_long_error(source, target, config, where)


def _empty_error(pair: Pair, location: str) -> DataError:
    side = "target" if pair.source.strip() else "source"
    return DataError(location, f"the {side} is empty", "mend the pair, or set `empty: drop`")


def _too_long_error(source: int, target: int, config: FilterConfig, location: str) -> DataError:
    side = "source" if source > config.max_length else "target"
    return DataError(
        location,
        f"the {side} has {max(source, target)} tokens, more than max_tokens ({config.max_length})",
        "raise max_tokens, shorten the pair, or set `too_long: drop`",
    )


_NUM_FILES = 256
_BUFFER_SIZE = 2**20  # hashes put down at once
_ENTRY = np.dtype([("hash", "<u8"), ("row", "<u8")])


class DuplicateFinder:
    """The hashes of the rows of a corpus, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buffer = list[NDArray[np.void]]()
        self._count = 0
        self._rows = 0

    def add(self, hashes: Hashes) -> None:
        """Take in the hashes of the next rows."""
        entries = np.empty(len(hashes), dtype=_ENTRY)
        entries["hash"] = hashes
        entries["row"] = np.arange(self._rows, self._rows + len(hashes))
        self._rows += len(hashes)
        self._buffer.append(entries)
        self._count += len(hashes)
        if self._count >= _BUFFER_SIZE:
            self._flush()

    def write_duplicate_mask(self, path: Path, held_out: list[int]) -> None:
        """Write a byte for each row: 1 where an equal row that is not held out came before."""
        self._flush()
        with path.open("wb") as file:
            # Written, not only made so long: a full disk would otherwise end the process below.
            for first in range(0, self._rows, _BUFFER_SIZE):
                file.write(bytes(min(_BUFFER_SIZE, self._rows - first)))
        if not self._rows:
            return
        repeats = np.memmap(path, np.uint8, "r+")
        for each in self.folder.iterdir():
            entries = np.fromfile(each, dtype=_ENTRY)
            entries = entries[~np.isin(entries["row"], held_out)]
            entries = entries[np.argsort(entries["hash"], kind="stable")]
            again = entries["hash"][1:] == entries["hash"][:-1]
            repeats[entries["row"][1:][again]] = 1
        repeats.flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        entries = np.concatenate(self._buffer)
        numbers = entries["hash"] >> np.uint64(56)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(1, _NUM_FILES + 1))
        for number, some in enumerate(np.split(entries[order], ends[:-1])):
            if len(some):
                path = self.folder / f"{number:02x}"
                with explain_os_errors(path), path.open("ab") as file:
                    file.write(some.tobytes())
        self._buffer, self._count = [], 0

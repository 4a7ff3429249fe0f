"""Filtering of parallel corpora, and detection of duplicates in corpora larger than memory.

A pair is dropped only by a setting, and counted once, for the first reason that holds. All but
the last reason look at a pair alone. Invariant: filtering a corpus in chunks, in any order and
by any number of workers, gives the rows and counts of filtering it at once.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from heedful.config import BaseConfig
from heedful.data.text.pair_dataset import Hashes, Pair, combine_hashes, hash_texts
from heedful.errors import DataError, check, format_count
from heedful.storage.atomic import explain_os_errors

Ids = Sequence[int]
FilterReasons = NDArray[np.uint8]


class FilterConfig(BaseConfig):
    """Which pairs are used for training."""

    max_length: PositiveInt = 256
    """Maximum number of tokens on either side, without BOS and EOS."""
    on_empty: Literal["drop", "error"] = "drop"
    """What to do with a pair that has an empty side, or only white space there."""
    on_too_long: Literal["drop", "error"] = "drop"
    """What to do with a pair that has more than `max_length` tokens on a side."""
    min_length: PositiveInt = 1
    """Minimum number of tokens on either side; shorter pairs are dropped."""
    max_length_ratio: Annotated[float, Field(ge=1)] | None = None
    """Maximum ratio of the lengths of both sides; other pairs are dropped."""
    duplicates: Literal["keep", "drop"] = "keep"
    """What to do with a pair that equals an earlier one on both sides."""


class FilterReason(IntEnum):
    """Why a pair is dropped."""

    KEPT, EMPTY, TOO_LONG, TOO_SHORT, LENGTH_RATIO, DUPLICATE = range(6)


class FilterReport(NamedTuple):
    """Numbers of pairs kept and dropped, by reason."""

    config: FilterConfig
    counts: Sequence[int]
    first_rows: Sequence[int]  # number of the first such pair, counted from 1; 0 for none
    first_locations: Sequence[str]  # where it was read

    @property
    def num_kept(self) -> int:
        """Pairs to train on."""
        duplicates = self.counts[FilterReason.DUPLICATE] if _keeps_duplicates(self.config) else 0
        return self.counts[FilterReason.KEPT] + duplicates

    @property
    def num_pairs(self) -> int:
        """All pairs."""
        return sum(self.counts)

    def to_metadata(self) -> dict[str, Any]:
        """Return all but the config, as JSON can hold it."""
        return {name: value for name, value in self._asdict().items() if name != "config"}

    def format_lines(self) -> list[str]:
        """Return one line per reason that dropped a pair."""
        lines = [f"{self.num_kept} of {format_count(self.num_pairs, 'pair')} kept"]
        for reason, message in _reason_messages(self.config).items():
            if self.counts[reason]:
                first = f"(first: {self.first_locations[reason]})"
                if reason == FilterReason.DUPLICATE and _keeps_duplicates(self.config):
                    hint = "; drop them with data.filtering.duplicates=drop"
                    lines.append(f"{self.counts[reason]} of them are {message} {first}{hint}")
                else:
                    lines.append(f"{self.counts[reason]} dropped: {message} {first}")
        return lines


def mark_duplicates(hashes: Hashes, seen: set[int]) -> NDArray[np.bool_]:
    """Return which hashes are seen already, and add all of them to `seen`."""
    is_duplicate = np.zeros(len(hashes), dtype=np.bool_)
    for index, value in enumerate(hashes.tolist()):
        is_duplicate[index] = value in seen
        seen.add(value)
    return is_duplicate


class ChunkFilter(NamedTuple):
    """How a chunk of examples is filtered, and how errors name them."""

    config: FilterConfig
    locate: Callable[[int], str]  # where an example of the chunk was read
    first_row: int = 1  # number of the first example
    duplicates: Collection[int] = ()  # examples that are known to be duplicates
    seen: set[int] | None = None  # hashes of earlier pairs, to find duplicates in memory


def compute_filter_reasons(
    pairs: Sequence[Pair], source_ids: Sequence[Ids], target_ids: Sequence[Ids], chunk: ChunkFilter
) -> FilterReasons:
    """Return the reason of each pair or `FilterReason.KEPT`; add the hashes of pairs to `seen`.

    Duplicates are marked even if they are kept.
    """
    config = chunk.config
    sides = zip(pairs, source_ids, target_ids, strict=True)
    lengths = np.array([(len(source), len(target)) for _, source, target in sides]).reshape(-1, 2)
    is_empty = np.array([not (pair.source.strip() and pair.target.strip()) for pair in pairs], bool)
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    max_ratio = np.inf if config.max_length_ratio is None else config.max_length_ratio
    conditions = {  # the first that holds counts
        FilterReason.EMPTY: is_empty,
        FilterReason.TOO_LONG: longer > config.max_length,
        FilterReason.TOO_SHORT: shorter < config.min_length,
        FilterReason.LENGTH_RATIO: longer > max_ratio * np.maximum(shorter, 1),
    }
    reasons = np.select(list(conditions.values()), list(conditions), FilterReason.KEPT)
    reasons = reasons.astype(np.uint8)
    policies = {FilterReason.EMPTY: config.on_empty, FilterReason.TOO_LONG: config.on_too_long}
    rejected = [reason for reason, policy in policies.items() if policy == "error"]
    for row in np.flatnonzero(np.isin(reasons, rejected)).tolist():
        raise _rejection(pairs[row], lengths[row], config, chunk.locate(row))
    kept = np.flatnonzero(reasons == FilterReason.KEPT)
    is_duplicate = np.isin(kept, list(chunk.duplicates))
    if chunk.seen is not None:
        hashes = combine_hashes(hash_texts([pairs[row] for row in kept.tolist()]))
        is_duplicate |= mark_duplicates(hashes, chunk.seen)
    reasons[kept[is_duplicate]] = FilterReason.DUPLICATE
    return reasons


def kept_rows(reasons: FilterReasons, config: FilterConfig) -> list[int]:
    """Return the rows that are trained on."""
    last = FilterReason.DUPLICATE if _keeps_duplicates(config) else FilterReason.KEPT
    return np.flatnonzero(np.isin(reasons, [FilterReason.KEPT, last])).tolist()


def _keeps_duplicates(config: FilterConfig) -> bool:
    return config.duplicates == "keep"


def _rejection(
    pair: Pair, lengths: NDArray[np.int64], config: FilterConfig, location: str
) -> DataError:
    """Return the error of a pair that is empty or too long."""
    if not (pair.source.strip() and pair.target.strip()):
        side = "target" if pair.source.strip() else "source"
        return DataError(location, f"the {side} is empty", "fix the pair, or set `on_empty: drop`")
    side = "source" if lengths[0] > config.max_length else "target"
    count = format_count(lengths.max(), "token")
    message = f"the {side} has {count}, more than max_length ({config.max_length})"
    hint = "raise max_length, shorten the pair, or set `on_too_long: drop`"
    return DataError(location, message, hint)


def make_report(reasons: FilterReasons, chunk: ChunkFilter) -> FilterReport:
    """Count the reasons of a chunk."""
    rows_by_reason = [np.flatnonzero(reasons == reason) for reason in FilterReason]
    counts = [len(rows) for rows in rows_by_reason]
    first_rows = [chunk.first_row + int(rows[0]) if len(rows) else 0 for rows in rows_by_reason]
    locations = [chunk.locate(int(rows[0])) if len(rows) else "" for rows in rows_by_reason]
    return FilterReport(chunk.config, counts, first_rows, locations)


def merge_reports(reports: Iterable[FilterReport]) -> FilterReport:
    """Merge the reports of all chunks of a corpus, in any order."""
    configs, counts, first_rows, locations = zip(*reports, strict=True)
    columns = zip(zip(*first_rows, strict=True), zip(*locations, strict=True), strict=True)
    firsts = [
        min((first for first in zip(*column, strict=True) if first[0]), default=(0, ""))
        for column in columns
    ]
    return FilterReport(
        configs[0],
        [sum(column) for column in zip(*counts, strict=True)],
        [row for row, _ in firsts],
        [location for _, location in firsts],
    )


def check_not_empty(report: FilterReport, *, location: str) -> None:
    """Raise DataError if no pair is kept."""
    counts = ", ".join(
        f"{report.counts[reason]} with {message}"
        for reason, message in _reason_messages(report.config).items()
        if report.counts[reason] or reason <= FilterReason.TOO_LONG
    )
    message = f"nothing is left of {format_count(report.num_pairs, 'pair')}: {counts}"
    check(report.num_kept, location, message, "raise max_length, or give other data", DataError)


def _reason_messages(config: FilterConfig) -> dict[FilterReason, str]:
    ratio = config.max_length_ratio
    return {
        FilterReason.EMPTY: "an empty side",
        FilterReason.TOO_LONG: f"more than {format_count(config.max_length, 'token')} on a side",
        FilterReason.TOO_SHORT: f"fewer than {format_count(config.min_length, 'token')} on a side",
        FilterReason.LENGTH_RATIO: f"a side more than {ratio} times as long as the other",
        FilterReason.DUPLICATE: "duplicates of an earlier pair",
    }


_FILE_BITS = 4  # of a hash: 16 files, of 100 MB each for 100 million pairs
_BUFFER_SIZE = 2**20  # hashes written at once
_ENTRY = np.dtype([("hash", "<u8"), ("row", "<u8")])


class DuplicateFinder:
    """Finds duplicates with files of hashes, partitioned by first bits: one file fits in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buffer: list[NDArray[np.void]] = []
        self._num_rows = 0

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of the next rows."""
        entries = np.empty(len(hashes), dtype=_ENTRY)
        entries["hash"] = hashes
        entries["row"] = np.arange(self._num_rows, self._num_rows + len(hashes))
        self._num_rows += len(hashes)
        self._buffer.append(entries)
        if sum(map(len, self._buffer)) >= _BUFFER_SIZE:
            self._flush()

    def write_duplicate_mask(self, path: Path, left_out: Sequence[int]) -> None:
        """Write a byte per row: 1 if an equal row that is not left out came before."""
        self._flush()
        with path.open("wb") as file:
            # Write zeros instead of extending the file: a full disk would kill the process below.
            for start in range(0, self._num_rows, _BUFFER_SIZE):
                file.write(bytes(min(_BUFFER_SIZE, self._num_rows - start)))
        if not self._num_rows:
            return
        mask = np.memmap(path, np.uint8, "r+")
        for file_path in self.folder.iterdir():
            entries = np.fromfile(file_path, dtype=_ENTRY)
            entries = entries[~np.isin(entries["row"], left_out)]
            entries = entries[np.argsort(entries["hash"], kind="stable")]
            is_duplicate = entries["hash"][1:] == entries["hash"][:-1]
            mask[entries["row"][1:][is_duplicate]] = 1
        mask.flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        entries = np.concatenate(self._buffer)
        indices = entries["hash"] >> np.uint64(64 - _FILE_BITS)
        order = np.argsort(indices, kind="stable")
        ends = np.searchsorted(indices[order], np.arange(1, 2**_FILE_BITS + 1))
        for index, file_entries in enumerate(np.split(entries[order], ends[:-1])):
            if len(file_entries):
                path = self.folder / f"{index:x}"
                with explain_os_errors(path), path.open("ab") as file:
                    file.write(file_entries.tobytes())
        self._buffer = []

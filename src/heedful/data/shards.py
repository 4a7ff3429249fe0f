"""Shards: the tokens of a corpus in files, read from where they lie.

A shard is a folder that is written whole or not at all: the tokens of its texts one after the
other, then where each begins, and a manifest with their hash. What is read of it is what a batch
needs; memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.cutting import Cut, unweave
from heedful.data.order import Integers
from heedful.data.store import PairStore, offsets_of, places
from heedful.storage import replacing, write_manifest

TOKENS = "tokens.bin"
FACTS = "shard"
_ALIGNMENT = 8  # bytes: the table of beginnings stands at a multiple of it

Values = NDArray[np.integer[Any]]


class Shard(NamedTuple):
    """Tokens, and where each text begins among them, both in a file."""

    values: Values
    bounds: Values  # one more than there are texts


def write_shard(
    folder: Path, cuts: Iterable[Cut], facts: dict[str, Any], *, before: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Write a shard; `before` are tokens of no text that begin it. Give what the cuts report."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        with (temporary / TOKENS).open("wb") as file:
            lengths, reports, kind = [np.array([len(before)])], list[dict[str, Any]](), "<u2"
            for cut in cuts:
                values = cut.values.astype(cut.values.dtype.newbyteorder("<"), copy=False)
                if not reports:
                    file.write(np.array(before, dtype=values.dtype).tobytes())
                file.write(values.tobytes())
                lengths.append(cut.lengths)
                reports.append(cut.facts)
                kind = values.dtype.str
            bounds = np.cumsum(np.concatenate(lengths))
            bounds = bounds.astype("<u4" if bounds[-1] < 2**32 else "<u8")
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(bounds.tobytes())
        sizes = {"tokens": int(bounds[-1]), "texts": len(bounds) - 1}
        kinds = {"values": kind, "bounds": bounds.dtype.str}
        about = {**facts, **sizes, **kinds, "reports": reports}
        write_manifest(temporary, [temporary / TOKENS], {FACTS: about})
    return reports


def open_shard(folder: Path, facts: dict[str, Any]) -> Shard:
    """Open a shard that is known to be sound."""
    values, bounds = np.dtype(facts["values"]), np.dtype(facts["bounds"])
    size = facts["tokens"] * values.itemsize
    file = np.memmap(folder / TOKENS, np.uint8, "r")
    # A plain array: a memory map is slower to take from.
    whole = np.asarray(file)
    table = whole[size + -size % _ALIGNMENT :]
    return Shard(whole[:size].view(values), table.view(bounds))


class Joined:
    """Shards whose items are numbered through."""

    def __init__(self, shards: Sequence[Shard], sizes: Iterable[int]) -> None:
        self.shards = shards
        self._offsets = offsets_of(np.array(list(sizes), dtype=np.int64))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def find(self, items: Integers) -> Iterator[tuple[Shard, Integers, Integers]]:
        """Give each shard that has some of these items, which they are, and their numbers in it."""
        owners = np.searchsorted(self._offsets, items, side="right") - 1
        order = np.argsort(owners, kind="stable")
        edges = np.flatnonzero(np.diff(owners[order])) + 1
        for here in np.split(order, edges) if len(order) else ():
            owner = owners[here[0]]
            yield self.shards[owner], here, items[here] - self._offsets[owner]


class ShardedPairs(Joined):
    """A tokenised parallel corpus in shards: of every pair the source, then the target."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.bounds) // 2 for shard in shards))

    def lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        sources, targets = np.empty((2, len(rows)), dtype=np.int64)
        for shard, here, found in self.find(rows):
            _, sources[here], targets[here] = _pair_bounds(shard, found)
        return sources, targets

    def take(self, rows: Integers) -> PairStore:
        """These rows, in this order, in memory."""
        values, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        order = [np.empty(0, np.int64)]
        for shard, here, found in self.find(rows):
            starts, sources, targets = _pair_bounds(shard, found)
            values.append(shard.values[places(starts, sources + targets)].astype(np.int32))
            lengths.append(np.stack([sources, targets], axis=1).ravel())
            order.append(here)
        taken = unweave(np.concatenate(values), np.concatenate(lengths))
        return taken.take(np.argsort(np.concatenate(order)))

    def in_epoch(self, epoch: int) -> ShardedPairs:
        """All of it, in every epoch."""
        del epoch
        return self


def _pair_bounds(shard: Shard, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """Where pairs begin, and how long their sources and targets are."""
    places = 2 * rows[:, None] + np.arange(3)
    starts, middles, ends = shard.bounds[places].astype(np.int64).T
    return starts, middles - starts, ends - middles


class ShardedRow(Joined):
    """Running text in shards: one long row of tokens, asked for by their places."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards, (len(shard.values) for shard in shards))

    def __getitem__(self, asked: Integers | slice) -> NDArray[np.int32]:
        if isinstance(asked, slice):
            asked = np.arange(*asked.indices(len(self)))
        found = np.empty(asked.size, dtype=np.int32)
        for shard, here, where in self.find(asked.ravel()):
            found[here] = shard.values[where]
        return found.reshape(asked.shape)

"""The two passes over a corpus that becomes token shards.

The first pass counts the examples of each shard, hashes their texts and samples examples for
tokenizers; the second sends the examples of missing shards to be tokenized. Invariants: no shard
contains examples of two sources; the second pass raises if the texts of a shard have changed.
"""

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.sources import SourceConfig
from heedful.data.text.example_formats import CHUNK_SIZE, TextChunk, TokenizedChunk
from heedful.errors import DataError

ByteMask = NDArray[np.uint8]


class ExampleBlock(NamedTuple):
    """Consecutive examples of a shard."""

    shard: int
    corpus_index: int
    first_row: int  # in the whole data
    source_row: int  # in the source
    examples: list[Any]
    texts: bytes  # the same as JSON


class ShardSpec(NamedTuple):
    """Which examples a shard contains."""

    corpus_index: int
    num_rows: int
    digest: str  # of their texts


class ShardingPlan(NamedTuple):
    """How a corpus is divided."""

    num_rows: int
    held_out: list[int]  # rows of the dev set
    left_out: list[int]  # rows that are not trained on: those and what shares a text with them
    shards: list[ShardSpec]


def iter_blocks(sources: Sequence[SourceConfig], shard_size: int) -> Iterator[ExampleBlock]:
    """Yield the examples of all sources in blocks; no shard contains two sources."""
    shard = row = 0
    for corpus_index, source in enumerate(sources):
        stream, num_in_shard, source_start = source.stream(), 0, row
        while examples := list(islice(stream, min(shard_size - num_in_shard, CHUNK_SIZE))):
            texts = json.dumps(examples, ensure_ascii=False).encode()
            yield ExampleBlock(shard, corpus_index, row, row - source_start, examples, texts)
            row += len(examples)
            num_in_shard += len(examples)
            if num_in_shard == shard_size:
                shard, num_in_shard = shard + 1, 0
        if num_in_shard:
            shard += 1


class ReservoirSampler:
    """A uniform sample of at most `size` examples of a stream (Vitter 1985)."""

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._sample: list[tuple[int, Any]] = []
        self._random = Random(seed)

    def add(self, first_row: int, examples: Sequence[Any]) -> None:
        """Add examples, of which the first is in this row."""
        for row, example in enumerate(examples, first_row):
            if row < self.size:
                self._sample.append((row, example))
            elif (slot := int(self._random.random() * (row + 1))) < self.size:
                self._sample[slot] = row, example

    def exclude_rows(self, rows: Sequence[int]) -> list[Any]:
        """Return the sample without these rows, in the order of the stream."""
        excluded = set(rows)
        sample = sorted(self._sample, key=lambda item: item[0])
        return [example for row, example in sample if row not in excluded]


class ShardCounter:
    """Counts the rows of each shard and hashes its texts."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.specs: list[ShardSpec] = []

    def add(self, block: ExampleBlock) -> None:
        """Count the examples of a block."""
        if block.shard == len(self.specs):
            self._digest = blake2b(digest_size=16)
            self.specs.append(ShardSpec(block.corpus_index, 0, ""))
        self._digest.update(block.texts)
        self.num_rows += len(block.examples)
        num_rows = self.specs[-1].num_rows + len(block.examples)
        self.specs[-1] = ShardSpec(block.corpus_index, num_rows, self._digest.hexdigest())


@dataclass(frozen=True)
class TokenizationPass:
    """The second pass: tokenizes missing shards and collects the held-out examples."""

    sources: Sequence[SourceConfig]
    plan: ShardingPlan
    missing: Collection[int]
    shard_size: int
    duplicate_mask: ByteMask
    on_progress: Callable[[int], None]
    held_out: list[tuple[str, Any]] = field(default_factory=list)  # with where each was read
    requested_shards: deque[int] = field(default_factory=deque)
    _counter: ShardCounter = field(default_factory=ShardCounter)

    def chunks(self) -> Iterator[TextChunk]:
        """Yield the chunks of missing shards, and note the shard of each in `requested_shards`."""
        for block in iter_blocks(self.sources, self.shard_size):
            self._counter.add(block)
            end = block.first_row + len(block.examples)
            held_out = rows_between(self.plan.held_out, block.first_row, end)
            left_out = rows_between(self.plan.left_out, block.first_row, end)
            locate = self.sources[block.corpus_index].locate
            self.held_out.extend(
                (locate(block.source_row + row), block.examples[row]) for row in held_out
            )
            if block.shard in self.missing:
                self.requested_shards.append(block.shard)
                duplicates = np.flatnonzero(self.duplicate_mask[block.first_row : end]).tolist()
                first_row = block.first_row - bisect_left(self.plan.left_out, block.first_row)
                source = block.corpus_index, block.source_row
                yield TextChunk(block.texts, *source, first_row, left_out, duplicates)
            self.on_progress(end)

    def verified(self, shard: int, chunks: Iterable[TokenizedChunk]) -> Iterator[TokenizedChunk]:
        """Yield the chunks of a shard; raise DataError at its end if its texts have changed."""
        yield from chunks
        self.check_unchanged(slice(shard, shard + 1))

    def check_unchanged(self, shards: slice = slice(None)) -> None:
        """Raise DataError if the data of these shards has changed since the first pass."""
        current, planned = self._counter.specs, self.plan.shards
        if current[shards] == planned[shards]:
            return
        are_equal = [spec == other for spec, other in zip(current, planned, strict=False)]
        num_equal = [*are_equal, False].index(False)
        first_row = 1 + sum(spec.num_rows for spec in planned[:num_equal])
        raise DataError(
            "; ".join(source.describe() for source in self.sources),
            f"the data has changed since it was first read, at example {first_row} or later",
            "restore it, or delete the tokens made from it and run the same command again",
        )


def rows_between(rows: Sequence[int], first: int, end: int) -> list[int]:
    """Return the sorted rows from `first` to `end`, counted from `first`."""
    return [row - first for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]]

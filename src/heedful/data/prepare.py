"""Preparation: from pairs of texts to a store of tokens, and from a store to its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from heedful.data.batching import BatchingConfig, Shape, batches
from heedful.data.collate import Batch, collate, side_lengths
from heedful.data.order import permute
from heedful.data.records import Pair
from heedful.data.selection import SelectionConfig, SelectionReport, select
from heedful.data.store import PairStore, Ragged
from heedful.errors import DataError
from heedful.text.config import TextPair

MAX_HELD_OUT = 1000
HELD_OUT_SHARE = 20  # one pair in so many


class Position(NamedTuple):
    """Where training stands in its data."""

    epoch: int
    batch: int  # batches of the epoch already seen


def hold_out(pairs: Sequence[Pair], *, seed: int, at: str) -> tuple[list[Pair], list[Pair]]:
    """Part pairs into those to learn from and a few to validate on."""
    if len(pairs) < 2:
        raise DataError(
            at,
            "one pair is too few: one is needed to learn from and one to validate on",
            "give more lines, or files to validate on: --dev-source FILE --dev-target FILE",
        )
    count = max(1, min(MAX_HELD_OUT, len(pairs) // HELD_OUT_SHARE))
    chosen = permute(np.arange(count), len(pairs), seed=seed, epoch=-1)
    held_out = set(chosen.tolist())
    learned = [pair for row, pair in enumerate(pairs) if row not in held_out]
    return learned, [pairs[row] for row in sorted(held_out)]


def tokenise(
    pairs: Sequence[Pair], text: TextPair, config: SelectionConfig, *, at: str
) -> tuple[PairStore, SelectionReport]:
    """Turn pairs into tokens and leave out those that are not fit."""
    sources = text.source.encode_all([pair.source for pair in pairs])
    targets = text.target.encode_all([pair.target for pair in pairs])
    selected = select(pairs, config, source_ids=sources, target_ids=targets, at=at)
    store = PairStore(
        Ragged.pack([sources[row] for row in selected.rows]),
        Ragged.pack([targets[row] for row in selected.rows]),
    )
    return store, selected.report


def fingerprint(store: PairStore) -> str:
    """Tell one corpus from another."""
    digest = hashlib.blake2b(digest_size=16)
    for side in store:
        digest.update(side.offsets.tobytes())
        digest.update(side.values.tobytes())
    return digest.hexdigest()


def epoch_shapes(
    store: PairStore, config: BatchingConfig, *, seed: int, epoch: int
) -> Iterator[Shape]:
    """The batches of an epoch, before they are tensors."""
    lengths = side_lengths(store.source), side_lengths(store.target)
    return batches(*lengths, config, seed=seed, epoch=epoch)


class BatchStream:
    """Batches without end, epoch after epoch; `position` says where to go on."""

    def __init__(
        self, store: PairStore, config: BatchingConfig, *, seed: int, position: Position
    ) -> None:
        self.store = store
        self.config = config
        self.seed = seed
        self.position = position

    def __iter__(self) -> Iterator[Batch]:
        while True:
            epoch, seen = self.position
            shapes = epoch_shapes(self.store, self.config, seed=self.seed, epoch=epoch)
            for shape in islice(shapes, seen, None):
                seen += 1
                self.position = Position(epoch, seen)
                yield collate(self.store, shape)
            self.position = Position(epoch + 1, 0)

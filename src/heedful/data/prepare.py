"""Preparation: from pairs of texts to a store of tokens, and from a store to its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from heedful.data.batching import BatchingConfig, Shape, epoch_batches
from heedful.data.collate import Batch, collate
from heedful.data.cutting import CHUNK, Cut, cut_pairs, unweave
from heedful.data.order import marking_last, permute
from heedful.data.records import Pair
from heedful.data.selection import (
    Seen,
    SelectionConfig,
    SelectionReport,
    join_reports,
    refuse_nothing_left,
)
from heedful.data.store import Held, Pairs, PairStore
from heedful.errors import DataError
from heedful.text.config import TextPair

MAX_HELD_OUT = 1000
HELD_OUT_SHARE = 20  # one pair in so many


class Position(NamedTuple):
    """Where training stands in its data."""

    epoch: int
    batch: int  # batches of the epoch already seen
    window: int = 0  # which the last of them was of: what lies before need not be cut again
    before: int = 0  # batches of the epoch before that window


def held_out_rows(count: int, *, seed: int, at: str) -> list[int]:
    """Choose the few of so many pairs that are validated on."""
    if count < 2:
        raise DataError(
            at,
            "one pair is too few: one is needed to learn from and one to validate on",
            "give more lines, or files to validate on: --dev-source FILE --dev-target FILE",
        )
    few = max(1, min(MAX_HELD_OUT, count // HELD_OUT_SHARE))
    return sorted(permute(np.arange(few), count, seed=seed, epoch=-1).tolist())


def hold_out(pairs: Sequence[Pair], *, seed: int, at: str) -> tuple[list[Pair], list[Pair]]:
    """Part pairs into those to learn from and a few to validate on."""
    rows = held_out_rows(len(pairs), seed=seed, at=at)
    chosen = set(rows)
    learned = [pair for row, pair in enumerate(pairs) if row not in chosen]
    return learned, [pairs[row] for row in rows]


def tokenise(
    pairs: Sequence[Pair], text: TextPair, config: SelectionConfig, *, at: str
) -> tuple[PairStore, SelectionReport]:
    """Turn pairs into tokens and leave out those that are not fit."""
    (store,), report = tokenise_parts([pairs], text, config, at=at)
    return store, report


def tokenise_parts(
    parts: Sequence[Sequence[Pair]], text: TextPair, config: SelectionConfig, *, at: str
) -> tuple[list[PairStore], SelectionReport]:
    """Turn the pairs of several sources into tokens; they are numbered through."""
    seen, number = Seen(), 1
    stores, reports = list[PairStore](), list[SelectionReport]()
    for pairs in parts:
        cuts = list[Cut]()
        for start in range(0, max(1, len(pairs)), CHUNK):
            some = pairs[start : start + CHUNK]
            cut, report = cut_pairs(some, text, config, at=at, first=number, seen=seen)
            cuts.append(cut)
            reports.append(report)
            number += len(some)
        values = np.concatenate([cut.values for cut in cuts])
        stores.append(unweave(values, np.concatenate([cut.lengths for cut in cuts])))
    whole = join_reports(reports)
    refuse_nothing_left(whole, at=at)
    return stores, whole


def fingerprint(store: PairStore) -> str:
    """Tell one corpus from another."""
    digest = hashlib.blake2b(digest_size=16)
    for side in store:
        digest.update(side.offsets.tobytes())
        digest.update(side.values.tobytes())
    return digest.hexdigest()


def epoch_shapes(store: Pairs, config: BatchingConfig, *, seed: int, epoch: int) -> Iterator[Shape]:
    """The batches of an epoch, before they are tensors."""
    for placed in epoch_batches(store, config, seed=seed, epoch=epoch):
        yield placed.shape


class BatchStream:
    """Batches without end, epoch after epoch; `position` says where to go on."""

    def __init__(
        self, store: Pairs, config: BatchingConfig, *, seed: int, position: Position
    ) -> None:
        self.store = store
        self.config = config
        self.seed = seed
        self.position = position

    def __iter__(self) -> Iterator[Batch]:
        while True:
            start, epoch = self.position, self.position.epoch
            store = Held(self.store.in_epoch(epoch))
            placed = epoch_batches(
                store, self.config, seed=self.seed, epoch=epoch, window=start.window
            )
            left = islice(enumerate(placed, start.before), start.batch - start.before, None)
            for (number, (shape, window, place)), is_last in marking_last(left):
                here = Position(epoch, number + 1, window, number - place)
                self.position = Position(epoch + 1, 0) if is_last else here
                yield collate(store, shape)
            self.position = Position(epoch + 1, 0)  # a mixture may have an epoch of no rows

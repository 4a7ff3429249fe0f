"""Regularisation: which pieces are the texts of an epoch cut into?

A store is seen through a chance that cuts its texts anew in every epoch (Kudo 2018; Provilkov et
al. 2020). The text stays the same, and how it is cut follows from (seed, epoch, row, side) alone:
not from who else is in the batch, what was cut before, or how many read the store.
"""

from __future__ import annotations

import numpy as np

from heedful.data.mixing import join
from heedful.data.order import Integers, permute
from heedful.data.store import Pairs, PairStore, Ragged, offsets_of
from heedful.text.chance import Words
from heedful.text.config import Recutters
from heedful.text.cuts import Sequences
from heedful.text.recutting import Recutter

_ROWS_AT_ONCE = 1024  # so that what is kept of a text to cut it quickly stays bounded
_KEYS = 2**62


class Recut:
    """A store whose texts are cut anew in every epoch.

    Batches are planned by the lengths that the texts then have, so these must be known a window
    at a time. What was cut to know them is kept until the next window is asked for.
    """

    def __init__(self, store: Pairs, recutters: Recutters, *, seed: int, epoch: int = 0) -> None:
        self.store = store.in_epoch(epoch)
        self.recutters = recutters
        self.seed = seed
        self.epoch = epoch
        self._kept_rows = np.empty(0, dtype=np.int64)
        self._kept = self._cut(self._kept_rows)

    def __len__(self) -> int:
        return len(self.store)

    def in_epoch(self, epoch: int) -> Recut:
        """The same texts, cut as they are in this epoch."""
        if epoch == self.epoch:
            return self
        return Recut(self.store, self.recutters, seed=self.seed, epoch=epoch)

    def lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How long the sources and the targets of these rows are."""
        order = np.argsort(rows)
        self._kept_rows, self._kept = rows[order], self._cut(rows[order])
        back = np.argsort(order)
        return self._kept.lengths(back)

    def take(self, rows: Integers) -> PairStore:
        """These rows, in this order."""
        places = np.searchsorted(self._kept_rows, rows)
        is_kept = places < len(self._kept_rows)
        if is_kept.all() and (self._kept_rows[places] == rows).all():
            return self._kept.take(places)
        return self._cut(rows)

    def _cut(self, rows: Integers) -> PairStore:
        starts = range(0, max(1, len(rows)), _ROWS_AT_ONCE)
        return join([self._cut_some(rows[start : start + _ROWS_AT_ONCE]) for start in starts])

    def _cut_some(self, rows: Integers) -> PairStore:
        sides = zip(self.store.take(rows), self.recutters, strict=True)
        return PairStore(
            *(
                _recut(side, recutter, self._keys(rows, number)) if recutter else side
                for number, (side, recutter) in enumerate(sides)
            )
        )

    def _keys(self, rows: Integers, side: int) -> Words:
        # The order of an epoch is drawn with epochs from 0, and what is held out with -1.
        number = -2 - (2 * self.epoch + side)
        return permute(rows, _KEYS, seed=self.seed, epoch=number).astype(np.uint64)


def _recut(side: Ragged, recutter: Recutter, keys: Words) -> Ragged:
    cut = recutter.cut(Sequences(side.values, side.lengths), keys)
    return Ragged(cut.ids, offsets_of(cut.lengths))

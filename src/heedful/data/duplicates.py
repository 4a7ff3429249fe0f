"""Duplicates: which pairs of a corpus larger than memory have come before?

The hashes of all pairs lie in files, parted by their first byte: equal ones are in one file, and
a file at a time fits into memory. Which pair is the first of its like does not depend on chunks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.data.selection import Hashes
from heedful.storage import explaining_failures

_NUM_FILES = 256
_BUFFERED = 2**20  # hashes put down at once
_ENTRY = np.dtype([("hash", "<u8"), ("row", "<u8")])


class HashFiles:
    """The hashes of the rows of a corpus, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting = list[NDArray[np.void]]()
        self._count = 0
        self._rows = 0

    def add(self, hashes: Hashes) -> None:
        """Take in the hashes of the next rows."""
        entries = np.empty(len(hashes), dtype=_ENTRY)
        entries["hash"] = hashes
        entries["row"] = np.arange(self._rows, self._rows + len(hashes))
        self._rows += len(hashes)
        self._waiting.append(entries)
        self._count += len(hashes)
        if self._count >= _BUFFERED:
            self._put_down()

    def write_repeats(self, path: Path, held_out: list[int]) -> None:
        """Write a byte for each row: 1 where an equal row that is not held out came before."""
        self._put_down()
        with path.open("wb") as file:
            # Written, not only made so long: a full disk would otherwise end the process below.
            for first in range(0, self._rows, _BUFFERED):
                file.write(bytes(min(_BUFFERED, self._rows - first)))
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

    def _put_down(self) -> None:
        if not self._waiting:
            return
        entries = np.concatenate(self._waiting)
        numbers = entries["hash"] >> np.uint64(56)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(1, _NUM_FILES + 1))
        for number, some in enumerate(np.split(entries[order], ends[:-1])):
            if len(some):
                path = self.folder / f"{number:02x}"
                with explaining_failures(path), path.open("ab") as file:
                    file.write(some.tobytes())
        self._waiting, self._count = [], 0

"""Chunks: how much is worked on at a time, when nobody knows how much will come?

What lies in a file is there already: chunks are full. What comes through a pipe comes when its
writer likes, and the writer may be waiting for the answer to one line before it sends the next: a
chunk is what has arrived. Either way everything is in one chunk, in order; a bounded number of
items is held; and what goes wrong while reading is raised after all that came before it was given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from threading import Thread
from time import monotonic
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

PATIENCE = 0.02  # seconds that a line waits for others: unnoticed by people, long for a program


class _End(NamedTuple):
    """Nothing more comes, because all was read or because of an error."""

    error: Exception | None = None


def in_full(items: Iterable[Item], *, most: int) -> Iterator[list[Item]]:
    """Cut into chunks of `most` items; the last may be shorter."""
    chunk: list[Item] = []
    for item in _with_end(items):
        if isinstance(item, _End):
            yield from _last(chunk, item)
            return
        chunk.append(item)
        if len(chunk) == most:
            yield chunk
            chunk = []


def as_they_arrive(
    items: Iterable[Item], *, most: int, patience: float = PATIENCE
) -> Iterator[list[Item]]:
    """Cut into chunks of what has arrived, at least one and at most `most` items.

    A thread reads ahead, by `most` items and no further.
    """
    arrived: Queue[Item | _End] = Queue(maxsize=most)
    Thread(target=_fetch, args=(items, arrived), daemon=True).start()
    while True:
        chunk: list[Item] = []
        for item in _arrivals(arrived, most, patience):
            if isinstance(item, _End):
                yield from _last(chunk, item)
                return
            chunk.append(item)
        yield chunk


def _fetch(items: Iterable[Item], arrived: Queue[Item | _End]) -> None:
    # Python closes standard input as it exits, and dies of it if a thread is reading there; it
    # leaves alone what a thread still holds.
    held = sys.stdin
    for item in _with_end(items):
        arrived.put(item)
    del held


def _arrivals(arrived: Queue[Item | _End], most: int, patience: float) -> Iterator[Item | _End]:
    yield arrived.get()
    until = monotonic() + patience
    for _ in range(most - 1):
        try:
            yield arrived.get(timeout=max(0.0, until - monotonic()))
        except Empty:
            return


def _with_end(items: Iterable[Item]) -> Iterator[Item | _End]:
    try:
        yield from items
    except Exception as error:  # whatever it is, it is raised where the items are used
        yield _End(error)
    else:
        yield _End()


def _last(chunk: list[Item], end: _End) -> Iterator[list[Item]]:
    if chunk:
        yield chunk
    if end.error is not None:
        raise end.error

"""Locks: who is training in this folder?

One process at a time holds a folder. The operating system lets go of it when that process ends,
however it ends, so there is nothing to clear away.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import RunError
from heedful.storage import explaining_failures

_LOCK = ".lock"
_held = set[int]()  # descriptors


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, or say who does; a folder that nothing came into is gone afterwards."""
    descriptor = _hold(folder)
    try:
        yield
    finally:
        _remove_if_empty(folder)
        _held.discard(descriptor)
        os.close(descriptor)


def _hold(folder: Path) -> int:
    path = folder / _LOCK
    while True:
        with explaining_failures(path):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        _held.add(descriptor)
        _take(descriptor, folder)
        # Whoever held it may have removed it meanwhile; then it is another file that counts.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        _held.discard(descriptor)
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
        _held.discard(descriptor)
        os.close(descriptor)
        raise RunError(
            str(folder),
            f"{holder or 'another process'} is training here",
            "wait until it is done, or name another folder with --run",
        ) from None
    with explaining_failures(folder / _LOCK):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _let_go() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


# A process that this one forks must not hold on to the folder when this one is gone.
os.register_at_fork(after_in_child=_let_go)

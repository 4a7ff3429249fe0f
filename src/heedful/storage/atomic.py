"""Writing: how does a file or folder take its place without ever being half there?

What is written goes to a temporary name first, is forced to the disk, and only then takes its
place. Whoever reads finds the old contents or the new, never half of either.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import DiskFullError, RunError, StorageError

_TEMPORARY_PREFIX, _BACKUP_PREFIX = ".writing-", ".aside-"
_SPACE_MARGIN = 1.2  # times what is to be written; the rest is for what else grows meanwhile
_UNTOUCHED_NOTE = "what was saved before is untouched"
_MAKE_SPACE_HINT = "make space on the disk and give the same command again"


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Give a temporary place to write a file or folder to; it then replaces `path`."""
    temporary = temporary_path(path)
    with explain_os_errors(path):
        _make_folder(path.parent)
        try:
            yield temporary
            _fsync_tree(temporary)
            _exchange(temporary, path)
            fsync_path(path.parent)
        finally:
            _remove(temporary)


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Say what a user can do about a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedies = {
            errno.ENOSPC: _MAKE_SPACE_HINT,
            errno.EDQUOT: "make space in your quota and give the same command again",
            errno.EACCES: "allow writing there, or name another folder",
            errno.EROFS: "name a folder on a disk that can be written",
        }
        remedy = remedies.get(error.errno or 0, "check the disk and the folder")
        kind = DiskFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        problem = f"cannot be written ({reason.lower()}); {_UNTOUCHED_NOTE}"
        raise kind(str(path), problem, remedy) from error


def check_free_space(path: Path, size: int) -> None:
    """Refuse to begin to write so many bytes where they will not fit."""
    folder = next(each for each in path.absolute().parents if each.exists())
    free, needed = shutil.disk_usage(folder).free, _SPACE_MARGIN * size
    if free < needed:
        problem = (
            f"needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free; {_UNTOUCHED_NOTE}"
        )
        raise DiskFullError(str(path), problem, _MAKE_SPACE_HINT)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_replace(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_path(path: Path) -> None:
    """Remove a file or folder at once by its name, then its contents, however long that takes."""
    temporary = temporary_path(path)
    with explain_os_errors(path):
        path.rename(temporary)
        _remove(temporary)


def clean_up_interrupted(folder: Path) -> None:
    """Remove what an interrupted writer left behind, and restore what it had put aside."""
    with explain_os_errors(folder):
        for aside in folder.glob(f"{_BACKUP_PREFIX}*"):
            kept = folder / aside.name.removeprefix(_BACKUP_PREFIX)
            if kept.exists():
                _remove(aside)
            else:
                aside.rename(kept)
        for left in folder.glob(f"{_TEMPORARY_PREFIX}*"):
            _remove(left)


def fsync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, would outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_page_cache(folder: Path) -> None:
    """Let what is read next from the files of a folder come from the disk, not from memory."""
    if sys.platform == "linux":
        for path in filter(Path.is_file, folder.rglob("*")):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def temporary_path(path: Path) -> Path:
    """Name the place beside `path` that this process may write to and `clean_up_interrupted` clears."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}-{path.name}")


def _make_folder(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        fsync_path(each.parent)


def _fsync_tree(path: Path) -> None:
    inner = path.rglob("*") if path.is_dir() else ()
    for each in (*inner, path):
        fsync_path(each)


def _exchange(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        temporary.replace(path)
        return
    # A folder cannot be renamed onto a full one: put the old one aside, where `clean_up_interrupted` finds it.
    aside = path.with_name(f"{_BACKUP_PREFIX}{path.name}")
    _remove(aside)
    path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Locks: who is training in this folder?
#
# One process at a time holds a folder. The operating system lets go of it when that process ends,
# however it ends, so there is nothing to clear away.

_LOCK = ".lock"
_held_descriptors = set[int]()  # descriptors


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, or say who does; a folder that nothing came into is gone afterwards."""
    descriptor = _acquire(folder)
    try:
        yield
    finally:
        _remove_if_empty(folder)
        _held_descriptors.discard(descriptor)
        os.close(descriptor)


def _acquire(folder: Path) -> int:
    path = folder / _LOCK
    while True:
        with explain_os_errors(path):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        _held_descriptors.add(descriptor)
        _flock(descriptor, folder)
        # Whoever held it may have removed it meanwhile; then it is another file that counts.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        _held_descriptors.discard(descriptor)
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()


def _flock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
        _held_descriptors.discard(descriptor)
        os.close(descriptor)
        raise RunError(
            str(folder),
            f"{holder or 'another process'} is training here",
            "wait until it is done, or name another folder with --run",
        ) from None
    with explain_os_errors(folder / _LOCK):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _close_in_child() -> None:
    for descriptor in _held_descriptors:
        os.close(descriptor)
    _held_descriptors.clear()


# A process that this one forks must not hold on to the folder when this one is gone.
os.register_at_fork(after_in_child=_close_in_child)

"""Writing: how does a file or folder take its place without ever being half there?

What is written goes to a temporary name first, is forced to the disk, and only then takes its
place. Whoever reads finds the old contents or the new, never half of either.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import DiskFullError, StorageError

_TEMPORARY, _ASIDE = ".writing-", ".aside-"
_ROOM = 1.2  # times what is to be written; the rest is for what else grows meanwhile
_UNTOUCHED = "what was saved before is untouched"
_MAKE_SPACE = "make space on the disk and give the same command again"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary place to write a file or folder to; it then replaces `path`."""
    temporary = temporary_for(path)
    with explaining_failures(path):
        _make_folder(path.parent)
        try:
            yield temporary
            _force_all_to_disk(temporary)
            _swap(temporary, path)
            force_to_disk(path.parent)
        finally:
            _remove(temporary)


@contextmanager
def explaining_failures(path: Path) -> Iterator[None]:
    """Say what a user can do about a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedies = {
            errno.ENOSPC: _MAKE_SPACE,
            errno.EDQUOT: "make space in your quota and give the same command again",
            errno.EACCES: "allow writing there, or name another folder",
            errno.EROFS: "name a folder on a disk that can be written",
        }
        remedy = remedies.get(error.errno or 0, "check the disk and the folder")
        kind = DiskFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        problem = f"cannot be written ({reason.lower()}); {_UNTOUCHED}"
        raise kind(str(path), problem, remedy) from error


def require_space(path: Path, size: int) -> None:
    """Refuse to begin to write so many bytes where they will not fit."""
    folder = next(each for each in path.absolute().parents if each.exists())
    free, needed = shutil.disk_usage(folder).free, _ROOM * size
    if free < needed:
        problem = f"needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free; {_UNTOUCHED}"
        raise DiskFullError(str(path), problem, _MAKE_SPACE)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def discard(path: Path) -> None:
    """Remove a file or folder at once by its name, then its contents, however long that takes."""
    temporary = temporary_for(path)
    with explaining_failures(path):
        path.rename(temporary)
        _remove(temporary)


def sweep(folder: Path) -> None:
    """Remove what an interrupted writer left behind, and restore what it had put aside."""
    with explaining_failures(folder):
        for aside in folder.glob(f"{_ASIDE}*"):
            kept = folder / aside.name.removeprefix(_ASIDE)
            if kept.exists():
                _remove(aside)
            else:
                aside.rename(kept)
        for left in folder.glob(f"{_TEMPORARY}*"):
            _remove(left)


def force_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_cached(folder: Path) -> None:
    """Let what is read next from the files of a folder come from the disk, not from memory."""
    if sys.platform == "linux":
        for path in filter(Path.is_file, folder.rglob("*")):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def temporary_for(path: Path) -> Path:
    """Name the place beside `path` that this process may write to and `sweep` clears."""
    return path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")


def _make_folder(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        force_to_disk(each.parent)


def _force_all_to_disk(path: Path) -> None:
    inner = path.rglob("*") if path.is_dir() else ()
    for each in (*inner, path):
        force_to_disk(each)


def _swap(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        temporary.replace(path)
        return
    # A folder cannot be renamed onto a full one: put the old one aside, where `sweep` finds it.
    aside = path.with_name(f"{_ASIDE}{path.name}")
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

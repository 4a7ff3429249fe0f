"""Storage: how a file is written so that no crash, kill or full disk can spoil it.

What is written goes to a temporary name first, is forced to the disk, and only then takes its
place. Whoever reads finds the old contents or the new, never half of either.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.errors import DamagedRunError, StorageError

MANIFEST = "manifest.json"
RESTORE = "restore the folder from a copy, or train again into another folder"
_TEMPORARY = ".writing-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary place to write a file or folder to; it then replaces `path`."""
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")
    with explaining_failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _force_to_disk(temporary)
            _swap(temporary, path)
            _force_to_disk(path.parent)
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
            errno.ENOSPC: "make space on the disk and give the same command again",
            errno.EDQUOT: "make space in your quota and give the same command again",
            errno.EACCES: "allow writing there, or name another folder",
            errno.EROFS: "name a folder on a disk that can be written",
        }
        remedy = remedies.get(error.errno or 0, "check the disk and the folder")
        problem = f"cannot be written ({reason.lower()}); what was saved before is untouched"
        raise StorageError(str(path), problem, remedy) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sweep(folder: Path) -> None:
    """Remove what an interrupted writer left behind, and restore what it had put aside."""
    for left in folder.glob(f"{_TEMPORARY}*"):
        kept = folder / left.name.rpartition("-old-")[2]
        if "-old-" in left.name and not kept.exists():
            left.rename(kept)
        _remove(left)


def write_manifest(folder: Path, files: list[Path], facts: dict[str, Any]) -> None:
    """Record the size and SHA-256 of files, named relative to their folder."""
    entries = {
        file.relative_to(folder).as_posix(): {
            "size": file.stat().st_size,
            "sha256": _digest(file),
        }
        for file in sorted(files)
    }
    text = json.dumps({**facts, "files": entries}, indent=2, sort_keys=True)
    write_text(folder / MANIFEST, text + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest and hold every file it names against it."""
    at = folder / MANIFEST
    try:
        manifest = json.loads(at.read_text(encoding="utf-8"))
        entries = manifest["files"].items()
        expected = {name: (entry["size"], entry["sha256"]) for name, entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedRunError(str(at), "this is not a manifest", RESTORE) from None
    for name, (size, digest) in expected.items():
        _verify(folder / name, size, digest)
    return manifest


def _verify(path: Path, size: int, digest: str) -> None:
    if not path.is_file():
        raise DamagedRunError(str(path), "the file is missing", RESTORE)
    found = path.stat().st_size
    if found != size:
        problem = f"the file holds {found} bytes where {size} were written"
        raise DamagedRunError(str(path), problem, RESTORE)
    if _digest(path) != digest:
        problem = "the contents have changed since they were written (SHA-256 differs)"
        raise DamagedRunError(str(path), problem, RESTORE)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _force_to_disk(path: Path) -> None:
    inner = path.rglob("*") if path.is_dir() else ()
    for each in (*inner, path):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _swap(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        temporary.replace(path)
        return
    # A folder cannot be renamed onto a full one: put the old one aside, where `sweep` finds it.
    aside = path.with_name(f"{_TEMPORARY}{os.getpid()}-old-{path.name}")
    path.rename(aside)
    temporary.rename(path)
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

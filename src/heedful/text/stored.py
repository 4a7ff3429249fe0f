"""Stored: how a tokenizer's file is read back.

A run folder may come from elsewhere, so its files are data to be checked: bounded in size
before they are read, and named in the error when they are not what was saved.
"""

from __future__ import annotations

from pathlib import Path

from heedful.errors import DamagedRunError

MAX_BYTES = 64 * 2**20
"""A vocabulary of a million words takes about 16 MiB; a larger file is no vocabulary of ours."""


def read_stored(path: Path) -> bytes:
    """Read a file of a run folder, refusing one that is missing or too large to be true."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise damaged(path, f"{size} bytes, more than the {MAX_BYTES} that are ever written")
        return path.read_bytes()
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from None


def damaged(path: Path, problem: str) -> DamagedRunError:
    """Make the error for a file that is not as it was saved."""
    return DamagedRunError(str(path), problem, "restore the file from a copy, or train again")

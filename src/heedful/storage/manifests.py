"""Manifests: are the files of a folder still those that were written?

A manifest names files with their sizes and SHA-256, and holds a SHA-256 of itself: a byte that
changes, in a file or in the manifest, is noticed. For a file that is being replaced it also says
what was there before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.errors import DamagedRunError, StorageError
from heedful.storage.pages import hash_pages_of
from heedful.storage.writing import write_text

MANIFEST = "manifest.json"
RESTORE = "restore the folder from a copy, or train again into another folder"
FILES, BEFORE, FACTS = "files", "before", "facts"
SIZE, SHA256, PAGES = "size", "sha256", "page_sums"  # of a file; one hash or the other
_SAID = {SHA256: "SHA-256", PAGES: "the hash of its pages"}
_SEAL = "manifest_sha256"

Manifest = dict[str, Any]
Entry = dict[str, Any]  # the size and the hash of a file


def write_manifest(folder: Path, files: Iterable[Path], facts: Mapping[str, Any]) -> None:
    """Record the size and SHA-256 of files, named relative to their folder."""
    entries = {name_in(folder, file): describe(file) for file in files}
    write_text(folder / MANIFEST, sealed({**facts, FILES: entries}))


def read_manifest(folder: Path) -> Manifest:
    """Read a manifest and hold every file it names against it."""
    while True:
        listing = read_listing(folder)
        try:
            for name, entry in listing[FILES].items():
                _verify(folder / name, entry)
        except DamagedRunError:
            # Another process may have replaced a file, and its manifest before it.
            if sealed(read_listing(folder)) == sealed(listing):
                raise
        else:
            return listing


def read_listing(folder: Path) -> Manifest:
    """Read what a manifest says, without holding the files against it."""
    manifest = _unsealed(folder / MANIFEST)
    before = manifest.pop(BEFORE, None)
    if before is None:
        return manifest
    entries, replaced = manifest[FILES], before[FILES]
    still = {name: entry for name, entry in replaced.items() if _is_whole(folder / name, entry)}
    facts = before[FACTS] if still.keys() == replaced.keys() else manifest
    return {**facts, FILES: {**entries, **still}}


def sealed(manifest: Mapping[str, Any]) -> str:
    """The text of a manifest, with a hash of all it says."""
    plain = json.loads(json.dumps({**manifest, _SEAL: ""}))  # as it will be read
    del plain[_SEAL]
    seal = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _SEAL: seal}, indent=2, sort_keys=True) + "\n"


def describe(path: Path) -> Entry:
    """The size and the SHA-256 of a file, as a manifest says them."""
    return {SIZE: path.stat().st_size, SHA256: _digest(path)}


def name_in(folder: Path, file: Path) -> str:
    """The name of a file in the manifest of a folder."""
    return file.relative_to(folder).as_posix()


def _unsealed(path: Path) -> Manifest:
    with _explaining_damage(path):
        contents = path.read_bytes()
    try:
        manifest = json.loads(contents)
        manifest[FILES].items()
        del manifest[_SEAL]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedRunError(str(path), "this is not a manifest", RESTORE) from None
    # The whole text, for a space may change as well as a word.
    if contents != sealed(manifest).encode():
        problem = "the manifest has changed since it was written"
        raise DamagedRunError(str(path), problem, RESTORE)
    return manifest


def _verify(path: Path, entry: Entry) -> None:
    with _explaining_damage(path):
        found = path.stat().st_size
        if found != entry[SIZE]:
            problem = f"the file holds {found} bytes where {entry[SIZE]} were written"
            raise DamagedRunError(str(path), problem, RESTORE)
        kind, measure = (PAGES, hash_pages_of) if PAGES in entry else (SHA256, _digest)
        if measure(path) != entry[kind]:
            problem = f"the contents have changed since they were written ({_SAID[kind]} differs)"
            raise DamagedRunError(str(path), problem, RESTORE)


def _is_whole(path: Path, entry: Entry) -> bool:
    try:
        _verify(path, entry)
    except DamagedRunError:
        return False
    return True


@contextmanager
def _explaining_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DamagedRunError(str(path), "the file is missing", RESTORE) from None
    except OSError as error:
        problem = f"cannot be read ({(error.strerror or str(error)).lower()})"
        if isinstance(error, PermissionError):  # nothing is lost
            raise StorageError(str(path), problem, "allow reading it") from error
        raise DamagedRunError(str(path), problem, RESTORE) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Listed files: how are files and the manifest that names them written together?

A folder that was whole before is whole at every moment: while a file is being replaced, the
manifest also says what was there before, and the file may be either.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import (
    CorruptRunError,
    HeedfulError,
    RunError,
    StorageError,
    check,
    did_you_mean,
)
from heedful.storage.atomic import explain_os_errors, fsync_path, temporary_path, write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Pages: a hash of bytes that is several times quicker than SHA-256.
#
# It is the SHA-256 of the sums of all pages, each the sum of its words modulo 2^64. A changed byte
# changes the sum of its page; pages that are lost, stale or in another order change the order of
# sums. Someone who means to deceive could find other bytes with the same sums, so it is used only
# until there is time for SHA-256.

Buffer = bytes | memoryview

_PAGE = 4096  # bytes
_CHUNK = 1 << 22  # bytes read at once


def hash_buffers(buffers: Iterable[Buffer]) -> str:
    """Hash bytes that come in pieces; how they are cut does not matter."""
    import numpy as np

    digest, rest = hashlib.sha256(), b""
    for piece in buffers:
        contents = np.frombuffer(piece, np.uint8)
        if rest:
            missing = _PAGE - len(rest)
            rest, contents = rest + contents[:missing].tobytes(), contents[missing:]
            if len(rest) < _PAGE:
                continue
            digest.update(_sums(np.frombuffer(rest, np.uint8)))
        whole = len(contents) // _PAGE * _PAGE
        digest.update(_sums(contents[:whole]))
        rest = contents[whole:].tobytes()
    digest.update(rest)
    return digest.hexdigest()


def hash_file_pages(path: Path) -> str:
    """Hash a file."""
    with path.open("rb", buffering=0) as file:
        return hash_buffers(iter(lambda: file.read(_CHUNK), b""))


def _sums(pages: NDArray[np.uint8]) -> bytes:
    return pages.view("<u8").reshape(-1, _PAGE // 8).sum(axis=1, dtype="<u8").tobytes()


# Manifests: are the files of a folder still those that were written?
#
# A manifest names files with their sizes and SHA-256, and holds a SHA-256 of itself: a byte that
# changes, in a file or in the manifest, is noticed. For a file that is being replaced it also says
# what was there before.

MANIFEST = "manifest.json"
RESTORE_HINT = "restore the folder from a copy, or train again into another folder"
FILES, PREVIOUS, METADATA = "files", "before", "facts"
SIZE, SHA256, PAGE_SUMS = "size", "sha256", "page_sums"  # of a file; one hash or the other
_HASH_NAMES = {SHA256: "SHA-256", PAGE_SUMS: "the hash of its pages"}
_MANIFEST_HASH = "manifest_sha256"

Manifest = dict[str, Any]
FileEntry = dict[str, Any]  # the size and the hash of a file


def write_manifest(folder: Path, files: Iterable[Path], metadata: Mapping[str, Any]) -> None:
    """Record the size and SHA-256 of files, named relative to their folder."""
    entries = {relative_name(folder, file): file_entry(file) for file in files}
    write_text(folder / MANIFEST, serialize_manifest({**metadata, FILES: entries}))


def require_folder(
    folder: Path,
    kind: str,
    hint: str,
    *,
    marker: str = MANIFEST,
    error: type[HeedfulError] = RunError,
) -> None:
    """Raise an error that suggests the nearest sibling unless the folder has a `marker` file."""
    siblings = [path.parent.name for path in folder.parent.glob(f"*/{marker}")]
    message = f"not a {kind}" if folder.exists() else "no such folder"
    message += did_you_mean(folder.name, siblings)
    check((folder / marker).exists(), str(folder), message, hint, error)


def read_and_verify_manifest(folder: Path) -> Manifest:
    """Read a manifest and hold every file it names against it."""
    while True:
        listing = read_manifest_unverified(folder)
        try:
            for name, entry in listing[FILES].items():
                _verify(folder / name, entry)
        except CorruptRunError:
            # Another process may have replaced a file, and its manifest before it.
            if serialize_manifest(read_manifest_unverified(folder)) == serialize_manifest(listing):
                raise
        else:
            return listing


def read_manifest_unverified(folder: Path) -> Manifest:
    """Read what a manifest says, without holding the files against it."""
    manifest = _parse_manifest(folder / MANIFEST)
    before = manifest.pop(PREVIOUS, None)
    if before is None:
        return manifest
    entries, replaced = manifest[FILES], before[FILES]
    still = {
        name: entry for name, entry in replaced.items() if _has_recorded_size(folder / name, entry)
    }
    facts = before[METADATA] if still.keys() == replaced.keys() else manifest
    return {**facts, FILES: {**entries, **still}}


def serialize_manifest(manifest: Mapping[str, Any]) -> str:
    """The text of a manifest, with a hash of all it says."""
    plain = json.loads(json.dumps({**manifest, _MANIFEST_HASH: ""}))  # as it will be read
    del plain[_MANIFEST_HASH]
    seal = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _MANIFEST_HASH: seal}, indent=2, sort_keys=True) + "\n"


def file_entry(path: Path) -> FileEntry:
    """The size and the SHA-256 of a file, as a manifest says them."""
    return {SIZE: path.stat().st_size, SHA256: _digest(path)}


def relative_name(folder: Path, file: Path) -> str:
    """The name of a file in the manifest of a folder."""
    return file.relative_to(folder).as_posix()


def _parse_manifest(path: Path) -> Manifest:
    with _explain_read_errors(path):
        contents = path.read_bytes()
    try:
        manifest = json.loads(contents)
        manifest[FILES].items()
        del manifest[_MANIFEST_HASH]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptRunError(str(path), "this is not a manifest", RESTORE_HINT) from None
    # The whole text, for a space may change as well as a word.
    if contents != serialize_manifest(manifest).encode():
        problem = "the manifest has changed since it was written"
        raise CorruptRunError(str(path), problem, RESTORE_HINT)
    return manifest


def _verify(path: Path, entry: FileEntry) -> None:
    with _explain_read_errors(path):
        found = path.stat().st_size
        if found != entry[SIZE]:
            problem = f"the file holds {found} bytes where {entry[SIZE]} were written"
            raise CorruptRunError(str(path), problem, RESTORE_HINT)
        kind, measure = (PAGE_SUMS, hash_file_pages) if PAGE_SUMS in entry else (SHA256, _digest)
        if measure(path) != entry[kind]:
            problem = (
                f"the contents have changed since they were written ({_HASH_NAMES[kind]} differs)"
            )
            raise CorruptRunError(str(path), problem, RESTORE_HINT)


def _has_recorded_size(path: Path, entry: FileEntry) -> bool:
    try:
        _verify(path, entry)
    except CorruptRunError:
        return False
    return True


@contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CorruptRunError(str(path), "the file is missing", RESTORE_HINT) from None
    except OSError as error:
        problem = f"cannot be read ({(error.strerror or str(error)).lower()})"
        if isinstance(error, PermissionError):  # nothing is lost
            raise StorageError(str(path), problem, "allow reading it") from error
        raise CorruptRunError(str(path), problem, RESTORE_HINT) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_with_manifest(
    folder: Path,
    contents: Mapping[str, Sequence[Buffer]],
    metadata: Mapping[str, Any],
    *,
    existing: Sequence[Path] = (),
) -> None:
    """Write files into a new folder, force them to the disk, and last write their manifest.

    It also names those that are `written` there already. The hashes are quick ones, made from
    memory while the disk is busy; `add_sha256` replaces them when nobody waits.
    """
    with ThreadPoolExecutor(2 * len(contents)) as pool:
        writing = [
            pool.submit(_write_buffers, folder / name, pieces) for name, pieces in contents.items()
        ]
        digests = {name: pool.submit(hash_buffers, pieces) for name, pieces in contents.items()}
        read = {
            relative_name(folder, path): pool.submit(hash_file_pages, path) for path in existing
        }
    for each in writing:
        each.result()
    entries = {
        name: {SIZE: sum(map(len, contents[name])), PAGE_SUMS: digest.result()}
        for name, digest in digests.items()
    }
    for name, digest in read.items():
        entries[name] = {SIZE: (folder / name).stat().st_size, PAGE_SUMS: digest.result()}
    (folder / MANIFEST).write_text(
        serialize_manifest({**metadata, FILES: entries}), encoding="utf-8"
    )


def add_sha256(folder: Path) -> None:
    """Hold files against their manifest, then let it say the SHA-256 of each."""
    listing = read_and_verify_manifest(folder)
    entries = {name: file_entry(folder / name) for name in listing[FILES]}
    write_text(folder / MANIFEST, serialize_manifest({**listing, FILES: entries}))


def replace_with_manifest(
    folder: Path,
    writers: Mapping[str, Callable[[Path], None]],
    kept: Iterable[Path],
    metadata: Mapping[str, Any],
) -> None:
    """Write files of a folder anew, by name, such that the folder is whole at every moment.

    The manifest will name them and those `num_kept`, of which it says what it said before: what has
    happened to them since is not vouched for.
    """
    old = _read_old_manifest(folder)
    places = {name: temporary_path(folder / name) for name in writers}
    with explain_os_errors(folder):
        entries = {
            name: old[FILES].get(name) or file_entry(folder / name)
            for name in (relative_name(folder, file) for file in kept)
        }
        try:
            for name, write in writers.items():
                write(places[name])
                fsync_path(places[name])
                entries[name] = file_entry(places[name])
            _move_into_place(folder, {**metadata, FILES: entries}, places, old)
        finally:
            for temporary in places.values():
                temporary.unlink(missing_ok=True)


def _move_into_place(
    folder: Path, manifest: Manifest, temporary_paths: Mapping[str, Path], old: Manifest
) -> None:
    listed = {name: entry for name, entry in old[FILES].items() if name in temporary_paths}
    for name in temporary_paths.keys() - listed.keys():
        temporary_paths[name].replace(folder / name)  # no manifest speaks of it yet
    fsync_path(folder)
    if listed:
        facts = {name: fact for name, fact in old.items() if name != FILES}
        before = {METADATA: facts, FILES: listed}
        write_text(folder / MANIFEST, serialize_manifest({**manifest, PREVIOUS: before}))
        for name in listed:
            temporary_paths[name].replace(folder / name)
        fsync_path(folder)
    write_text(folder / MANIFEST, serialize_manifest(manifest))


def _read_old_manifest(folder: Path) -> Manifest:
    try:
        return read_manifest_unverified(folder)
    except CorruptRunError:
        return {FILES: {}}  # there was no manifest, or none that vouches for anything


def _write_buffers(path: Path, buffers: Sequence[Buffer]) -> None:
    with path.open("xb", buffering=0) as file:
        for piece in buffers:
            rest = memoryview(piece)
            while rest:  # one call writes 2 GB at most
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())

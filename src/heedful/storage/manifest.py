"""Manifests: the sizes and hashes of the files of a folder, and of the manifest itself.

While a file is replaced, the manifest also lists the previous version, and the file may be
either. Invariants: any changed byte, of a file or of the manifest, is detected; a valid folder
stays valid at every moment of an update.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
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
from heedful.storage.json_files import parse_json, read_limited

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# ----- page sums, a hash several times faster than SHA-256
#
# The SHA-256 of the sums of all pages, each the sum of its 64-bit words. It detects a changed byte
# and lost, stale or reordered pages, but not deliberate forgery: it is used only until SHA-256 has
# been computed in the background.

Buffer = bytes | memoryview

_PAGE = 4096  # bytes
_CHUNK = 1 << 22  # bytes read at once


def hash_buffers(buffers: Iterable[Buffer]) -> str:
    """Hash the concatenation of buffers."""
    import numpy as np

    digest, rest = hashlib.sha256(), b""
    for buffer in buffers:
        contents = np.frombuffer(buffer, np.uint8)
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
    """Hash a file by its page sums."""
    with path.open("rb", buffering=0) as file:
        return hash_buffers(iter(lambda: file.read(_CHUNK), b""))


def _sums(pages: NDArray[np.uint8]) -> bytes:
    return pages.view("<u8").reshape(-1, _PAGE // 8).sum(axis=1, dtype="<u8").tobytes()


# ----- manifests

MANIFEST = "manifest.json"
RESTORE_HINT = "restore the folder from a copy, or train again into another folder"
FILES, PREVIOUS, METADATA = "files", "previous", "metadata"
SIZE, SHA256, PAGE_SUMS = "size", "sha256", "page_sums"  # of a file, with one of the hashes
_HASH_NAMES = {SHA256: "SHA-256", PAGE_SUMS: "the hash of its page sums"}
_MANIFEST_HASH = "manifest_sha256"

Manifest = dict[str, Any]
FileEntry = dict[str, Any]  # size and hash of a file


def write_manifest(folder: Path, files: Iterable[Path], metadata: Mapping[str, Any]) -> None:
    """Write a manifest of files, named relative to their folder."""
    entries = {file.relative_to(folder).as_posix(): file_entry(file) for file in files}
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
    if (folder / marker).exists():
        return
    siblings = [path.parent.name for path in folder.parent.glob(f"*/{marker}")]
    message = f"not a {kind}" if folder.exists() else "no such folder"
    raise error(str(folder), f"{message}{did_you_mean(folder.name, siblings)}", hint)


def read_and_verify_manifest(folder: Path) -> Manifest:
    """Read a manifest and verify each file it lists."""
    while True:
        manifest = read_manifest_unverified(folder)
        try:
            for name, entry in manifest[FILES].items():
                _verify(folder / name, entry)
        except CorruptRunError:
            # Another process may have replaced a file and the manifest meanwhile.
            if serialize_manifest(read_manifest_unverified(folder)) == serialize_manifest(manifest):
                raise
        else:
            return manifest


def read_manifest_unverified(folder: Path) -> Manifest:
    """Read a manifest without verifying the files."""
    manifest = _parse_manifest(folder / MANIFEST)
    previous = manifest.pop(PREVIOUS, None)
    if previous is None:
        return manifest
    replaced = previous[FILES]
    unchanged = {name: entry for name, entry in replaced.items() if _is_valid(folder / name, entry)}
    metadata = previous[METADATA] if unchanged.keys() == replaced.keys() else manifest
    return {**metadata, FILES: {**manifest[FILES], **unchanged}}


def serialize_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with a hash of its contents."""
    plain = json.loads(json.dumps({**manifest, _MANIFEST_HASH: ""}))  # as it will be read
    del plain[_MANIFEST_HASH]
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _MANIFEST_HASH: digest}, indent=2, sort_keys=True) + "\n"


def file_entry(path: Path) -> FileEntry:
    """Return the size and SHA-256 of a file."""
    return {SIZE: path.stat().st_size, SHA256: _sha256(path)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Return a hash of the names and contents of the files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [[path.relative_to(folder).as_posix(), _blake2b(path.read_bytes())] for path in files]
    return _blake2b(json.dumps(named).encode())


def _blake2b(contents: bytes) -> str:
    return hashlib.blake2b(contents, digest_size=16).hexdigest()


def _parse_manifest(path: Path) -> Manifest:
    try:
        with _explain_read_errors(path):
            contents = read_limited(path)
        manifest = parse_json(contents)
        manifest[FILES].items()
        del manifest[_MANIFEST_HASH]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptRunError(str(path), "not a manifest", RESTORE_HINT) from None
    # Compare the whole text: white space may have changed too.
    if contents != serialize_manifest(manifest).encode():
        message = "the manifest has changed since it was written"
        raise CorruptRunError(str(path), message, RESTORE_HINT)
    return manifest


def _verify(path: Path, entry: FileEntry) -> None:
    with _explain_read_errors(path):
        size = path.stat().st_size
        message = f"the file has {size} bytes, but {entry[SIZE]} were written"
        check(size == entry[SIZE], str(path), message, RESTORE_HINT, CorruptRunError)
        name, compute = (PAGE_SUMS, hash_file_pages) if PAGE_SUMS in entry else (SHA256, _sha256)
        message = f"the contents have changed since they were written ({_HASH_NAMES[name]} differs)"
        check(compute(path) == entry[name], str(path), message, RESTORE_HINT, CorruptRunError)


def _is_valid(path: Path, entry: FileEntry) -> bool:
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
        message = f"cannot be read ({(error.strerror or str(error)).lower()})"
        if isinstance(error, PermissionError):  # nothing is lost
            raise StorageError(str(path), message, "allow reading it") from error
        raise CorruptRunError(str(path), message, RESTORE_HINT) from error


def write_with_manifest(
    folder: Path,
    contents: Mapping[str, Sequence[Buffer]],
    metadata: Mapping[str, Any],
    *,
    existing: Sequence[Path] = (),
) -> None:
    """Write and sync files into a new folder, then their manifest.

    The manifest also lists `existing` files. It has page sums, computed from memory while the
    disk is busy; `add_sha256` replaces them later.
    """
    sizes = {name: sum(map(len, buffers)) for name, buffers in contents.items()}
    with ThreadPoolExecutor(2 * len(contents)) as pool:
        writes = [
            pool.submit(_write_buffers, folder / name, buffers)
            for name, buffers in contents.items()
        ]
        digests = {name: pool.submit(hash_buffers, buffers) for name, buffers in contents.items()}
        for path in existing:
            name = path.relative_to(folder).as_posix()
            sizes[name], digests[name] = path.stat().st_size, pool.submit(hash_file_pages, path)
    for write in writes:
        write.result()
    entries = {
        name: {SIZE: sizes[name], PAGE_SUMS: digest.result()} for name, digest in digests.items()
    }
    text = serialize_manifest({**metadata, FILES: entries})
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def add_sha256(folder: Path) -> None:
    """Verify the files of a manifest, and add their SHA-256."""
    manifest = read_and_verify_manifest(folder)
    entries = {name: file_entry(folder / name) for name in manifest[FILES]}
    write_text(folder / MANIFEST, serialize_manifest({**manifest, FILES: entries}))


def replace_with_manifest(
    folder: Path,
    writers: Mapping[str, Callable[[Path], object]],
    kept: Iterable[Path],
    metadata: Mapping[str, Any],
) -> None:
    """Replace files of a folder, by name, so that the folder is valid at every moment.

    The manifest lists them and the `kept` files, whose entries stay as they were: kept files
    are not verified.
    """
    try:
        old = read_manifest_unverified(folder)
    except CorruptRunError:
        old = {FILES: {}}  # no manifest, or a corrupt one
    temporary_paths = {name: temporary_path(folder / name) for name in writers}
    with explain_os_errors(folder):
        entries = {
            name: old[FILES].get(name) or file_entry(folder / name)
            for name in (file.relative_to(folder).as_posix() for file in kept)
        }
        try:
            for name, write in writers.items():
                write(temporary_paths[name])
                fsync_path(temporary_paths[name])
                entries[name] = file_entry(temporary_paths[name])
            _publish_files(folder, {**metadata, FILES: entries}, temporary_paths, old)
        finally:
            for temporary in temporary_paths.values():
                temporary.unlink(missing_ok=True)


def _publish_files(
    folder: Path, manifest: Manifest, temporary_paths: Mapping[str, Path], old: Manifest
) -> None:
    listed = {name: entry for name, entry in old[FILES].items() if name in temporary_paths}
    for name in temporary_paths.keys() - listed.keys():
        temporary_paths[name].replace(folder / name)  # not listed in any manifest yet
    fsync_path(folder)
    if listed:
        metadata = {name: value for name, value in old.items() if name != FILES}
        previous = {METADATA: metadata, FILES: listed}
        write_text(folder / MANIFEST, serialize_manifest({**manifest, PREVIOUS: previous}))
        for name in listed:
            temporary_paths[name].replace(folder / name)
        fsync_path(folder)
    write_text(folder / MANIFEST, serialize_manifest(manifest))


def _write_buffers(path: Path, buffers: Sequence[Buffer]) -> None:
    with path.open("xb", buffering=0) as file:
        for buffer in buffers:
            rest = memoryview(buffer)
            while rest:  # one call writes at most 2 GB
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


# ----- run folders, also for processes that do not load models

PACKAGED_RUN = Path(__file__).parents[1] / "demo"
"""A small translator from Latin, so that there is something to try before training."""
SAMPLES = "samples.jsonl"
CHECKPOINTS = "checkpoints"
_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


def locate_run(run_dir: Path | str) -> Path:
    """Return the folder of a run; `demo`, if there is no such folder, comes with heedful."""
    is_packaged = str(run_dir) == PACKAGED_RUN.name and not Path(run_dir).exists()
    return PACKAGED_RUN if is_packaged else Path(run_dir)


def checkpoint_folders(checkpoints: Path) -> dict[int, Path]:
    """Return the folders of checkpoints by step, oldest first; they are not verified."""
    matches = ((_CHECKPOINT_NAME.fullmatch(path.name), path) for path in checkpoints.glob("step-*"))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))

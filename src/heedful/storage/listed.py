"""Listed files: how are files and the manifest that names them written together?

A folder that was whole before is whole at every moment: while a file is being replaced, the
manifest also says what was there before, and the file may be either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from heedful.errors import DamagedRunError
from heedful.storage.manifests import (
    BEFORE,
    FACTS,
    FILES,
    MANIFEST,
    PAGES,
    SIZE,
    Manifest,
    describe,
    name_in,
    read_listing,
    read_manifest,
    sealed,
)
from heedful.storage.pages import Piece, hash_pages, hash_pages_of
from heedful.storage.writing import (
    explaining_failures,
    force_to_disk,
    temporary_for,
    write_text,
)


def write_listed(
    folder: Path,
    contents: Mapping[str, Sequence[Piece]],
    facts: Mapping[str, Any],
    *,
    written: Sequence[Path] = (),
) -> None:
    """Write files into a new folder, force them to the disk, and last write their manifest.

    It also names those that are `written` there already. The hashes are quick ones, made from
    memory while the disk is busy; `strengthen` replaces them when nobody waits.
    """
    with ThreadPoolExecutor(2 * len(contents)) as pool:
        writing = [
            pool.submit(_write_pieces, folder / name, pieces) for name, pieces in contents.items()
        ]
        digests = {name: pool.submit(hash_pages, pieces) for name, pieces in contents.items()}
        read = {name_in(folder, path): pool.submit(hash_pages_of, path) for path in written}
    for each in writing:
        each.result()
    entries = {
        name: {SIZE: sum(map(len, contents[name])), PAGES: digest.result()}
        for name, digest in digests.items()
    }
    for name, digest in read.items():
        entries[name] = {SIZE: (folder / name).stat().st_size, PAGES: digest.result()}
    (folder / MANIFEST).write_text(sealed({**facts, FILES: entries}), encoding="utf-8")


def strengthen(folder: Path) -> None:
    """Hold files against their manifest, then let it say the SHA-256 of each."""
    listing = read_manifest(folder)
    entries = {name: describe(folder / name) for name in listing[FILES]}
    write_text(folder / MANIFEST, sealed({**listing, FILES: entries}))


def replace_listed(
    folder: Path,
    writers: Mapping[str, Callable[[Path], None]],
    kept: Iterable[Path],
    facts: Mapping[str, Any],
) -> None:
    """Write files of a folder anew, by name, such that the folder is whole at every moment.

    The manifest will name them and those `kept`, of which it says what it said before: what has
    happened to them since is not vouched for.
    """
    old = _listing_before(folder)
    places = {name: temporary_for(folder / name) for name in writers}
    with explaining_failures(folder):
        entries = {
            name: old[FILES].get(name) or describe(folder / name)
            for name in (name_in(folder, file) for file in kept)
        }
        try:
            for name, write in writers.items():
                write(places[name])
                force_to_disk(places[name])
                entries[name] = describe(places[name])
            _take_places(folder, {**facts, FILES: entries}, places, old)
        finally:
            for temporary in places.values():
                temporary.unlink(missing_ok=True)


def _take_places(
    folder: Path, manifest: Manifest, places: Mapping[str, Path], old: Manifest
) -> None:
    listed = {name: entry for name, entry in old[FILES].items() if name in places}
    for name in places.keys() - listed.keys():
        places[name].replace(folder / name)  # no manifest speaks of it yet
    force_to_disk(folder)
    if listed:
        facts = {name: fact for name, fact in old.items() if name != FILES}
        before = {FACTS: facts, FILES: listed}
        write_text(folder / MANIFEST, sealed({**manifest, BEFORE: before}))
        for name in listed:
            places[name].replace(folder / name)
        force_to_disk(folder)
    write_text(folder / MANIFEST, sealed(manifest))


def _listing_before(folder: Path) -> Manifest:
    try:
        return read_listing(folder)
    except DamagedRunError:
        return {FILES: {}}  # there was no manifest, or none that vouches for anything


def _write_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    with path.open("xb", buffering=0) as file:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:  # one call writes 2 GB at most
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())

"""Pages: a hash of bytes that is several times quicker than SHA-256.

It is the SHA-256 of the sums of all pages, each the sum of its words modulo 2^64. A changed byte
changes the sum of its page; pages that are lost, stale or in another order change the order of
sums. Someone who means to deceive could find other bytes with the same sums, so it is used only
until there is time for SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy is imported by those who hash: commands that do not start sooner
    import numpy as np
    from numpy.typing import NDArray

Piece = bytes | memoryview

_PAGE = 4096  # bytes
_CHUNK = 1 << 22  # bytes read at once


def hash_pages(pieces: Iterable[Piece]) -> str:
    """Hash bytes that come in pieces; how they are cut does not matter."""
    import numpy as np

    digest, rest = hashlib.sha256(), b""
    for piece in pieces:
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


def hash_pages_of(path: Path) -> str:
    """Hash a file."""
    with path.open("rb", buffering=0) as file:
        return hash_pages(iter(lambda: file.read(_CHUNK), b""))


def _sums(pages: NDArray[np.uint8]) -> bytes:
    return pages.view("<u8").reshape(-1, _PAGE // 8).sum(axis=1, dtype="<u8").tobytes()

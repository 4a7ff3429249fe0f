"""Storage: how files are written so that no crash, kill or full disk can spoil them."""

from heedful.storage.listed import replace_listed, strengthen, write_listed
from heedful.storage.manifests import (
    MANIFEST,
    RESTORE,
    read_listing,
    read_manifest,
    write_manifest,
)
from heedful.storage.pages import Piece
from heedful.storage.writing import (
    discard,
    explaining_failures,
    forget_cached,
    replacing,
    require_space,
    sweep,
    write_text,
)

__all__ = [
    "MANIFEST",
    "RESTORE",
    "Piece",
    "discard",
    "explaining_failures",
    "forget_cached",
    "read_listing",
    "read_manifest",
    "replace_listed",
    "replacing",
    "require_space",
    "strengthen",
    "sweep",
    "write_listed",
    "write_manifest",
    "write_text",
]

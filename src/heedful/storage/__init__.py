"""Files that survive crashes, kills and full disks: atomic writes, manifests, state dicts."""

from heedful.storage.atomic import (
    atomic_replace,
    check_free_space,
    clean_up_interrupted,
    drop_page_cache,
    explain_os_errors,
    remove_path,
    write_text,
)
from heedful.storage.manifest import (
    MANIFEST,
    RESTORE_HINT,
    Buffer,
    add_sha256,
    read_and_verify_manifest,
    read_manifest_unverified,
    replace_with_manifest,
    require_folder,
    write_manifest,
    write_with_manifest,
)

__all__ = [
    "MANIFEST",
    "RESTORE_HINT",
    "Buffer",
    "add_sha256",
    "atomic_replace",
    "check_free_space",
    "clean_up_interrupted",
    "drop_page_cache",
    "explain_os_errors",
    "read_and_verify_manifest",
    "read_manifest_unverified",
    "remove_path",
    "replace_with_manifest",
    "require_folder",
    "write_manifest",
    "write_text",
    "write_with_manifest",
]

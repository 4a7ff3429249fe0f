"""Atomic writes, and locks of folders.

Contents are written to a temporary name, synced to the disk, and then renamed. Invariant: a
reader, also after a kill or a power loss, finds the old contents or the new, never a mixture.
"""

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import DiskFullError, RunError, StorageError, check

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TEMPORARY_PREFIX, _BACKUP_PREFIX = ".writing-", ".aside-"
_SPACE_MARGIN = 1.2  # times the size to be written, for what else grows meanwhile
_UNTOUCHED_NOTE = "what was saved before is untouched"
_SPECIAL_MESSAGE = "this is a device or a pipe, which a file must not replace", "name a file"
_FOLDER_MESSAGE = "this is a folder; a file cannot replace it", "name a file in it"
_MAKE_SPACE_HINT = "free disk space and run the same command again"
_HINTS = {
    errno.ENOSPC: _MAKE_SPACE_HINT,
    errno.EDQUOT: "free space in your quota and run the same command again",
    errno.EACCES: "allow access there, or name another folder",
    errno.EPERM: "allow access there, or name another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EROFS: "name a folder on a writable disk",
}

_FULL_DISK = {errno.ENOSPC, errno.EDQUOT}
DISK_ERRORS = {*_FULL_DISK, errno.EIO, errno.EFBIG}
"""Errors of writing, which have no file name."""


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file or folder to, which then replaces `path`.

    A link stays, and what it points to is replaced. A file does not replace a folder: nothing is
    written, and what the folder contains stays.
    """
    check(bool(path.name), str(path), *_FOLDER_MESSAGE, StorageError)
    with explain_os_errors(path):
        path = path.resolve() if path.is_symlink() else path
        is_special = path.exists() and not (path.is_file() or path.is_dir())
        check(not is_special, str(path), *_SPECIAL_MESSAGE, StorageError)
        temporary = temporary_path(path)
        _remove_abandoned(path.parent)
        missing = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in missing:
            fsync_path(parent.parent)
        try:
            yield temporary
            contents = temporary.rglob("*") if temporary.is_dir() else ()
            for file in (*contents, temporary):
                fsync_path(file)
            is_kept = path.is_dir() and not temporary.is_dir()
            check(not is_kept, str(path), *_FOLDER_MESSAGE, StorageError)
            _exchange(temporary, path)
            fsync_path(path.parent)
        finally:
            _remove(temporary)


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing to a disk into errors with a hint."""
    try:
        yield
    except OSError as error:
        message = f"cannot be written ({_reason(error)}); {_UNTOUCHED_NOTE}"
        raise storage_error(error, str(path), message) from error


def storage_error(error: OSError, location: str = "", message: str = "") -> StorageError:
    """Return the error with a hint for an error of the operating system."""
    is_full = error.errno in _FULL_DISK
    hint = _HINTS.get(error.errno or 0, "check the disk and the folder")
    location = location or os.fsdecode(error.filename or "disk")
    return (DiskFullError if is_full else StorageError)(location, message or _reason(error), hint)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def check_free_space(path: Path, size: int) -> None:
    """Raise DiskFullError if `size` bytes do not fit on the disk of `path`."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free, needed = shutil.disk_usage(folder).free, _SPACE_MARGIN * size
    unit, name = (1e6, "MB") if needed >= 1e6 else (1e3, "kB")
    sizes = f"needs {needed / unit:,.0f} {name}, and {free / unit:,.0f} {name} are free"
    message = f"{sizes}; {_UNTOUCHED_NOTE}"
    check(free >= needed, str(path), message, _MAKE_SPACE_HINT, DiskFullError)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_replace(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_path(path: Path) -> None:
    """Remove a file or folder: its name at once, then its contents."""
    temporary = temporary_path(path)
    with explain_os_errors(path):
        path.rename(temporary)
        _remove(temporary)


def clean_up_interrupted(*folders: Path) -> None:
    """Remove temporary files of an interrupted writer, and restore files that it had renamed."""
    for folder in folders:
        with explain_os_errors(folder):
            for backup in folder.glob(f"{_BACKUP_PREFIX}*"):
                original = folder / backup.name.removeprefix(_BACKUP_PREFIX)
                if original.exists():
                    _remove(backup)
                else:
                    backup.rename(original)
            for temporary in folder.glob(f"{_TEMPORARY_PREFIX}*"):
                _remove(temporary)


def fsync_path(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    if fcntl is None and path.is_dir():
        return  # Windows cannot open a folder, and syncs files only if they are open for writing
    descriptor = os.open(path, os.O_RDONLY if fcntl else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_page_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, so that they are read from the disk."""
    if hasattr(os, "posix_fadvise"):  # Linux
        for path in filter(Path.is_file, folder.rglob("*")):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def temporary_path(path: Path) -> Path:
    """Return a temporary path next to `path`; if its writer is killed, the next one removes it."""
    owner = f"{os.getpid()}@{socket.gethostname()}"
    return path.with_name(f"{_TEMPORARY_PREFIX}{owner}@{path.name}")


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of processes that have ended, in a folder that need not be locked."""
    for temporary in folder.glob(f"{_TEMPORARY_PREFIX}*@{socket.gethostname()}@*"):
        process_id = temporary.name.removeprefix(_TEMPORARY_PREFIX).partition("@")[0]
        try:
            os.kill(int(process_id), 0)
        except ProcessLookupError:
            with suppress(OSError):  # another process may be removing it
                _remove(temporary)
        except (OSError, ValueError, OverflowError):  # of another user, or not ours at all
            continue


def _exchange(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        temporary.replace(path)
        return
    # A folder cannot be renamed onto a non-empty one: rename the old one, so that
    # `clean_up_interrupted` finds it.
    backup = path.with_name(f"{_BACKUP_PREFIX}{path.name}")
    _remove(backup)
    path.rename(backup)
    try:
        temporary.rename(path)
    except OSError:
        backup.rename(path)
        raise
    try:
        _remove(backup)
    except OSError as error:
        message = f"is written, but its previous contents cannot be removed ({error.strerror})"
        raise StorageError(str(path), message, f"remove them: {backup}") from error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ----- locks
#
# One process at a time holds the lock of a folder. The operating system releases it when the
# process ends, however it ends, so there are no stale locks.

_LOCK = ".lock"
_WINDOWS_LOCK_OFFSET = 1 << 20  # behind the text: others cannot read bytes locked by Windows
_lock_descriptors: set[int] = set()


@contextmanager
def lock_folder(
    folder: Path, *, activity: str = "training", option: str = "--run"
) -> Iterator[None]:
    """Lock a folder, or raise RunError; a folder that is still empty is removed afterwards.

    The error names what the holder does (its `activity`) and which `option` names another folder.
    """
    path = folder / _LOCK
    descriptor = _acquire(path, activity, option)
    # The previous holder may have removed the file meanwhile; then another file counts.
    while not (path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())):
        _close(descriptor)
        descriptor = _acquire(path, activity, option)
    try:
        yield
    finally:
        if fcntl is None:
            _close(descriptor)  # Windows removes no open file; if another process has it, it stays
        with suppress(OSError):
            if [file.name for file in folder.iterdir()] == [_LOCK]:
                path.unlink()
                folder.rmdir()
        if fcntl is not None:
            _close(descriptor)


def is_locked(folder: Path) -> bool:
    """Return True if a process holds the lock of a folder."""
    path = folder / _LOCK
    if not path.exists():
        return False
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # of another user
        return False
    try:
        _lock_file(descriptor)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(path: Path, activity: str, option: str) -> int:
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    _lock_descriptors.add(descriptor)
    try:
        _lock_file(descriptor)
    except (BlockingIOError, PermissionError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, 1000).decode(errors="replace").strip()
        _close(descriptor)
        message = f"{holder or 'another process is writing'} here"
        hint = f"wait until it is finished, or name another folder with {option}"
        raise RunError(str(path.parent), message, hint) from None
    with explain_os_errors(path):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = f"process {os.getpid()} on {socket.gethostname()} is {activity}\n"
        os.write(descriptor, holder.encode())
    return descriptor


def _lock_file(descriptor: int) -> None:
    """Lock an open file, or raise BlockingIOError (on Windows PermissionError)."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)


def _close(descriptor: int) -> None:
    _lock_descriptors.discard(descriptor)
    os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in _lock_descriptors:
        os.close(descriptor)
    _lock_descriptors.clear()


# A forked process must not keep the lock when its parent is gone.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)

"""Room: how much memory is there for this process to take?

Law: no more than the machine has free, and no more than any control group above the process has
left, since the nearest of these limits is the one that kills.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from heedful.training.memory import field, kibibytes

_UNLIMITED = 1 << 60  # control groups say "no limit" with numbers about as large as an address


def free_memory(root: Path = Path("/")) -> int:
    """Count the bytes that can still be taken; `root` is where proc and sys are."""
    return min([_free_on_machine(root), *_left_in_groups(root)])


def _free_on_machine(root: Path) -> int:
    free = kibibytes(root / "proc/meminfo", "MemAvailable:")
    return free or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_groups(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, most, used = "sys/fs/cgroup", "memory.max", "memory.current"
            cached = "inactive_file"
        elif "memory" in controllers.split(","):
            top, most = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        for group in _upwards(root / top, path):
            limit = _number(group / most)
            if limit is not None and limit < _UNLIMITED:
                # Files that were read long ago are dropped before anything is killed.
                taken = (_number(group / used) or 0) - field(group / "memory.stat", cached)
                yield max(0, limit - taken)


def _upwards(top: Path, path: str) -> Iterator[Path]:
    group = top / path.strip("/")
    yield group
    while group != top:
        group = group.parent
        yield group


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""

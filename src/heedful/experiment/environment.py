"""The environment: with what, on what and by which command was this trained?"""

from __future__ import annotations

import os
import platform
import resource
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from heedful.errors import StorageError
from heedful.training.distributed import DistributedContext
from heedful.version import VERSION


def environment_info(device: torch.device, dist_context: DistributedContext) -> dict[str, Any]:
    """Say what results may depend on: a run resumes to the bit only where all this is the same."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "heedful": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device} ({name})",
        "threads": torch.get_num_threads(),
        "ranks": dist_context.world_size,
        "command": shlex.join(sys.argv),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# Memory: what is in use, and the most that was in use at once.

_STATUS = Path("/proc/self/status")  # of this process, where there is Linux


def peak_memory(device: torch.device) -> int:
    """The most bytes held so far: by tensors on a GPU, by the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not getrusage, where it can be helped: a process is there charged with its parent's peak.
    if peak := read_kib_field(_STATUS, "VmHWM:"):
        return peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_memory() -> int:
    """Count the bytes that this process has taken; if nobody tells, the most that it ever took."""
    return read_kib_field(_STATUS, "VmRSS:") or peak_memory(torch.device("cpu"))


def read_kib_field(path: Path, name: str) -> int:
    """Look up an amount in a table of the system that counts in KiB; 0 where it has none."""
    return 1024 * read_int_field(path, name)


def read_int_field(path: Path, name: str) -> int:
    """Look up a number in a table of the system by the first word of its line; 0 if not there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = [words[1] for words in map(str.split, lines) if words and words[0] == name]
    return int(found[0]) if found else 0


# Room: how much memory is there for this process to take?
#
# Law: no more than the machine has free, and no more than any control group above the process has
# left, since the nearest of these limits is the one that kills.

_UNLIMITED = 1 << 60  # control groups say "no limit" with numbers about as large as an address


def free_memory(root: Path = Path("/")) -> int:
    """Count the bytes that can still be taken; `root` is where proc and sys are."""
    return min([_available_memory(root), *_cgroup_headroom(root)])


def _available_memory(root: Path) -> int:
    free = read_kib_field(root / "proc/meminfo", "MemAvailable:")
    return free or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_headroom(root: Path) -> Iterator[int]:
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, most, used = "sys/fs/cgroup", "memory.max", "memory.current"
            cached = "inactive_file"
        elif "memory" in controllers.split(","):
            top, most = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        for group in _ancestors(root / top, path):
            limit = _read_int(group / most)
            if limit is not None and limit < _UNLIMITED:
                # Files that were read long ago are dropped before anything is killed.
                taken = (_read_int(group / used) or 0) - read_int_field(
                    group / "memory.stat", cached
                )
                yield max(0, limit - taken)


def _ancestors(top: Path, path: str) -> Iterator[Path]:
    group = top / path.strip("/")
    yield group
    while group != top:
        group = group.parent
        yield group


def _read_int(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


# Devices: what torch leaves to choose, as it suits training.


def configure_backends(device: torch.device) -> None:
    """Choose the kernels that suit training on a device; for the whole process."""
    if device.type == "cuda":
        # Products of single-precision matrices with 10 bits of each factor, added up in full.
        torch.set_float32_matmul_precision("high")
        # cuDNN's attention plans anew for every shape: on Multi30k, where shapes change with every
        # batch, a step of a 4+4-layer Transformer took 213 ms with it and 50 without (H200).
        torch.backends.cuda.enable_cudnn_sdp(False)


# Interrupts: a wish to stop, heard at the end of a step instead of in the middle of one.

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class InterruptedUnsavedError(StorageError):
    """Told to stop, and the work could not be saved."""

    exit_code = 143


@contextmanager
def handle_stop_signals() -> Iterator[Callable[[], bool]]:
    """Give a question to ask: has someone pressed Ctrl-C, or sent SIGTERM or SIGUSR1?

    A second signal acts at once, as it would have without us. Signals reach the main thread
    only; elsewhere the answer is always no.
    """
    stop_requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop_requested.is_set
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        stop_requested.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield stop_requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

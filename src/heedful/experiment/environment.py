"""The machine: environment that results depend on, memory, backends, stop signals."""

import ctypes
import os
import platform
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from heedful.errors import StorageError
from heedful.training.distributed import DistributedContext
from heedful.version import VERSION

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STATUS = Path("/proc/self/status")  # Linux only
_CORE_THREADS = "topology/thread_siblings_list"
_UNLIMITED = 1 << 60  # control groups express "no limit" by numbers of this size
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _KEPT_BYTES = -1, -3, 1 << 30  # of glibc's `mallopt`


def environment_info(device: torch.device, dist_context: DistributedContext) -> dict[str, Any]:
    """Return all that results may depend on: a run resumes bit for bit only if it is equal."""
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


def usable_cores() -> list[int]:
    """Return the cores for this process; the second threads of cores come last.

    There are as many as torch has threads, if these were limited.
    """
    if not hasattr(os, "sched_getaffinity"):
        return list(range(torch.get_num_threads()))
    first: list[int] = []
    others: list[int] = []
    for core in sorted(os.sched_getaffinity(0)):
        threads = _read_text(Path(f"/sys/devices/system/cpu/cpu{core}/{_CORE_THREADS}"))
        number = threads.replace("-", ",").partition(",")[0].strip()
        is_second = number.isdigit() and int(number) != core and int(number) in first
        (others if is_second else first).append(core)
    num_threads = torch.get_num_threads()
    return first[:num_threads] if num_threads < len(first) else first + others


def configure_backends(device: torch.device) -> None:
    """Choose torch's kernels for training on a device; affects the whole process."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32
        # cuDNN attention compiles a plan for every shape: on Multi30k, where shapes change with
        # every batch, a step of a 4+4-layer Transformer took 213 ms with it and 50 without (H200).
        torch.backends.cuda.enable_cudnn_sdp(False)
    elif device.type == "cpu":
        # The tensors of a step are kept for the next: the system would zero their pages again.
        with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
            for threshold in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
                ctypes.CDLL(None).mallopt(threshold, _KEPT_BYTES)


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of tensors on a GPU, of the process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage is the fallback: it charges a child with the peak of its parent.
    if peak := _read_number(_STATUS, "VmHWM:", unit=1024):
        return peak
    if resource is None:
        return _windows_working_set(_PEAK)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_memory() -> int:
    """Return the resident memory of this process in bytes; its peak where that is unknown."""
    if resource is None:
        return _windows_working_set(_CURRENT)
    return _read_number(_STATUS, "VmRSS:", unit=1024) or peak_memory(torch.device("cpu"))


def limit_memory(device: torch.device, max_bytes: float) -> None:
    """Make allocations beyond so many bytes fail; else let the kernel kill this process first."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(min(1.0, max_bytes / total), index)
        return
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    in_use = _read_number(_STATUS, "VmData:", unit=1024)
    if in_use and resource is not None:
        with suppress(ValueError, OSError):
            _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
            limit = in_use + int(1.5 * max_bytes)  # address space, of which not all is used
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that the machine and each control group can still allocate.

    The smallest of these limits is where a process is killed. `root` contains proc and sys.
    """
    available = _read_number(root / "proc/meminfo", "MemAvailable:", unit=1024)
    limits = [available or _total_memory()]
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            mount, limit_file, usage_file = "sys/fs/cgroup", "memory.max", "memory.current"
            cache_field = "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit_file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            usage_file, cache_field = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = root / mount / path.strip("/")
        for ancestor in (group, *group.parents):
            if not ancestor.is_relative_to(root / mount):
                break
            limit = _read_text(ancestor / limit_file).strip()
            if limit.isdigit() and int(limit) < _UNLIMITED:
                usage = int(_read_text(ancestor / usage_file) or 0)
                # Inactive file cache is dropped before a process is killed.
                cache = _read_number(ancestor / "memory.stat", cache_field)
                limits.append(max(0, int(limit) - usage + cache))
    return min(limits)


def _total_memory() -> int:
    """Return the memory of the machine in bytes; on Windows what is free of it."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, the total, what is free ...
    _kernel32().GlobalMemoryStatusEx(status)
    return status[2]


_PEAK, _CURRENT = 1, 2  # of PROCESS_MEMORY_COUNTERS, in words


def _windows_working_set(index: int) -> int:
    counters = (ctypes.c_uint64 * 9)(72)
    this_process = ctypes.c_void_p(-1)
    _kernel32().K32GetProcessMemoryInfo(this_process, counters, ctypes.sizeof(counters))
    return counters[index]


def _kernel32() -> Any:
    return ctypes.windll.kernel32  # type: ignore[attr-defined]


def _read_number(path: Path, name: str, *, unit: int = 1) -> int:
    """Return the number after `name` in a table of the kernel; 0 if it is not there."""
    rows = [line.split() for line in _read_text(path).splitlines()]
    return unit * next((int(row[1]) for row in rows if row and row[0] == name), 0)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


STOP_SIGNALS = [signal.SIGINT, signal.SIGTERM]
if hasattr(signal, "SIGUSR1"):  # not on Windows
    STOP_SIGNALS.append(signal.SIGUSR1)


class InterruptedUnsavedError(StorageError):
    """Training was asked to stop, and its state could not be saved."""

    exit_code = 143


@contextmanager
def handle_stop_signals(
    *, on_stop: Callable[[], None] = lambda: None
) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT, SIGTERM or SIGUSR1 was received.

    `on_stop` is called at the first signal. A second one acts as without this handler. Signals
    reach only the main thread; in others the function always returns False.
    """
    received: list[int] = []  # no Event: a handler that interrupts its `set` would wait for ever
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        is_first = not received
        received.append(number)
        if is_first:
            on_stop()
        signal.signal(number, previous_handlers[signal.Signals(number)])

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous_handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:  # by `ignore_stop_signals`
                signal.signal(number, handler)


@contextmanager
def restore_stop_signals() -> Iterator[None]:
    """Restore the handlers of signals at the end, after `ignore_stop_signals`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> dict[signal.Signals, Any]:
    """Ignore signals to stop from now on, in the main thread; return their handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}


@contextmanager
def notify_on_signal(notify: Callable[[int], None]) -> Iterator[None]:
    """Call `notify` in a thread with each signal that has a handler, as soon as it arrives.

    The handler itself runs only when an operation of the main thread ends: a backward pass may
    take seconds. In other threads than the main one nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    previous_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while number := reader.recv(1)[0]:
            notify(number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_descriptor)
        writer.send(b"\0")
        thread.join()
        reader.close()
        writer.close()


class StopSignalLogger:
    """Logs a line for each signal to stop; there is something to save once `get_step` is set.

    Python runs a handler once for signals that arrive during one operation, so it is this class
    that counts them: what it logs about the second one is what `raise_second_signal` does.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._is_stopping = self._is_saved = False
        self._second_signal: int | None = None
        self.get_step: Callable[[], int] | None = None

    def __call__(self, number: int) -> None:
        """Handle a signal: log how training stops."""
        with self._lock:
            if number in STOP_SIGNALS and not self._is_saved and self._second_signal is None:
                self._log_signal(number)

    def _log_signal(self, number: int) -> None:
        if self.get_step is None:
            if not self._is_stopping:  # worker processes may report the same signal
                self._log("stopping before the first step: there is nothing to save")
        elif self._is_stopping:
            self._second_signal = number
            self._log("stopping without saving")
        else:
            again = "press again" if number == signal.SIGINT else "a second signal is needed"
            saving = f"finishing step {self.get_step()}, saving a checkpoint"
            self._log(f"{saving}; {again} to stop without saving")
        self._is_stopping = True

    def raise_second_signal(self) -> None:
        """Let a second signal act as without handlers."""
        if self._second_signal is not None:
            signal.raise_signal(self._second_signal)

    def finish(self) -> None:
        """Ignore signals, as training is saved, unless a second one was logged before."""
        handlers = ignore_stop_signals()
        with self._lock:
            self._is_saved = True
        if self._second_signal is not None:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.raise_second_signal()

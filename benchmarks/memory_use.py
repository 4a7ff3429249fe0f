"""Peak memory of tensors, of a GPU and of processes."""

import os
import resource
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of the storages that operations allocate, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        produced = operation(*args, **(kwargs or {}))
        inputs = {id(tensor.untyped_storage()) for tensor in _tensors([args, kwargs])}
        for tensor in _tensors(produced):
            storage = tensor.untyped_storage()
            if id(storage) not in inputs and id(storage) not in self.live:
                self.live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, id(storage))
        self.peak = max(self.peak, sum(self.live.values()))
        return produced


def _tensors(nested: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nested) if isinstance(leaf, Tensor)]


def peak_bytes(work: Callable[[], object], device: str = "cpu") -> int:
    """Return the largest number of bytes of tensors that the work allocates at one time."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with PeakMemory() as memory:
        work()
    return memory.peak


def resident_mebibytes() -> float:
    """Return the peak memory of this process in MiB."""
    table = Path("/proc/self/status")
    if table.exists():  # ru_maxrss begins with the peak of the parent
        return int(_entries(table)["VmHWM"].split()[0]) / 2**10
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def available_bytes() -> int | None:
    """Return the memory that is free for a new process; None where it is not known."""
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    return 1024 * int(_entries(table)["MemAvailable"].split()[0])


def anonymous_bytes(process: int) -> int:
    """Return the bytes of memory of a process that are not page cache."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:  # it has ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def anonymous_bytes_with_children() -> int:
    """Return those of this process and its children."""
    pid = os.getpid()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(anonymous_bytes(int(process)) for process in (pid, *children))


def _entries(table: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in table.read_text().splitlines())

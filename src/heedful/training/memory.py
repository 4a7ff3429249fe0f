"""Memory: what is in use, and the most that was in use at once."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")  # of this process, where there is Linux


def peak_memory(device: torch.device) -> int:
    """The most bytes held so far: by tensors on a GPU, by the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not getrusage, where it can be helped: a process is there charged with its parent's peak.
    if peak := kibibytes(_STATUS, "VmHWM:"):
        return peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_memory() -> int:
    """Count the bytes that this process has taken; if nobody tells, the most that it ever took."""
    return kibibytes(_STATUS, "VmRSS:") or peak_memory(torch.device("cpu"))


def kibibytes(table: Path, name: str) -> int:
    """Look up an amount in a table of the system that counts in KiB; 0 where it has none."""
    return 1024 * field(table, name)


def field(table: Path, name: str) -> int:
    """Look up a number in a table of the system by the first word of its line; 0 if not there."""
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = [words[1] for words in map(str.split, lines) if words and words[0] == name]
    return int(found[0]) if found else 0

"""Memory: the most that was in use at once."""

from __future__ import annotations

import resource
import sys

import torch


def peak_memory(device: torch.device) -> int:
    """The most bytes held so far: by tensors on a GPU, by the whole process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in KiB

"""The workload of all systems; imported by every peer, so it needs the standard library alone."""

from __future__ import annotations

import random
from typing import NamedTuple

WIDTH, VOCABULARY = 256, 8000
NUM_STEPS = 18
"""Decoding steps per output, including EOS where a system generates one."""
RESERVED = 4  # ids below it are special tokens in every system

Source = list[int]
Batch = list[Source]


class Workload(NamedTuple):
    """Beam size, batch size and number of sources."""

    beam: int
    batch_size: int
    num_sources: int


def batches(task: Workload) -> list[Batch]:
    """Return random sources with lengths like those of Multi30k in 8,000 subwords.

    Each batch is sorted by decreasing length, as some systems require.
    """
    rng = random.Random(task.num_sources)
    lengths = [min(max(round(rng.gauss(15, 5)), 5), 40) for _ in range(task.num_sources)]
    sources = [[rng.randrange(RESERVED, VOCABULARY) for _ in range(length)] for length in lengths]
    starts = range(0, len(sources), task.batch_size)
    return [
        sorted(sources[start : start + task.batch_size], key=len, reverse=True) for start in starts
    ]

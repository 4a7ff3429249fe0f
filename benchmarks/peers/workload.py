"""What is every system asked to do?

Read by heedful's Python and by those of all peers, so it needs the standard library alone.
"""

from __future__ import annotations

import random
from typing import NamedTuple

WIDTH, VOCABULARY = 256, 8000
NUM_STEPS = 18
"""Steps that every decoder takes for every output, its end symbol counted where it says one."""
RESERVED = 4  # numbers below it are special symbols in every system

Source = list[int]
Batch = list[Source]


class Task(NamedTuple):
    """So many sources, decoded batch by batch."""

    beam: int
    batch_size: int
    num_sources: int


def batches(task: Task) -> list[Batch]:
    """Draw sources about as long as those of Multi30k in 8,000 subwords, the same for every system.

    Within a batch the longest comes first, as some systems want it.
    """
    draw = random.Random(task.num_sources)
    lengths = [min(max(round(draw.gauss(15, 5)), 5), 40) for _ in range(task.num_sources)]
    sources = [[draw.randrange(RESERVED, VOCABULARY) for _ in range(each)] for each in lengths]
    starts = range(0, len(sources), task.batch_size)
    return [sorted(sources[at : at + task.batch_size], key=len, reverse=True) for at in starts]

"""How does a system answer?

It runs in a process of its own, by the Python of its own environment. It says once what it is;
then it sleeps until it reads a `Task`, decodes the sources of that task, and says how long that
took and how many steps the outputs had. What anything else prints goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.peers.workload import Batch, Task, batches

NUM_THREADS = 2

Decode = Callable[[Batch, int], list[int]]
"""Takes sources and the width of a beam, says how many steps the best output of each took."""


def serve(make: Callable[[], tuple[nn.Module, Decode]]) -> None:
    """Make a system, say what it is, then do every task that comes, until no more come."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(NUM_THREADS)
    torch.manual_seed(0)
    model, decode = make()
    weights = sum(weight.numel() for weight in model.parameters())
    print(json.dumps({"weights": weights}), file=answers, flush=True)
    for line in sys.stdin:
        task = Task(*json.loads(line))
        work = batches(task)
        began = time.perf_counter()
        steps = [each for batch in work for each in decode(batch, task.beam)]
        answer = {"seconds": time.perf_counter() - began, "steps": sorted(set(steps))}
        print(json.dumps(answer), file=answers, flush=True)


def padded(batch: Batch, *, pad: int, end: int) -> tuple[Tensor, Tensor]:
    """Make the tensor (B, S) of a batch, and the lengths; each source gets its end symbol."""
    lengths = torch.tensor([len(source) + 1 for source in batch])
    rows = [[*source, end] + [pad] * (int(lengths.max()) - len(source) - 1) for source in batch]
    return torch.tensor(rows), lengths

"""The server side of a system under test.

It runs in its own process with the Python of its own environment. It writes its number of
parameters once, then reads workloads as JSON lines, decodes them, and writes the seconds and the
number of steps. Everything else that is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.peers.workload import Batch, Workload, batches

NUM_THREADS = 2

Decode = Callable[[Batch, int], list[int]]
"""Takes sources and a beam size, returns the number of steps of the best output of each."""


def serve(make: Callable[[], tuple[nn.Module, Decode]]) -> None:
    """Build a system, then decode every workload on standard input."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(NUM_THREADS)
    torch.manual_seed(0)
    model, decode = make()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"num_parameters": num_parameters}), file=replies, flush=True)
    for line in sys.stdin:
        workload = Workload(*json.loads(line))
        work = batches(workload)
        start = time.perf_counter()
        steps = [count for batch in work for count in decode(batch, workload.beam)]
        reply = {"seconds": time.perf_counter() - start, "steps": sorted(set(steps))}
        print(json.dumps(reply), file=replies, flush=True)


def padded(batch: Batch, *, pad: int, end: int) -> tuple[Tensor, Tensor]:
    """Return the token ids (B, S) of a batch with EOS, and the lengths."""
    lengths = torch.tensor([len(source) + 1 for source in batch])
    rows = [[*source, end] + [pad] * (int(lengths.max()) - len(source) - 1) for source in batch]
    return torch.tensor(rows), lengths

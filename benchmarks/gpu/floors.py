"""What the device can do at best: matrix products, memory, and small kernels one after another.

Work that is bound by one of them cannot be faster; docs/performance.md compares with these floors.
"""

import torch

from benchmarks.gpu.workload import Settings
from benchmarks.harness import Spread, Table, seconds_of, take_turns

SIZE, NUM_BYTES, NUM_KERNELS = 8192, 2**32, 1000


def bench(settings: Settings) -> None:
    """Print the limits of the device."""
    device, is_small = settings.device, settings.is_small
    size, num_bytes, count = (64, 2**16, 10) if is_small else (SIZE, NUM_BYTES, NUM_KERNELS)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    left, right = torch.randn(2, size, size, device=device, dtype=dtype)
    source = torch.zeros(num_bytes // 4, device=device)
    target, small = torch.empty_like(source), torch.zeros(64, device=device)

    def launch() -> None:
        for _ in range(count):
            small.add_(1.0)

    works = {
        f"product of two {size} x {size} matrices, TFLOP/s": lambda: left @ right,
        "copy within memory, TB/s read and written": lambda: target.copy_(source),
        "small kernel, launched by PyTorch, microseconds": launch,
    }
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        launch()
        with torch.cuda.graph(graph):
            launch()
        works["small kernel in a CUDA graph, microseconds"] = graph.replay
    measures = {name: seconds_of(work, device) for name, work in works.items()}
    times = take_turns(measures, rounds=settings.rounds, seconds=settings.seconds / 4)
    table = Table("limit of the device", "value")
    amounts = [2 * size**3 / 1e12, 2 * num_bytes / 1e12]
    for index, (name, taken) in enumerate(times.items()):
        is_rate = index < len(amounts)
        values = [amounts[index] / t if is_rate else 1e6 * t / count for t in taken]
        table.add(name, Spread.of(values).format(".2f"))

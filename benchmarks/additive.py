"""Time and memory of additive scores on a CPU, plain and in chunks.

Prints the milliseconds of the forward pass and of forward and backward, and the peak memory of
intermediate tensors. Then the target case, training on long sequences: each round runs in its own
process, and memory is what the operating system counted for it. `python -m benchmarks.gpu additive`
measures the kernels of a GPU.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor

import heedful.acceleration.kernels  # noqa: F401
from benchmarks.harness import (
    Spread,
    Table,
    Work,
    describe_machine,
    parse_no_options,
    ratios,
    seconds_of,
    take_turns,
)
from benchmarks.memory_use import available_bytes, peak_bytes, resident_mebibytes
from heedful.acceleration.chunked_attention import chunked_additive_score
from heedful.attention.additive_scores import additive_score

ROUNDS, TARGET_ROUNDS = 7, 3
FORMS = {"chunked": chunked_additive_score, "plain": additive_score.reference}
SHAPES = [(16, 128, 128, 256), (32, 16, 16, 256)]  # B, T, S, A

TARGET_SHAPE = (16, 512, 512, 256)
MIN_MEMORY_RATIO = 20.0  # plain over chunked
MAX_TIME_RATIO = 1.3  # chunked over plain
# The sum, its tanh and the gradient of one of them, each (B, T, S, A) in single precision.
PLAIN_BYTES = 3 * 4 * math.prod(TARGET_SHAPE)

Shape = tuple[int, int, int, int]
Form = Callable[..., Tensor]


def inputs_of(shape: Shape) -> list[Tensor]:
    rows, queries, keys, width = shape
    torch.manual_seed(0)
    sizes = [(rows, queries, width), (rows, keys, width), (width,)]
    return [torch.randn(size, requires_grad=True) for size in sizes]


def scoring(form: Form, shape: Shape) -> Work:
    inputs = inputs_of(shape)
    return torch.no_grad()(lambda: form(*inputs))


def learning(form: Form, shape: Shape) -> Work:
    inputs, gradients = inputs_of(shape), torch.randn(shape[:3])
    return lambda: torch.autograd.grad(form(*inputs), inputs, gradients)


def bench(shape: Shape, table: Table) -> None:
    """Print both forms; the plain one as a multiple of the other."""
    sizes = ", ".join(map(str, shape))
    is_plain = additive_score.select_kernel(*inputs_of(shape)) is None
    for label, build in {"forward": scoring, "forward and backward": learning}.items():
        works = {name: build(form, shape) for name, form in FORMS.items()}
        measures = {name: seconds_of(work) for name, work in works.items()}
        times = take_turns(measures, rounds=ROUNDS)
        for name, work in works.items():
            milliseconds = Spread.of([1000 * seconds for seconds in times[name]])
            ratio = ratios(times, "chunked", "plain").format(".2f") if name == "plain" else ""
            memory = peak_bytes(work) / 2**20
            form = f"{name} (selected)" if is_plain == (name == "plain") else name
            table.add(sizes, label, form, milliseconds.format(".1f"), f"{memory:,.1f}", ratio)


def measure_once(name: str) -> tuple[float, float]:
    """Return milliseconds and MiB of one forward and backward pass."""
    learning(FORMS[name], (2, 8, 8, 8))()  # lazy imports of torch
    work = learning(FORMS[name], TARGET_SHAPE)
    before, start = resident_mebibytes(), time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start), resident_mebibytes() - before


def measure_in_processes() -> dict[str, list[tuple[float, float]]]:
    """Return milliseconds and MiB of every round; forms take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in FORMS}
    for _ in range(TARGET_ROUNDS):
        for name in FORMS:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                taken[name].append(process.submit(measure_once, name).result())
    return taken


def bench_target() -> None:
    """Print the target case, with its limits."""
    if (free := available_bytes()) is not None and free < 1.2 * PLAIN_BYTES:
        print(f"\nleft out: the plain form needs {PLAIN_BYTES / 2**30:.0f} GiB of free memory")
        return
    try:
        taken = measure_in_processes()
    except BrokenProcessPool:
        print("\nleft out: a process was ended from outside, most likely because memory ran out")
        return
    columns = {name: list(zip(*rounds, strict=True)) for name, rounds in taken.items()}
    sizes = ", ".join(map(str, TARGET_SHAPE))
    table = Table(f"forward and backward of {sizes}", "milliseconds", "memory, MiB")
    for name, (durations, memory) in columns.items():
        table.add(name, Spread.of(durations).format(), Spread.of(memory).format())
    medians = {
        name: [statistics.median(column) for column in pair] for name, pair in columns.items()
    }
    slower = medians["chunked"][0] / medians["plain"][0]
    smaller = medians["plain"][1] / medians["chunked"][1]
    print(f"time, chunked over plain: {slower:.2f} x (at most {MAX_TIME_RATIO:g})")
    print(f"memory, plain over chunked: {smaller:.1f} x (at least {MIN_MEMORY_RATIO:g})")


def main() -> None:
    parse_no_options(__doc__)
    print(describe_machine())
    table = Table(
        "B, T, S, A", "pass", "form", "milliseconds", "memory, MiB", "chunked is faster by"
    )
    for shape in SHAPES:
        bench(shape, table)
    bench_target()


if __name__ == "__main__":
    main()

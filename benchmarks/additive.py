"""Time and memory of additive scores, plain and in chunks.

Prints, for each form, the median milliseconds of the forward pass and of forward and backward, with
both forms alternating so that a busy machine slows them alike, and the peak memory of intermediate
tensors; then plain as a multiple of chunked. Then the target case, training on long sequences: each
round runs in its own process, and memory is what the operating system counted for it.

On a GPU, instead: forward, backward and peak memory of Triton's kernels beside the plain, chunked
and compiled forms, then of other tiles.
"""

import math
import os
import resource
import statistics
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration import tuning
from heedful.acceleration.sequence_kernels import chunked_additive_score
from heedful.attention.additive_scores import additive_score

REPEATS = 7
FORMS = {"plain": additive_score.reference, "chunked": chunked_additive_score}
SHAPES = [(16, 128, 128, 256), (32, 16, 16, 256)]  # B, T, S, A

TARGET_SHAPE = (16, 512, 512, 256)
ROUNDS = 3
MIN_MEMORY_RATIO = 20.0  # plain over chunked
MAX_TIME_RATIO = 1.3  # chunked over plain
# The sum, its tanh and the gradient of one of them, each (B, T, S, A) in single precision.
PLAIN_BYTES = 3 * 4 * math.prod(TARGET_SHAPE)

GPU_SHAPE = (64, 512, 512, 512)
GPU_PLAIN_SHAPE = (16, 512, 512, 512)  # the plain form of `GPU_SHAPE` would take 96 GiB
SCORE_TILES = [(16, 64, 2), (16, 64, 4), (32, 32, 2), (32, 64, 4), (16, 128, 4), (8, 128, 2)]
GRADIENT_TILES = [(16, 64, 4), (16, 64, 2), (16, 32, 2), (32, 64, 4), (32, 32, 2), (8, 128, 4)]

Shape = tuple[int, int, int, int]
Form = Callable[..., Tensor]
Work = Callable[[], object]


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


def milliseconds(works: dict[str, Work]) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(1 + REPEATS):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if repeat:  # the first round warms up
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(times) for name, times in taken.items()}


def mebibytes(work: Work) -> float:
    with PeakMemory() as memory:
        work()
    return memory.peak / 2**20


def report(label: str, works: dict[str, Work]) -> None:
    times = milliseconds(works)
    sizes = {name: mebibytes(work) for name, work in works.items()}
    for name in works:
        print(f"  {label:<22}{name:<9}{times[name]:8.1f} ms {sizes[name]:8.1f} MiB")
    ratios = [values["plain"] / values["chunked"] for values in (times, sizes)]
    print(f"  {'':<22}{'ratio':<9}{ratios[0]:8.1f} x  {ratios[1]:8.1f} x")


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


def title(shape: Shape) -> str:
    return ", ".join(f"{letter}={size}" for letter, size in zip("BTSA", shape, strict=True))


def bench(shape: Shape) -> None:
    is_plain = additive_score.select_kernel(*inputs_of(shape)) is None
    print(f"{title(shape)}: the selected kernel is {'plain' if is_plain else 'chunked'}")
    for label, work in {"forward": scoring, "forward and backward": learning}.items():
        report(label, {name: work(form, shape) for name, form in FORMS.items()})


def resident() -> float:
    """Return the peak memory of this process in MiB."""
    table = Path("/proc/self/status")
    if table.exists():  # ru_maxrss begins with the peak of the parent
        return int(_entries(table)["VmHWM"].split()[0]) / 2**10
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _entries(table: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in table.read_text().splitlines())


def measure_once(name: str) -> tuple[float, float]:
    """Return milliseconds and MiB of one forward and backward pass."""
    learning(FORMS[name], (2, 8, 8, 8))()  # lazy imports of torch
    work = learning(FORMS[name], TARGET_SHAPE)
    before, began = resident(), time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began), resident() - before


def rounds() -> dict[str, list[tuple[float, float]]]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in FORMS}
    for _ in range(ROUNDS):
        for name in FORMS:  # in turn, so that a busy machine slows them alike
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                taken[name].append(process.submit(measure_once, name).result())
    return taken


def has_enough_memory() -> bool:
    """Return whether the plain form fits into the available memory."""
    table = Path("/proc/meminfo")
    if not table.exists():
        return True
    return 1024 * int(_entries(table)["MemAvailable"].split()[0]) > 1.2 * PLAIN_BYTES


def bench_target() -> None:
    print(f"{title(TARGET_SHAPE)}: forward and backward")
    if not has_enough_memory():
        print(f"  left out: the plain form needs {PLAIN_BYTES / 2**30:.0f} GiB of free memory")
        return
    try:
        taken = rounds()
    except BrokenProcessPool:
        print("  left out: a process was ended from outside, most likely because memory ran out")
        return
    medians = {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)]
        for name, rounds in taken.items()
    }
    for name, (duration, size) in medians.items():
        print(f"  {name:<31}{duration:8.0f} ms {size:8.1f} MiB")
    slower = medians["chunked"][0] / medians["plain"][0]
    smaller = medians["plain"][1] / medians["chunked"][1]
    print(f"  time, chunked over plain   {slower:8.2f} x   (at most {MAX_TIME_RATIO:g})")
    print(f"  memory, plain over chunked {smaller:8.1f} x   (at least {MIN_MEMORY_RATIO:g})")


def gpu_milliseconds(work: Work) -> float:
    """Return the median of repeats, measured by the GPU."""
    times = []
    for _ in range(2 + REPEATS):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        work()
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]))
    return statistics.median(times[2:])  # the first ones compile


def multiply_and_sum(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Return additive scores in the form that torch.compile fuses into one reduction."""
    return ((queries.unsqueeze(-2) + keys.unsqueeze(-3)).tanh() * vector).sum(-1)


def gpu_row(name: str, form: Form, shape: Shape, dtype: torch.dtype, *, backward: bool) -> None:
    """Print forward and backward times of a form, its peak memory and largest error."""
    inputs = [tensor.detach().to("cuda", dtype).requires_grad_() for tensor in inputs_of(shape)]
    with torch.no_grad():
        few = [inputs[0][0, :4].double(), inputs[1][0].double(), inputs[2].double()]
        error = (form(*inputs)[0, :4] - additive_score.reference(*few)).abs().max().item()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    forward = gpu_milliseconds(torch.no_grad()(lambda: form(*inputs)))
    text = f"{forward:9.2f}"
    if backward:
        scores = form(*inputs)
        gradients = torch.randn_like(scores)
        passes = lambda: torch.autograd.grad(scores, inputs, gradients, retain_graph=True)  # noqa: E731
        text += f" {gpu_milliseconds(passes):9.2f}"
    else:
        text += f" {'-':>9}"
    peak = (torch.cuda.max_memory_allocated() - before) / 2**30
    print(f"  {name:<34}{text} {peak:8.2f} GiB {error:9.1e}", flush=True)


def bench_gpu() -> None:
    from heedful.acceleration.triton_additive import triton_additive_score

    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    heading = f"{'':<36}{'forward':>9} {'backward':>9} {'memory':>12} {'error':>9}"
    forms = {
        "triton": triton_additive_score,
        "chunked": chunked_additive_score,
        "torch.compile": torch.compile(multiply_and_sum, dynamic=False),
    }
    for dtype in (torch.float32, torch.bfloat16):
        print(f"{title(GPU_SHAPE)}, {dtype}\n{heading}")
        for name, form in forms.items():
            gpu_row(name, form, GPU_SHAPE, dtype, backward=True)
        print(f"{title(GPU_PLAIN_SHAPE)}, {dtype}")
        for name, form in {**forms, "plain": additive_score.reference}.items():
            if name in {"triton", "plain"}:
                gpu_row(name, form, GPU_PLAIN_SHAPE, dtype, backward=True)
        torch.cuda.empty_cache()
    print(f"{title(GPU_SHAPE)}, torch.float32, tiles\n{heading}")
    for tile in SCORE_TILES:
        tuning.TRITON_SCORE_TILE = tile
        gpu_row(f"scores {tile}", triton_additive_score, GPU_SHAPE, torch.float32, backward=False)
    tuning.TRITON_SCORE_TILE = SCORE_TILES[0]
    for tile in GRADIENT_TILES:
        tuning.TRITON_GRADIENT_TILE = tile
        gpu_row(f"gradients {tile}", triton_additive_score, GPU_SHAPE, torch.float32, backward=True)


def main() -> None:
    if torch.cuda.is_available():
        bench_gpu()
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    for shape in SHAPES:
        bench(shape)
    bench_target()


if __name__ == "__main__":
    main()

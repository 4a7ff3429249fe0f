"""What do additive scores cost in time and memory, plain and in chunks?

Prints, for each form, the median milliseconds of scoring alone and of scoring with gradients, both
forms taken in turn so that a busy machine slows them alike, and the most memory that the tensors
made on the way held at once; then plain as a multiple of chunked.
"""

import os
import statistics
import time
import weakref
from collections.abc import Callable
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heedful.attention.fused.chunked import chunked_additive
from heedful.attention.fused.rules import additive_form, plain_additive

REPEATS = 7
FORMS = {"plain": plain_additive, "chunked": chunked_additive}
SHAPES = [(16, 128, 128, 256), (32, 16, 16, 256)]  # B, T, S, A

Work = Callable[[], object]


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of every storage that operations make, for as long as it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        produced = operation(*args, **(kwargs or {}))
        given = {id(each.untyped_storage()) for each in _tensors([args, kwargs])}
        for each in _tensors(produced):
            storage = each.untyped_storage()
            if id(storage) not in given and id(storage) not in self.live:
                self.live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, id(storage))
        self.peak = max(self.peak, sum(self.live.values()))
        return produced


def _tensors(nested: Any) -> list[Tensor]:
    return [each for each in tree_leaves(nested) if isinstance(each, Tensor)]


def milliseconds(works: dict[str, Work]) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(1 + REPEATS):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if repeat:  # the first round warms up
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in taken.items()}


def mebibytes(work: Work) -> float:
    with PeakMemory() as memory:
        work()
    return memory.peak / 2**20


def report(what: str, works: dict[str, Work]) -> None:
    times = milliseconds(works)
    sizes = {name: mebibytes(work) for name, work in works.items()}
    for name in works:
        print(f"  {what:<22}{name:<9}{times[name]:8.1f} ms {sizes[name]:8.1f} MiB")
    ratios = [each["plain"] / each["chunked"] for each in (times, sizes)]
    print(f"  {'':<22}{'ratio':<9}{ratios[0]:8.1f} x  {ratios[1]:8.1f} x")


def bench(rows: int, queries: int, keys: int, width: int) -> None:
    torch.manual_seed(0)
    sizes = [(rows, queries, width), (rows, keys, width), (width,)]
    inputs = [torch.randn(size, requires_grad=True) for size in sizes]
    slopes = torch.randn(rows, queries, keys)

    def score(form: Callable[..., Tensor]) -> None:
        with torch.no_grad():
            form(*inputs)

    def learn(form: Callable[..., Tensor]) -> None:
        torch.autograd.grad(form(*inputs), inputs, slopes)

    chosen = "plain" if additive_form(*inputs[:2]) is plain_additive else "chunked"
    print(f"B={rows}, T={queries}, S={keys}, A={width}: the rule chooses {chosen}")
    for what, work in {"forward": score, "forward and backward": learn}.items():
        report(what, {name: lambda w=work, f=form: w(f) for name, form in FORMS.items()})


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    for shape in SHAPES:
        bench(*shape)


if __name__ == "__main__":
    main()

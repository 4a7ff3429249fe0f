"""Additive scores, forward and backward: the selected kernel, torch.compile and plain PyTorch.

The floor is that of the special-function unit: half a reciprocal per element (channels in pairs).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import heedful.acceleration.kernels  # noqa: F401
from benchmarks.gpu.workload import Settings
from benchmarks.harness import Spread, Table, seconds_of, take_turns
from benchmarks.memory_use import peak_bytes
from heedful.attention.additive_scores import additive_score

SHAPES = [(64, 512, 512, 512), (16, 512, 512, 512), (512, 1, 32, 512)]  # B, T, S, A
RECIPROCALS_PER_SECOND = 132 * 16 * 1.98e9  # H200: multiprocessors, results per clock, clock

Form = Callable[..., Tensor]


def multiply_and_sum(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Return additive scores in the form that torch.compile fuses into one reduction."""
    return ((queries.unsqueeze(-2) + keys.unsqueeze(-3)).tanh() * vector).sum(-1)


def bench(settings: Settings) -> None:
    """Print milliseconds, memory and the largest error of each form."""
    shapes = [(2, 8, 8, 16)] if settings.is_small else SHAPES
    forms: dict[str, Form] = {"heedful": additive_score, "plain PyTorch": additive_score.reference}
    if settings.device == "cuda":
        forms["torch.compile"] = torch.compile(multiply_and_sum, dynamic=False)
    print("\nAdditive scores: milliseconds; memory of the forward and backward pass")
    columns = "system", "forward, ms", "backward, ms", "memory, MiB", "largest error"
    table = Table("B, T, S, A", *columns)
    for shape in shapes:
        for dtype in (torch.float32, torch.bfloat16):
            title = f"{', '.join(map(str, shape))}, {str(dtype).removeprefix('torch.')}"
            if settings.includes(title):
                inputs = inputs_of(shape, dtype, settings.device)
                _bench_shape(title, inputs, forms, table, settings)
        elements = shape[0] * shape[1] * shape[2] * shape[3]
        floor = 1e3 * elements / 2 / RECIPROCALS_PER_SECOND
        table.add(", ".join(map(str, shape)), "floor of an H200", f"{floor:.2f}", "", "", "")


def inputs_of(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Return queries, keys and the score vector."""
    rows, queries, keys, width = shape
    torch.manual_seed(0)
    sizes = [(rows, queries, width), (rows, keys, width), (width,)]
    return [torch.randn(size, device=device, dtype=dtype, requires_grad=True) for size in sizes]


def _bench_shape(
    title: str,
    inputs: list[Tensor],
    forms: dict[str, Form],
    table: Table,
    settings: Settings,
) -> None:
    gradients = torch.randn(*inputs[0].shape[:2], inputs[1].shape[1], device=settings.device)
    few = [inputs[0][0, :4].double(), inputs[1][0].double(), inputs[2].double()]
    expected = additive_score.reference(*few)

    def passes(form: Form) -> object:
        scores = form(*inputs)
        return torch.autograd.grad(scores, inputs, gradients.to(scores.dtype))

    passing = {
        name: seconds_of(partial(passes, form), settings.device) for name, form in forms.items()
    }
    both = take_turns(passing, rounds=settings.rounds, seconds=settings.seconds)
    scoring = {
        name: seconds_of(partial(torch.no_grad()(forms[name]), *inputs), settings.device)
        for name in both
    }
    forward = take_turns(scoring, rounds=settings.rounds, seconds=settings.seconds)
    for name, times in forward.items():
        backward = [1e3 * (total - Spread.of(times).median) for total in both[name]]
        with torch.no_grad():
            error = (forms[name](*inputs)[0, :4] - expected).abs().max().item()
        memory = peak_bytes(partial(passes, forms[name]), settings.device) / 2**20
        table.add(
            title,
            name,
            Spread.of([1e3 * seconds for seconds in times]).format(".2f"),
            Spread.of(backward).format(".2f"),
            f"{memory:,.0f}",
            f"{error:.0e}",
        )

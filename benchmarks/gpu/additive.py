"""Additive scores, forward and backward: the selected kernel, torch.compile and plain PyTorch.

Then steps of attention, one query per row, each in a CUDA graph: score, softmax, context, coverage.
The floor is that of the special-function unit: half a reciprocal per element (channels in pairs).
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import heedful.acceleration.kernels  # noqa: F401
from benchmarks.gpu.workload import Settings
from benchmarks.harness import Spread, Table, seconds_of, take_turns
from benchmarks.memory_use import peak_bytes
from heedful.acceleration.cuda.graphs import StaticFunction
from heedful.attention.additive_scores import AdditiveScore, additive_score
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import AttentionOutput, SingleHeadAttention, attend
from heedful.attention.readouts import WeightedSumReadout

SHAPES = [(64, 512, 512, 512), (16, 512, 512, 512), (512, 1, 32, 512)]  # B, T, S, A
STEP_SHAPES = [(64, 32), (64, 128), (320, 32), (320, 128), (320, 512)]  # B, S
STEP_SIZES = 512, 512, 1024  # of queries, hidden layer and values
NUM_STEPS = 10  # per graph
RECIPROCALS_PER_SECOND = 132 * 16 * 1.98e9  # H200: multiprocessors, results per clock, clock

Form = Callable[..., Tensor]
Attend = Callable[..., AttentionOutput]


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
    _bench_steps(settings)


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


def _bench_steps(settings: Settings) -> None:
    print("\nSteps of additive attention: microseconds of a step in a CUDA graph")
    table = Table("B, S", "system", "forward, us", "forward and backward, us")
    query_size, size, value_size = (8, 8, 16) if settings.is_small else STEP_SIZES
    shapes = [(2, 5)] if settings.is_small else STEP_SHAPES
    for (rows, keys), dtype in product(shapes, (torch.float32, torch.bfloat16)):
        title = f"{rows}, {keys}, {str(dtype).removeprefix('torch.')}"
        if not settings.includes(title):
            continue
        score = AdditiveScore(query_size, value_size, hidden_size=size)
        attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
        attention.to(settings.device, dtype)
        sizes = [(rows, 1, query_size), (rows, keys, value_size)]
        options: dict[str, Any] = {"device": settings.device, "dtype": dtype}
        queries, values = (torch.randn(size, **options, requires_grad=True) for size in sizes)
        with torch.no_grad():
            memory = attention.build_memory(values)
        memory = memory._replace(keys=memory.keys.requires_grad_())
        state, inputs = attention.initial_state(memory), [queries, memory.keys, values]
        forms: dict[str, Callable[..., Any]] = {
            "heedful": attend,
            "plain PyTorch": attend.reference,
        }
        medians: dict[str, list[str]] = {name: [] for name in forms}
        for with_backward in (False, True):
            works = {
                name: _captured(
                    partial(
                        _step,
                        partial(form, attention, queries, memory, state),
                        inputs,
                        with_backward,
                    ),
                    settings,
                )
                for name, form in forms.items()
            }
            taken = take_turns(works, rounds=settings.rounds, seconds=settings.seconds / 4)
            for name, times in taken.items():
                spread = Spread.of([1e6 * seconds / NUM_STEPS for seconds in times])
                medians[name].append(spread.format(".1f"))
        for name, cells in medians.items():
            table.add(title, name, *cells)


def _step(attend: Callable[[], AttentionOutput], inputs: list[Tensor], with_backward: bool) -> None:
    for _ in range(NUM_STEPS):
        with torch.set_grad_enabled(with_backward):
            context = attend().context
        if with_backward:
            torch.autograd.grad(context, inputs, torch.ones_like(context))


def _captured(work: Callable[[], None], settings: Settings) -> Callable[[], float]:
    function = StaticFunction(work)
    if settings.device == "cuda":
        function.capture(None)
    return seconds_of(function.run, settings.device)

"""Kernels of training steps at the sizes of Transformer base, beside plain PyTorch (SDPA).

Milliseconds of forward and backward, replayed from a CUDA graph, so that launches count little.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.gpu.workload import Settings
from benchmarks.harness import Spread, Table, ratios, seconds_of, take_turns
from heedful.acceleration.cuda.graphs import StaticFunction
from heedful.acceleration.registry import accelerate_for_training
from heedful.attention.attention import softmax_context
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.memory import Memory
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.models.output_heads import SoftmaxHead, smoothed_cross_entropy

Form = Callable[[], Tensor]
Case = tuple[Form, Form, list[Tensor]]
"""The selected form, the plain one, and what both have gradients for."""


def bench(settings: Settings) -> None:
    """Print both forms of each kernel, and the plain one as a multiple of the other."""
    rows, size, vocab_size = (3, 16, 32) if settings.is_small else (781, 512, 8000)
    print(f"\nKernels of training: milliseconds, {rows} rows of 32 positions of size {size}")
    table = Table("kernel", "heedful", "plain PyTorch", "ratio")
    cases = {
        "attention, padding": partial(_attention, rows, 32, size, settings.device, is_causal=False),
        "attention, causal": partial(_attention, rows, 32, size, settings.device, is_causal=True),
        "dropout, residual, norm": partial(_norm, rows, size, settings.device),
        "feed-forward with ReLU": partial(_feed_forward, rows, size, settings.device),
        f"loss of {vocab_size:,} tokens": partial(_loss, rows, size, vocab_size, settings.device),
    }
    for title, build in cases.items():
        if settings.includes(title):
            _bench_case(title, build(), table, settings)


def _bench_case(title: str, case: Case, table: Table, settings: Settings) -> None:
    selected, plain, inputs = case
    works = {
        name: seconds_of(_passes(form, inputs, settings.device), settings.device)
        for name, form in {"heedful": selected, "plain": plain}.items()
    }
    times = take_turns(works, rounds=settings.rounds, seconds=settings.seconds)
    cells = [
        Spread.of([1e3 * seconds for seconds in spent]).format(".3f") for spent in times.values()
    ]
    table.add(title, *cells, ratios(times, "heedful", "plain").format(".2f"))


def _passes(form: Form, inputs: list[Tensor], device: str) -> Callable[[], object]:
    """Return forward and backward as one function, on a GPU as a graph."""

    def run() -> object:
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = form()
        return torch.autograd.grad(outputs, inputs, torch.ones_like(outputs))

    function = StaticFunction(run)
    if device == "cuda":
        function.capture(None)
    return function.run


def _tensors(device: str, *shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    dtype = torch.bfloat16
    return [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for shape in shapes]


def _attention(rows: int, length: int, size: int, device: str, *, is_causal: bool) -> Case:
    heads = 8, size // 8
    inputs = _tensors(device, *[(rows, length, *heads)] * 3)
    lengths = torch.arange(rows, device=device) % (length // 2) + length // 2 + 1
    mask = causal_mask(length, device=device) if is_causal else padding_mask(lengths, length)

    def attend(form: Callable[..., Tensor]) -> Tensor:  # with views of the stream of the graph
        queries, keys, values = (tensor.transpose(1, 2) for tensor in inputs)
        return form(queries, Memory(values, keys, mask.unsqueeze(1)), 8.0, 0.0)

    return partial(attend, softmax_context), partial(attend, softmax_context.reference), inputs


def _norm(rows: int, size: int, device: str) -> Case:
    inputs = _tensors(device, *[(rows, 32, size)] * 2)
    connection = SublayerConnection(nn.LayerNorm(size), norm_order="post", dropout=0.1).to(device)
    fused = accelerate_for_training(connection, device)
    return partial(fused.add_residual, *inputs), partial(connection.add_residual, *inputs), inputs


def _feed_forward(rows: int, size: int, device: str) -> Case:
    (inputs,) = _tensors(device, (rows, 32, size))
    layer = FeedForward(size, 4 * size).to(device)
    fused = accelerate_for_training(layer, device)
    forms = (partial(lambda form: form(inputs).outputs, form) for form in (fused, layer))
    return *forms, [inputs, *layer.parameters()]


def _loss(rows: int, size: int, vocab_size: int, device: str) -> Case:
    (inputs,) = _tensors(device, (rows, 32, size))
    head = SoftmaxHead(size, vocab_size, bias=False).to(device)
    deferred = accelerate_for_training(head, device)
    targets = torch.randint(1, vocab_size, (rows, 32), device=device)

    def selected() -> Tensor:
        return smoothed_cross_entropy(deferred(inputs, None), targets, 0.1)

    def plain() -> Tensor:
        return smoothed_cross_entropy.reference(head(inputs, None), targets, 0.1)

    return selected, plain, [inputs, head.projection.weight]

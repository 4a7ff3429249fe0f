"""How is a long sequence of queries asked without holding what is known of all of them?

A few queries are asked at a time, and again for their gradient. Law: values and gradients are
those of asking all at once, and what is held grows with the number of queries and with that of
places, not with their product.

`torch.utils.checkpoint` asks again too, but keeps a little of every chunk. On a CPU that comes to
lie where a mask was, and what is left there is too small for the next one: for 16,384 queries of
5,461 places, of width 64, a process grew by 400 MiB. It grows by 95 where nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from heedful.nested import Nested, map_tensors
from heedful.shapes import Float, Int

Ask = Callable[[Tensor, Tensor, Any], Tensor]


def in_chunks(
    ask: Ask,
    queries: Float[Tensor, "B T D"],
    places: Int[Tensor, "B T"],
    memory: Nested,
    *,
    weights: Sequence[Tensor],
    chunk: int,
) -> Float[Tensor, "B T V"]:
    """Give ask(queries, places, memory), at most `chunk` queries at a time.

    `weights` are all that learns of what asks, whether it is used or not.
    """

    def refill(queries: Tensor, places: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        left = iter(tensors)
        return ask(queries, places, map_tensors(lambda _: next(left), memory))

    held = _tensors(memory)
    return _InChunks.apply(_Plan(refill, chunk, len(held)), queries, places, *held, *weights)


class _Plan(NamedTuple):
    """What is done with a chunk, how long it is, and how many tensors a memory has."""

    ask: Ask
    chunk: int
    num_held: int


class _InChunks(torch.autograd.Function):
    """Asks a chunk at a time, keeping its inputs alone for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        queries: Float[Tensor, "B T D"],
        places: Int[Tensor, "B T"],
        *tensors: Tensor,
    ) -> Float[Tensor, "B T V"]:
        """Ask, a chunk at a time."""
        ctx.plan = plan
        ctx.draws = torch.get_rng_state(), *get_device_states(queries)
        device = queries.device.type
        ctx.precision = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.save_for_backward(queries, places, *tensors)
        outputs: Tensor | None = None
        for times in _chunks(queries, plan.chunk):
            found = plan.ask(queries[:, times], places[:, times], tensors[: plan.num_held])
            if outputs is None:
                outputs = found.new_empty(*queries.shape[:2], found.size(-1))
            outputs[:, times] = found
        assert outputs is not None, "there is at least one query"
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Float[Tensor, "B T V"]) -> tuple[Tensor | None, ...]:
        """Ask each chunk again; `slopes` are the gradients of what was found."""
        queries, places, *tensors = ctx.saved_tensors
        num_held, needed = ctx.plan.num_held, ctx.needs_input_grad[3:]
        held = [each.detach() for each in tensors[:num_held]]
        sources = [*held, *tensors[num_held:]]
        learning = [each.requires_grad_() for each in compress(sources, needed)]
        for_queries = torch.zeros_like(queries)
        totals = [_wide_zeros(each) for each in learning]
        with _as_before(ctx):
            for times in _chunks(queries, ctx.plan.chunk):
                own = queries[:, times].detach().requires_grad_()
                found = ctx.plan.ask(own, places[:, times], held)
                parts = torch.autograd.grad(
                    found, [own, *learning], slopes[:, times], materialize_grads=True
                )
                for_queries[:, times] = parts[0]
                for total, part in zip(totals, parts[1:], strict=True):
                    total.add_(part)
        done = (total.to(each.dtype) for total, each in zip(totals, learning, strict=True))
        return None, for_queries, None, *(next(done) if wanted else None for wanted in needed)


@contextmanager
def _as_before(ctx: Any) -> Iterator[None]:
    """Draw the same numbers in the same precision, whatever goes on around."""
    (numbers, devices, states), (device, dtype, is_narrow) = ctx.draws, ctx.precision
    with (
        torch.enable_grad(),
        torch.random.fork_rng(devices),
        torch.autocast(device, dtype=dtype, enabled=is_narrow),
    ):
        torch.set_rng_state(numbers)
        set_device_states(devices, states)
        yield


def _tensors(value: Any) -> list[Tensor]:
    found = list[Tensor]()

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


def _chunks(queries: Tensor, chunk: int) -> Iterator[slice]:
    return (slice(first, first + chunk) for first in range(0, queries.size(1), chunk))


def _wide_zeros(tensor: Tensor) -> Tensor:
    # What is summed over chunks is summed in at least single precision, as one sum would be.
    return torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))

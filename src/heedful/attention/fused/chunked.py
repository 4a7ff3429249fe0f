"""How are additive scores found without holding their hidden layer?

The hidden layer tanh(q + k) of every query with every key is (*B, T, S, A): far larger than what
goes in or comes out. Here it is made a chunk of queries at a time, and made again for the
gradient. Law: values and gradients are those of the plain form, and no tensor holds more elements
than a chunk, an input or an output.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.shapes import Float

# Measured on two cores with 2 MiB of level-2 cache each (B=16, T=S=128, A=256, single precision):
# forward and backward take 461 ms at 2**15, 263 at 2**17, 201 at 2**19, 231 at 2**20; plain, 988.
CPU_CHUNK = 2**19
# Measured on an H200 (B=16, T=S=A=512, single precision), forward and backward: 526 ms at 2**20,
# 129 at 2**22, 42 at 2**24, 36 at 2**26 and no less beyond; plain, 29 ms and 24 GiB against 0.6.
DEVICE_CHUNK = 2**26


def chunked_additive(
    queries: Float[Tensor, "*#B T A"],
    keys: Float[Tensor, "*#B S A"],
    vector: Float[Tensor, "A"],
    *,
    chunk: int | None = None,
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), at most `chunk` hidden elements, or one query, at a time."""
    if chunk is None:
        chunk = CPU_CHUNK if queries.device.type == "cpu" else DEVICE_CHUNK
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    rows = [_flatten(each.expand(*leading, -1, -1)) for each in (queries, keys)]
    # Under autocast the projections are narrow and the vector, a parameter, is not.
    scores: Tensor = _ChunkedAdditive.apply(*rows, vector.to(queries.dtype), chunk)
    return scores.view(*leading, queries.size(-2), keys.size(-2))


class _ChunkedAdditive(torch.autograd.Function):
    """v . tanh(q + k), keeping its inputs alone for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "B T A"],
        keys: Float[Tensor, "B S A"],
        vector: Float[Tensor, "A"],
        chunk: int,
    ) -> Float[Tensor, "B T S"]:
        """Score, a chunk at a time."""
        ctx.save_for_backward(queries, keys, vector)
        ctx.chunk = chunk
        scores = queries.new_empty(*queries.shape[:-1], keys.size(1))
        for rows, times in _chunks(queries, keys, chunk):
            scores[rows, times] = _hidden(queries[rows, times], keys[rows]) @ vector
        return scores

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, slopes: Float[Tensor, "B T S"]
    ) -> tuple[Float[Tensor, "B T A"], Float[Tensor, "B S A"], Float[Tensor, "A"], None]:
        """Make each chunk again; `slopes` are the gradients of the scores.

        dq_t = v sum_s slope_ts (1 - h_ts^2),  dk_s = v sum_t slope_ts (1 - h_ts^2),
        dv = sum_ts slope_ts h_ts,  where h_ts = tanh(q_t + k_s).
        """
        queries, keys, vector = ctx.saved_tensors
        # What is summed over chunks is summed in at least single precision, as one sum would be.
        wide = torch.promote_types(queries.dtype, torch.float32)
        for_queries = torch.empty_like(queries)
        for_keys = torch.zeros_like(keys, dtype=wide)
        for_vector = torch.zeros_like(vector, dtype=wide)
        for rows, times in _chunks(queries, keys, ctx.chunk):
            hidden = _hidden(queries[rows, times], keys[rows])
            slope = slopes[rows, times]
            for_vector += slope.flatten() @ hidden.flatten(0, 2)
            _through_tanh(hidden, slope.unsqueeze(-1))
            for_queries[rows, times] = hidden.sum(dim=2)
            for_keys[rows] += hidden.sum(dim=1, dtype=wide)
        return (
            for_queries.mul_(vector),
            for_keys.mul_(vector).to(keys.dtype),
            for_vector.to(vector.dtype),
            None,
        )


def _flatten(inputs: Float[Tensor, "*B N A"]) -> Float[Tensor, "B N A"]:
    return inputs.unsqueeze(0).flatten(0, -3)  # no leading dimension counts as one row


def _chunks(queries: Tensor, keys: Tensor, chunk: int) -> Iterator[tuple[slice, slice]]:
    """Whole rows as long as one fits into a chunk, otherwise queries of a single row."""
    num_rows, num_times, _ = queries.shape
    per_query = max(1, keys[:1].numel())
    times = min(max(1, chunk // per_query), max(1, num_times))
    rows = max(1, chunk // (per_query * num_times)) if times == num_times else 1
    row_starts, time_starts = range(0, num_rows, rows), range(0, num_times, times)
    for row, time in product(row_starts, time_starts):
        yield slice(row, row + rows), slice(time, time + times)


def _hidden(
    queries: Float[Tensor, "B T A"], keys: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    return (queries.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def _through_tanh(hidden: Float[Tensor, "B T S A"], slope: Float[Tensor, "B T S 1"]) -> None:
    """Replace h by slope (1 - h^2), in one pass and without a second chunk."""
    torch.ops.aten.tanh_backward.grad_input(slope.expand_as(hidden), hidden, grad_input=hidden)

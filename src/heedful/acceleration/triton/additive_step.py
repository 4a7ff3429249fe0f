"""A step of additive attention in Triton: one query per row, one launch, and one for the gradient.

weights = softmax(v . tanh(q + k + coverage w_c) / temperature), context = weights @ values, and
coverage grows by the weights. A program computes one row: scores up to its last key that is not
masked, with a running maximum and sum, then weights, then the context. Sums are in float32, or
float64 for float64 inputs. Nothing is summed by atomics: the same inputs give the same bits.
Invariant: outputs and gradients equal `attend`, up to rounding.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration import tuning
from heedful.acceleration.triton.additive_math import (
    DOUBLED_LOG2_E,
    denominator,
    has_fast_reciprocal,
    next_power,
    reciprocal,
    wide_dtype,
)
from heedful.attention.memory import AttentionState
from heedful.shapes import Bool, Float

LOWEST = tl.constexpr(-1e38)
KEY_BLOCK = tl.constexpr(256)  # keys per iteration of passes over masks and weights


class StepInputs(NamedTuple):
    """Inputs of a step other than the state."""

    queries: Float[Tensor, "B A"]  # W q
    keys: Float[Tensor, "B S A"]  # U k, with features other than coverage
    values: Float[Tensor, "B S V"]
    vector: Float[Tensor, "A"]
    coverage_vector: Float[Tensor, "A"] | None
    mask: Bool[Tensor, "B S"]


class StepOutputs(NamedTuple):
    """Context and weights of a step; coverage and number of queries of the next state."""

    context: Float[Tensor, "B V"]
    weights: Float[Tensor, "B S"]
    coverage: Float[Tensor, "B S"] | None
    num_queries: Tensor | None


@triton.jit
def _load_mask(mask, mask_position, k, length):
    return tl.load(mask + k * mask_position, mask=k < length, other=0) != 0


@triton.jit
def _row_length(mask, mask_position, num_keys):
    """Return the number of keys up to the last that is not masked."""
    last = tl.zeros([KEY_BLOCK], tl.int32)
    for start in range(0, num_keys, KEY_BLOCK):
        k = start + tl.arange(0, KEY_BLOCK)
        is_seen = _load_mask(mask, mask_position, k, num_keys)
        last = tl.maximum(last, tl.where(is_seen, k + 1, 0))
    return tl.max(last, axis=0)


@triton.jit
def _load_rows(pointer, position, stride, k, is_seen, n, is_n, dtype: tl.constexpr):
    """Load some keys or values, zeros where they are masked."""
    rows = pointer + k.to(tl.int64)[:, None] * position + n[None, :] * stride
    return tl.load(rows, mask=is_seen[:, None] & is_n[None, :], other=0.0).to(dtype)


@triton.jit
def _load_hidden(
    query, keys, key_position, key_channel, k, is_seen, c, is_c, coverage, coverage_vector,
    IS_APPROXIMATE: tl.constexpr, USES_COVERAGE: tl.constexpr,
):  # fmt: skip
    """Return r = 1 / (1 + exp(2 (q + k))) of some keys; tanh(q + k) = 1 - 2r."""
    hidden = _load_rows(keys, key_position, key_channel, k, is_seen, c, is_c, query.dtype)
    if USES_COVERAGE:
        covered = tl.load(coverage + k, mask=is_seen, other=0.0).to(query.dtype)
        w = tl.load(coverage_vector + c, mask=is_c, other=0.0).to(query.dtype)
        hidden += covered[:, None] * w[None, :]
    exponents = hidden * DOUBLED_LOG2_E
    return reciprocal(
        denominator(query[None, :] * DOUBLED_LOG2_E, exponents, False), IS_APPROXIMATE
    )


@triton.jit(do_not_specialize=["mask_batch", "num_keys"])
def _step_kernel(
    queries, keys, key_batch, key_position, key_channel,
    values, value_batch, value_position, value_channel, mask, mask_batch, mask_position,
    vector, coverage, coverage_vector, num_queries,
    scores, weights, context, next_coverage, next_num_queries,
    num_keys, num_channels, num_values, inverse_temperature,
    KEYS: tl.constexpr, CHANNELS: tl.constexpr, VALUE_KEYS: tl.constexpr, VALUES: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, HAS_STATE: tl.constexpr, USES_COVERAGE: tl.constexpr,
):  # fmt: skip
    """Compute one row; `scores` are kept for the passes that need the normalizer."""
    row = tl.program_id(0).to(tl.int64)
    first = row * num_keys
    dtype = scores.dtype.element_ty
    mask += row * mask_batch
    length = _row_length(mask, mask_position, num_keys)
    c = tl.arange(0, CHANNELS)
    is_c = c < num_channels
    q = tl.load(queries + row * num_channels + c, mask=is_c, other=0.0).to(dtype)
    v = tl.load(vector + c, mask=is_c, other=0.0).to(dtype)
    total = tl.sum(v, axis=0) * 0.0
    maximum = total + LOWEST
    for start in range(0, length, KEYS):
        k = start + tl.arange(0, KEYS)
        is_seen = _load_mask(mask, mask_position, k, length)
        r = _load_hidden(
            q, keys + row * key_batch, key_position, key_channel, k, is_seen, c, is_c,
            coverage + first, coverage_vector, IS_APPROXIMATE, USES_COVERAGE,
        )  # fmt: skip
        score = tl.sum(v[None, :] - 2.0 * v[None, :] * r, axis=1) * inverse_temperature
        tl.store(scores + first + k, score, mask=is_seen)
        score = tl.where(is_seen, score, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(score, axis=0))
        total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(score - new_maximum), axis=0)
        maximum = new_maximum
    tl.debug_barrier()  # scores are read by other threads than wrote them
    inverse = tl.where(total == 0.0, 0.0, 1.0 / total)
    for start in range(0, num_keys, KEY_BLOCK):
        k = start + tl.arange(0, KEY_BLOCK)
        is_seen = _load_mask(mask, mask_position, k, length)
        score = tl.load(scores + first + k, mask=is_seen, other=float("-inf"))
        weight = tl.exp(score - maximum) * inverse
        tl.store(weights + first + k, weight, mask=k < num_keys)
        if HAS_STATE:
            covered = tl.load(coverage + first + k, mask=k < num_keys, other=0.0).to(dtype)
            tl.store(next_coverage + first + k, covered + weight, mask=k < num_keys)
    n = tl.arange(0, VALUES)
    products = tl.zeros([VALUE_KEYS, VALUES], dtype)
    values += row * value_batch
    for start in range(0, length, VALUE_KEYS):
        k = start + tl.arange(0, VALUE_KEYS)
        is_seen = _load_mask(mask, mask_position, k, length)
        score = tl.load(scores + first + k, mask=is_seen, other=float("-inf"))
        weight = tl.exp(score - maximum) * inverse
        products += weight[:, None] * _load_rows(
            values, value_position, value_channel, k, is_seen, n, n < num_values, dtype
        )
    tl.store(context + row * num_values + n, tl.sum(products, axis=0), mask=n < num_values)
    if HAS_STATE:
        tl.store(next_num_queries + row, tl.load(num_queries + row) + 1)


@triton.jit
def _weight_gradients(
    values, value_position, value_channel, mask, mask_position, weights,
    grad_context, grad_weights, grad_next_coverage, scores, grad_values, num_keys, num_values,
    KEYS: tl.constexpr, VALUES: tl.constexpr,
    HAS_CONTEXT_GRAD: tl.constexpr, HAS_WEIGHT_GRAD: tl.constexpr, HAS_COVERAGE_GRAD: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the weights of a row to `scores`, and that of its values.

    Returns the mean gradient under the weights.
    """
    dtype = scores.dtype.element_ty
    n = tl.arange(0, VALUES)
    is_n = n < num_values
    mean = tl.sum(tl.zeros([KEYS], dtype), axis=0)
    for start in range(0, num_keys, KEYS):
        k = start + tl.arange(0, KEYS)
        is_key = k < num_keys
        is_seen = _load_mask(mask, mask_position, k, num_keys)
        weight = tl.load(weights + k, mask=is_seen, other=0.0).to(dtype)
        grad = tl.zeros([KEYS], dtype)
        if HAS_CONTEXT_GRAD:
            g = tl.load(grad_context + n, mask=is_n, other=0.0).to(dtype)[None, :]
            value = _load_rows(values, value_position, value_channel, k, is_seen, n, is_n, dtype)
            grad += tl.sum(value * g, axis=1)
            outputs = grad_values + k.to(tl.int64)[:, None] * num_values + n[None, :]
            tl.store(outputs, weight[:, None] * g, mask=is_key[:, None] & is_n[None, :])
        if HAS_WEIGHT_GRAD:
            grad += tl.load(grad_weights + k, mask=is_seen, other=0.0).to(dtype)
        if HAS_COVERAGE_GRAD:
            grad += tl.load(grad_next_coverage + k, mask=is_seen, other=0.0).to(dtype)
        tl.store(scores + k, grad, mask=is_key)
        mean += tl.sum(weight * grad, axis=0)
    return mean


@triton.jit(do_not_specialize=["mask_batch", "num_keys"])
def _step_gradient_kernel(
    queries, keys, key_batch, key_position, key_channel,
    values, value_batch, value_position, value_channel, mask, mask_batch, mask_position,
    vector, coverage, coverage_vector, weights, grad_context, grad_weights, grad_next_coverage,
    scores, grad_queries, grad_keys, grad_values, grad_vector, grad_coverage, grad_coverage_vector,
    num_keys, num_channels, num_values, inverse_temperature,
    KEYS: tl.constexpr, CHANNELS: tl.constexpr, VALUE_KEYS: tl.constexpr, VALUES: tl.constexpr,
    IS_APPROXIMATE: tl.constexpr, USES_COVERAGE: tl.constexpr,
    HAS_CONTEXT_GRAD: tl.constexpr, HAS_WEIGHT_GRAD: tl.constexpr, HAS_COVERAGE_GRAD: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of one row, and its parts of those of both vectors."""
    row = tl.program_id(0).to(tl.int64)
    first, offset = row * num_keys, row * num_channels
    dtype = scores.dtype.element_ty
    mask += row * mask_batch
    mean = _weight_gradients(
        values + row * value_batch, value_position, value_channel, mask, mask_position,
        weights + first, grad_context + row * num_values, grad_weights + first,
        grad_next_coverage + first, scores + first, grad_values + first * num_values,
        num_keys, num_values, VALUE_KEYS, VALUES,
        HAS_CONTEXT_GRAD, HAS_WEIGHT_GRAD, HAS_COVERAGE_GRAD,
    )  # fmt: skip
    tl.debug_barrier()  # scores are read by other threads than wrote them
    c = tl.arange(0, CHANNELS)
    is_c = c < num_channels
    q = tl.load(queries + offset + c, mask=is_c, other=0.0).to(dtype)
    v = tl.load(vector + c, mask=is_c, other=0.0).to(dtype)
    query_sums, vector_sums = tl.zeros([KEYS, CHANNELS], dtype), tl.zeros([KEYS, CHANNELS], dtype)
    coverage_sums = tl.zeros([KEYS, CHANNELS], dtype)
    for start in range(0, num_keys, KEYS):
        k = start + tl.arange(0, KEYS)
        is_key = k < num_keys
        is_seen = _load_mask(mask, mask_position, k, num_keys)
        weight = tl.load(weights + first + k, mask=is_seen, other=0.0).to(dtype)
        grad = tl.load(scores + first + k, mask=is_seen, other=0.0)
        grad = (weight * (grad - mean) * inverse_temperature)[:, None]
        r = _load_hidden(
            q, keys + row * key_batch, key_position, key_channel, k, is_seen, c, is_c,
            coverage + first, coverage_vector, IS_APPROXIMATE, USES_COVERAGE,
        )  # fmt: skip
        slope = 4.0 * grad * v[None, :] * (r - r * r)
        outputs = grad_keys + (first + k)[:, None] * num_channels + c[None, :]
        tl.store(outputs, slope, mask=is_key[:, None] & is_c[None, :])
        query_sums += slope
        vector_sums += grad * (1.0 - 2.0 * r)
        if USES_COVERAGE:
            covered = tl.load(coverage + first + k, mask=is_seen, other=0.0).to(dtype)
            coverage_sums += slope * covered[:, None]
            w = tl.load(coverage_vector + c, mask=is_c, other=0.0).to(dtype)
            key_sums = tl.sum(slope * w[None, :], axis=1)
            if HAS_COVERAGE_GRAD:
                key_sums += tl.load(grad_next_coverage + first + k, mask=is_key, other=0.0)
            tl.store(grad_coverage + first + k, key_sums, mask=is_key)
    tl.store(grad_queries + offset + c, tl.sum(query_sums, axis=0), mask=is_c)
    tl.store(grad_vector + offset + c, tl.sum(vector_sums, axis=0), mask=is_c)
    if USES_COVERAGE:
        tl.store(grad_coverage_vector + offset + c, tl.sum(coverage_sums, axis=0), mask=is_c)


def triton_step(
    inputs: StepInputs, state: AttentionState | None, temperature: float
) -> StepOutputs:
    """Attend with one query per row; the state must have one row of coverage for each query."""
    coverage = None if state is None else state.coverage
    num_queries = None if state is None else state.num_queries
    return StepOutputs(*_TritonStep.apply(*inputs, coverage, num_queries, temperature))


class _TritonStep(torch.autograd.Function):
    """One step; saves its inputs and weights for the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        vector: Tensor,
        coverage_vector: Tensor | None,
        mask: Tensor,
        coverage: Tensor | None,
        num_queries: Tensor | None,
        temperature: float,
    ) -> tuple[Tensor | None, ...]:
        batch_size, num_keys, num_channels = keys.shape
        queries, vector = queries.contiguous(), vector.contiguous()
        coverage = None if coverage is None else coverage.contiguous()
        coverage_vector = None if coverage_vector is None else coverage_vector.contiguous()
        mask = mask.view(torch.uint8)
        weight_dtype, context_dtype = _output_dtypes(queries, values)
        scores = queries.new_empty(batch_size, num_keys, dtype=wide_dtype(queries))
        weights = torch.empty_like(scores, dtype=weight_dtype)
        context = values.new_empty(batch_size, values.size(2), dtype=context_dtype)
        next_coverage = next_num_queries = None
        if coverage is not None and num_queries is not None:
            next_dtype = torch.promote_types(coverage.dtype, weight_dtype)
            next_coverage = torch.empty_like(coverage, dtype=next_dtype)
            num_queries = num_queries.contiguous()
            next_num_queries = torch.empty_like(num_queries)
            ctx.mark_non_differentiable(next_num_queries)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            queries, keys, values, vector, coverage_vector, mask, coverage, weights
        )
        ctx.temperature = temperature
        if batch_size:
            _step_kernel[(batch_size,)](
                queries, keys, *keys.stride(), values, *values.stride(), mask, *mask.stride(),
                vector, _or_unused(coverage, scores), _or_unused(coverage_vector, scores),
                _or_unused(num_queries, scores), scores, weights, context,
                _or_unused(next_coverage, scores), _or_unused(next_num_queries, scores),
                num_keys, num_channels, values.size(2), 1 / temperature,
                **_tiles(num_channels, values.size(2), tuning.TRITON_STEP_TILE),
                IS_APPROXIMATE=has_fast_reciprocal(scores), HAS_STATE=next_coverage is not None,
                USES_COVERAGE=coverage is not None and coverage_vector is not None,
                enable_fp_fusion=True,
            )  # fmt: skip
        return context, weights, next_coverage, next_num_queries

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        grad_context: Tensor | None,
        grad_weights: Tensor | None,
        grad_next_coverage: Tensor | None,
        _: None,
    ) -> tuple[Tensor | None, ...]:
        """With g the gradient of the weights w and h the hidden layer.

        g_s = dcontext . value_s + dw_s,  dscore = w (g - sum w g),  dh = dscore v (1 - h^2)
        """
        queries, keys, values, vector, coverage_vector, mask, coverage, weights = ctx.saved_tensors
        batch_size, num_keys, num_channels = keys.shape
        grads = [grad_context, grad_weights, grad_next_coverage]
        grads = [None if grad is None else grad.contiguous() for grad in grads]
        if all(grad is None for grad in grads) or not batch_size:
            return (None,) * 9
        uses_coverage = coverage is not None and coverage_vector is not None
        scores = queries.new_empty(batch_size, num_keys, dtype=wide_dtype(queries))
        grad_queries = torch.empty_like(queries)
        grad_keys = torch.empty_like(keys, memory_format=torch.contiguous_format)
        grad_values = torch.empty_like(values, memory_format=torch.contiguous_format)
        parts = scores.new_empty(2, batch_size, num_channels)
        grad_coverage = torch.empty_like(coverage) if uses_coverage else None
        _step_gradient_kernel[(batch_size,)](
            queries, keys, *keys.stride(), values, *values.stride(), mask, *mask.stride(),
            vector, _or_unused(coverage, scores), _or_unused(coverage_vector, scores),
            weights, *(_or_unused(grad, scores) for grad in grads),
            scores, grad_queries, grad_keys, grad_values, parts[0],
            _or_unused(grad_coverage, scores), parts[1],
            num_keys, num_channels, values.size(2), 1 / ctx.temperature,
            **_tiles(num_channels, values.size(2), tuning.TRITON_STEP_GRADIENT_TILE),
            IS_APPROXIMATE=has_fast_reciprocal(scores), USES_COVERAGE=uses_coverage,
            HAS_CONTEXT_GRAD=grads[0] is not None, HAS_WEIGHT_GRAD=grads[1] is not None,
            HAS_COVERAGE_GRAD=grads[2] is not None, enable_fp_fusion=True,
        )  # fmt: skip
        return (
            grad_queries,
            grad_keys,
            None if grads[0] is None else grad_values,
            parts[0].sum(dim=0).to(vector.dtype),
            parts[1].sum(dim=0).to(coverage_vector.dtype) if uses_coverage else None,
            None,
            grad_coverage if uses_coverage else grads[2],
            None,
            None,
        )


def _output_dtypes(queries: Tensor, values: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Return the dtypes of weights and context; under autocast, those of softmax and of matmul."""
    device = queries.device.type
    if torch.is_autocast_enabled(device):
        return wide_dtype(queries), torch.get_autocast_dtype(device)
    return queries.dtype, values.dtype


def _tiles(num_channels: int, num_values: int, tile: tuple[int, int]) -> dict[str, int]:
    """Return the sizes of blocks: all channels, and as many keys as fill a tile."""
    num_elements, num_warps = tile
    channels, values = next_power(num_channels), next_power(num_values)
    return {
        "CHANNELS": channels,
        "KEYS": max(1, num_elements // channels),
        "VALUES": values,
        "VALUE_KEYS": max(1, num_elements // values),
        "num_warps": num_warps,
    }


def _or_unused(tensor: Tensor | None, unused: Tensor) -> Tensor:
    return unused if tensor is None else tensor

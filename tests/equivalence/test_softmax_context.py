"""A context taken without weights is the one taken with them, in value and in gradient."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heedful.acceleration import tuning
from heedful.acceleration.kernels import is_long_causal
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment, mask_scores
from heedful.attention.attention import SingleHeadAttention, softmax_context
from heedful.attention.masks import (
    block_local_mask,
    causal_mask,
    padding_mask,
)
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import ArgmaxReadout, WeightedSumReadout
from heedful.attention.scores import (
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
)

ROWS, SIZE, WIDTH = 3, 7, 4
WINDOW = (torch.arange(SIZE)[None, :, None] - torch.arange(SIZE)).abs() <= 1
MASKS = {
    "all": torch.ones(1, 1, SIZE, dtype=torch.bool),
    "padding": padding_mask(torch.tensor([7, 3, 1]), SIZE),
    "fully hidden rows": padding_mask(torch.tensor([7, 0, 2]), SIZE),
    "causal": causal_mask(SIZE),
    "causal, padded": causal_mask(SIZE) & padding_mask(torch.tensor([7, 3, 0]), SIZE),
    "window": WINDOW,
    "window, padded before": WINDOW & (torch.arange(SIZE) > 3),
    "block": block_local_mask(SIZE, 3),
    "prefix": padding_mask(torch.tensor([2, 7, 0]), SIZE) | causal_mask(SIZE),
}
SCORES = {
    "dot": DotScore(),
    "scaled-dot": ScaledDotScore(),
    "bilinear": BilinearScore(WIDTH, WIDTH).double(),
}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
each_precision = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)


def sdpa_context(queries, keys, values, mask, temperature=1.0):
    return softmax_context(queries, Memory(values, keys, mask), temperature, 0.0)


def attention(score="scaled-dot", temperature=1.0):
    return SingleHeadAttention(SCORES[score], SoftmaxAlignment(temperature), WeightedSumReadout())


def inputs(*leading, times=SIZE, places=SIZE, dtype=torch.double):
    sizes = [(*leading, times, WIDTH), (*leading, places, WIDTH)]
    return [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]


def value_and_gradients(module, arguments, mask, grad_outputs, *, need_weights):
    queries, values = arguments
    attended = module(queries, module.build_memory(values, mask), need_weights=need_weights)
    assert (attended.weights is None) == (not need_weights)
    gradients = torch.autograd.grad(attended.context, arguments, grad_outputs)
    return [attended.context, *gradients]


def both(module, arguments, mask):
    grad_outputs = torch.randn_like(arguments[0])
    return [
        value_and_gradients(module, arguments, mask, grad_outputs, need_weights=need)
        for need in (False, True)
    ]


@each_mask
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_context_without_weights_equals_context_with_weights(mask, score, temperature):
    actual, expected = both(attention(score, temperature), inputs(ROWS), mask)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 1, 3), (0,)], ids=str)
@pytest.mark.parametrize(("times", "places"), [(1, 7), (5, 2), (7, 1), (0, 3)])
def test_contexts_agree_for_any_leading_dimensions_and_lengths(leading, times, places):
    arguments = inputs(*leading, times=times, places=places)
    mask = torch.rand(*leading, times, places) < 0.6
    actual, expected = both(attention(), arguments, mask)
    torch.testing.assert_close(actual, expected)


def test_mask_broadcasts_over_leading_dimensions():
    queries, values = inputs(2, 3)
    actual = sdpa_context(queries, values, values, causal_mask(SIZE))
    whole = causal_mask(SIZE).expand(2, 3, SIZE, SIZE)
    torch.testing.assert_close(actual, sdpa_context(queries, values, values, whole))


@each_mask
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtype_is_kept_and_error_is_at_most_twice_the_references(mask, dtype):
    exact = inputs(ROWS)
    grad_outputs = torch.randn(ROWS, SIZE, WIDTH).double()
    module = attention()
    truth = value_and_gradients(module, exact, mask, grad_outputs, need_weights=True)
    rounded = [each.detach().to(dtype).requires_grad_() for each in exact]
    actual, plain = (
        value_and_gradients(module, rounded, mask, grad_outputs.to(dtype), need_weights=need)
        for need in (False, True)
    )
    for tensor, reference, exact_tensor in zip(actual, plain, truth, strict=True):
        assert tensor.dtype == dtype
        # One rounding of the largest entry, in every entry.
        rounding = torch.finfo(dtype).eps * exact_tensor.abs().max() * exact_tensor.numel() ** 0.5
        error = (tensor - exact_tensor).norm()
        assert error <= 2 * (reference - exact_tensor).norm() + rounding


@each_precision
@pytest.mark.parametrize("heads", [(), (2,)], ids=["no heads", "heads"])
def test_fully_masked_row_returns_zeros_in_value_and_gradient(dtype, heads):
    queries, values = inputs(2, *heads, dtype=dtype)
    mask = torch.ones(SIZE, SIZE, dtype=torch.bool)
    mask[2], mask[:, 4] = False, False
    module = attention()
    context = module(
        queries, module.build_memory(values, mask.expand(2, *heads, -1, -1)), need_weights=False
    ).context
    assert (context[..., 2, :] == 0).all()
    context.square().sum().backward()
    assert (queries.grad[..., 2, :] == 0).all()
    assert (values.grad[..., 4, :] == 0).all()
    assert queries.grad.isfinite().all()
    assert values.grad.isfinite().all()


@each_precision
@each_mask
def test_nan_query_affects_only_its_row(mask, dtype):
    queries, values = (each.detach() for each in inputs(ROWS, dtype=dtype))
    queries[:, 3] = torch.nan
    module = attention()
    memory = module.build_memory(values, mask)
    actual = module(queries, memory, need_weights=False).context
    assert (actual.isnan() == module(queries, memory).context.isnan()).all()
    assert actual[:, [0, 1, 2, 4, 5, 6]].isfinite().all()


@each_precision
@pytest.mark.parametrize("spoiled", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_masked_keys_are_not_read(dtype, spoiled):
    queries, values = (each.detach() for each in inputs(ROWS, dtype=dtype))
    mask = padding_mask(torch.tensor([5, 3, 1]), SIZE)
    keys = values.masked_fill(~mask.mT, spoiled)
    actual = sdpa_context(queries, keys, values, mask)
    torch.testing.assert_close(actual, sdpa_context(queries, values, values, mask))


def test_visible_nan_key_returns_nan():
    queries, values = (each.detach() for each in inputs(ROWS))
    keys = values.clone()
    keys[1, 4] = torch.nan
    actual = sdpa_context(queries, keys, values, causal_mask(SIZE))
    assert actual[1, 4:].isnan().all()
    assert actual[[0, 2]].isfinite().all()


def test_gradients_match_finite_differences():
    mask = causal_mask(SIZE) & padding_mask(torch.tensor([7, 3, 0]), SIZE)

    def take(queries, keys, values):
        return sdpa_context(queries, keys, values, mask, 0.7)

    queries, values = inputs(ROWS)
    assert torch.autograd.gradcheck(take, (queries, inputs(ROWS)[1], values))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@each_mask
def test_contexts_agree_with_grouped_heads(mask, num_kv_heads):
    sizes = {"query_size": WIDTH, "memory_size": WIDTH, "head_dim": 3}
    module = MultiHeadAttention(
        attention(), **sizes, num_heads=4, num_kv_heads=num_kv_heads
    ).double()
    actual, expected = both(module, inputs(ROWS), mask)
    torch.testing.assert_close(actual, expected)


@pytest.mark.gpu
@each_mask
@each_precision
@pytest.mark.parametrize("num_kv_heads", [1, 4])
def test_gpu_equals_exact_cpu_result(mask, dtype, num_kv_heads):
    queries = torch.randn(ROWS, 4, SIZE, 8, dtype=torch.double)
    keys, values = torch.randn(2, ROWS, num_kv_heads, SIZE, 8, dtype=torch.double)
    mask = mask.expand(ROWS, -1, -1).unsqueeze(1)
    exact = [each.to(dtype).double().requires_grad_() for each in (queries, keys, values)]
    there = [each.detach().to("cuda", dtype).requires_grad_() for each in exact]
    grad_outputs = torch.randn_like(queries).to(dtype)
    expected = sdpa_context(*exact, mask)
    actual = sdpa_context(*there, mask.cuda())
    loose = {torch.double: 1e-9, torch.float: 1e-5}.get(dtype, 8 * torch.finfo(dtype).eps)
    pairs = zip(
        [actual, *torch.autograd.grad(actual, there, grad_outputs.cuda())],
        [expected, *torch.autograd.grad(expected, exact, grad_outputs.double())],
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one.cpu().double(), other, rtol=loose, atol=4 * loose)
    sees = mask.any(dim=-1, keepdim=True).cuda()
    assert (actual.masked_fill(sees, 0) == 0).all()


@pytest.mark.gpu
@each_mask
@each_precision
def test_nan_query_affects_only_its_row_on_a_gpu(mask, dtype):
    queries, values = (each.detach().cuda() for each in inputs(ROWS, dtype=dtype))
    queries[:, 3] = torch.nan
    module = attention()
    memory = module.build_memory(values, mask.cuda())
    actual = module(queries, memory, need_weights=False).context
    assert (actual.isnan() == module(queries, memory).context.isnan()).all()


class LargestTensor(TorchDispatchMode):
    """Notes the most elements of any tensor that an operation has given out."""

    elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        produced = operation(*args, **(kwargs or {}))
        for each in tree_leaves(produced):
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return produced


def test_weights_never_stored():
    heads, size = 8, 64
    queries, values = inputs(2, heads, times=size, places=size, dtype=torch.float)
    with LargestTensor() as largest:
        sdpa_context(queries, values, values, causal_mask(size)).sum().backward()
    assert largest.elements <= 2 * max(queries.numel(), size * size) < 2 * heads * size * size


class OtherDot(DotScore):
    """A score that might compare otherwise."""


@pytest.mark.parametrize(
    "parts",
    [
        (CosineScore(), SoftmaxAlignment(), WeightedSumReadout()),
        (OtherDot(), SoftmaxAlignment(), WeightedSumReadout()),
        (DotScore() + DotScore(), SoftmaxAlignment(), WeightedSumReadout()),
        (DotScore(), SparsemaxAlignment(), WeightedSumReadout()),
        (DotScore(), SoftmaxAlignment(), ArgmaxReadout()),
    ],
    ids=lambda parts: " ".join(type(part).__name__ for part in parts),
)
def test_other_attention_always_computes_weights(parts):
    module = SingleHeadAttention(*parts).double()
    assert not module.is_softmax_attention
    queries, values = inputs(ROWS)
    memory = module.build_memory(values, MASKS["padding"])
    assert module(queries, memory, need_weights=False).weights is not None


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_long_causal_context_needs_no_mask(monkeypatch, num_kv_heads):
    """A mask that differs from the causal one in a single pair is used."""
    monkeypatch.setattr(tuning, "MIN_LONG_CAUSAL", 16)
    queries, _ = inputs(1, 4, times=16)
    keys, values = inputs(1, num_kv_heads, times=16, places=16)
    mask = causal_mask(16).unsqueeze(1)
    other = mask.clone()
    other[..., 9, 4] = False
    assert is_long_causal(queries, mask)
    assert not is_long_causal(queries, other)
    assert not is_long_causal(queries.index_fill(-2, torch.tensor([5]), torch.nan), mask)
    for visible in (mask, other):
        expected = Memory(
            *(heads.repeat_interleave(4 // num_kv_heads, 1) for heads in (values, keys)), visible
        )
        weights = mask_scores(queries @ expected.keys.mT / 1.3, visible).softmax(dim=-1)
        found = sdpa_context(queries, keys, values, visible, 1.3)
        torch.testing.assert_close(found, weights @ expected.values)

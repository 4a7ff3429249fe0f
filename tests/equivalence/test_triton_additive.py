"""Additive scores in Triton are the plain ones, in value and in gradient.

They run on a GPU, or in Triton's interpreter where there is none (`make test-extras`).
"""

import pytest
import torch

from heedful.acceleration import kernels, tuning
from heedful.attention.additive_scores import AdditiveScore, ConcatScore, additive_score
from heedful.attention.alignments import EntmaxAlignment, SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention, attend
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.readouts import WeightedSumReadout

pytest.importorskip("triton", reason="Triton is not installed")

from heedful.acceleration.triton.additive_math import MAX_FACTORED, MAX_IN_FOURS
from heedful.acceleration.triton.additive_score import triton_additive_score

pytestmark = pytest.mark.extras

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMIT = MAX_FACTORED.value

# Leading dimensions, queries, keys, channels.
SHAPES = [
    ((), 1, 1, 1),
    ((1,), 5, 3, 2),
    ((3,), 1, 5, 5),
    ((2,), 5, 1, 8),
    ((1, 2), 5, 3, 11),
    ((1,), 3, 9, 9),
    ((2,), 0, 4, 3),
    ((2,), 4, 0, 3),
    ((0,), 4, 3, 3),
    ((2,), 3, 4, 0),
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles that few positions and channels fill more than once."""
    monkeypatch.setattr(tuning, "TRITON_SCORE_TILE", (4, 8, 1))
    monkeypatch.setattr(tuning, "TRITON_GRADIENT_TILE", (4, 4, 1))
    monkeypatch.setattr(tuning, "MIN_TRITON_QUERIES", 1)


def inputs(leading, num_queries, num_keys, size, *, dtype=torch.double, scale=1.0):
    sizes = [(*leading, num_queries, size), (*leading, num_keys, size), (size,)]
    tensors = [(scale * torch.randn(size, dtype=torch.double)).to(DEVICE, dtype) for size in sizes]
    return [tensor.requires_grad_() for tensor in tensors]


def value_and_gradients(form, arguments, grad_scores):
    scores = form(*arguments)
    return [scores, *torch.autograd.grad(scores, arguments, grad_scores)]


def assert_equals_reference(arguments, **tolerance):
    """Compare with the plain form in float64, with gradients that differ for each pair."""
    exact = [tensor.detach().double().requires_grad_() for tensor in arguments]
    grad_scores = torch.randn_like(additive_score.reference(*exact))
    expected = value_and_gradients(additive_score.reference, exact, grad_scores)
    dtype = arguments[0].dtype
    actual = value_and_gradients(triton_additive_score, arguments, grad_scores.to(dtype))
    assert all(tensor.dtype == dtype for tensor in actual)
    torch.testing.assert_close(actual, expected, check_dtype=False, **tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_triton_scores_equal_reference_in_value_and_gradient(shape):
    assert_equals_reference(inputs(*shape))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)],
    ids=str,
)
def test_narrow_inputs_summed_in_float32(dtype, tolerance):
    assert_equals_reference(inputs((1,), 5, 9, 5, dtype=dtype), rtol=tolerance, atol=tolerance)


def test_production_tiles_equal_reference(monkeypatch):
    monkeypatch.undo()
    assert_equals_reference(inputs((1,), 17, 3, 131, dtype=torch.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.double, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [MAX_IN_FOURS.value, LIMIT, 100.0, 1000.0])
def test_large_projections_do_not_overflow_and_not_clamped(scale, dtype):
    queries, keys, vector = inputs((1,), 5, 3, 5, dtype=dtype, scale=scale)
    # Large elements that cancel: tanh must see their difference.
    opposite = (1.0 - queries[:, :1]).detach().expand(-1, 3, -1)
    for second in (keys, opposite.clone().requires_grad_()):
        small = (vector / scale).detach().requires_grad_()
        assert_equals_reference([queries, second, small], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("limit", [MAX_IN_FOURS.value, LIMIT])
def test_scores_are_continuous_at_the_limits_of_factoring(limit):
    queries = torch.full((1, 1, 4), limit, dtype=torch.double, device=DEVICE)
    keys = torch.tensor([-limit, -limit + 1, limit], dtype=torch.double, device=DEVICE)
    keys, vector = keys[None, :, None].expand(1, 3, 4), torch.ones_like(queries[0, 0])
    below, above = (triton_additive_score(queries * by, keys, vector) for by in (1.0, 1 + 1e-12))
    torch.testing.assert_close(below, above)
    torch.testing.assert_close(above, 4 * (queries[:, :, :1] + keys[:, None, :, 0]).tanh())


def test_one_large_row_leaves_the_bits_of_others_unchanged():
    queries, keys, vector = (tensor.detach() for tensor in inputs((2,), 5, 6, 7))
    scores = triton_additive_score(queries, keys, vector)
    queries[1] *= 100
    assert torch.equal(triton_additive_score(queries, keys, vector)[0], scores[0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nonfinite_elements_reach_the_scores_they_reach_in_the_reference(value):
    queries, keys, vector = (tensor.detach() for tensor in inputs((2,), 3, 4, 5))
    queries[0, 1, 2] = value
    keys[0, 2, 2] = -value
    torch.testing.assert_close(
        triton_additive_score(queries, keys, vector),
        additive_score.reference(queries, keys, vector),
        equal_nan=True,
    )


def test_noncontiguous_inputs_equal_reference():
    queries, keys, vector = inputs((2, 3), 5, 4, 6)
    views = [
        queries.transpose(0, 1)[..., ::2],
        keys.detach().mT.contiguous().mT.transpose(0, 1)[..., 1::2],
        vector[::2],
    ]
    assert_equals_reference([view.detach().requires_grad_() for view in views])


@pytest.mark.parametrize(
    ("of_queries", "of_keys"), [((2, 3), (2, 1)), ((1, 3), (2, 1)), ((3,), (2, 1)), ((), (2,))]
)
def test_leading_dimensions_may_broadcast(of_queries, of_keys):
    queries, _, vector = inputs(of_queries, 3, 1, 5)
    assert_equals_reference([queries, inputs(of_keys, 1, 4, 5)[1], vector])


def test_expanded_gradient_of_a_sum_is_accepted():
    arguments = inputs((2,), 3, 4, 5)
    actual = torch.autograd.grad(triton_additive_score(*arguments).sum(), arguments)
    expected = torch.autograd.grad(additive_score.reference(*arguments).sum(), arguments)
    torch.testing.assert_close(actual, expected)


def test_gradient_of_a_single_input():
    arguments = inputs((2,), 3, 4, 5)
    expected = torch.autograd.grad(additive_score.reference(*arguments).sum(), arguments)
    for index, gradient in enumerate(expected):
        alone = [tensor.detach() for tensor in arguments]
        alone[index].requires_grad_()
        triton_additive_score(*alone).sum().backward()
        torch.testing.assert_close(alone[index].grad, gradient)


@pytest.fixture
def deterministic():
    """Torch's deterministic mode, which also fills new tensors with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_scores_and_gradients_repeat_bit_by_bit():
    arguments = inputs((2,), 5, 3, 5, dtype=torch.float32)
    grad_scores = torch.randn(2, 5, 3, device=DEVICE)
    first, second = (
        value_and_gradients(triton_additive_score, arguments, grad_scores) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


MASKS = {
    "lengths": padding_mask(torch.tensor([9, 5, 0]), 9),
    "causal": causal_mask(9),
    "holes": torch.arange(81).view(1, 9, 9) % 5 == 0,
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_pairs_do_not_change_scores_or_gradients(name):
    mask, arguments = MASKS[name].to(DEVICE), inputs((3,), 9, 9, 5)
    grad_scores = torch.randn(3, 9, 9, device=DEVICE, dtype=torch.double) * mask
    expected = value_and_gradients(additive_score.reference, arguments, grad_scores)
    actual = value_and_gradients(
        lambda *tensors: triton_additive_score(*tensors, mask), arguments, grad_scores
    )
    assert actual[0].isfinite().all()
    torch.testing.assert_close([actual[0] * mask, *actual[1:]], [expected[0] * mask, *expected[1:]])


def test_masked_tiles_not_computed():
    queries, keys, vector = inputs((2,), 5, 9, 5)
    with torch.no_grad():
        keys[1] = torch.nan
    mask = padding_mask(torch.tensor([9, 0], device=DEVICE), 9)
    scores = triton_additive_score(queries, keys, vector, mask)
    assert scores.isfinite().all()
    gradients = torch.autograd.grad(scores, [queries, keys, vector], torch.ones_like(scores) * mask)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not any(gradient[1].any() for gradient in gradients[:2])


@pytest.mark.parametrize(
    "alignment", [SoftmaxAlignment(), SparsemaxAlignment(), EntmaxAlignment(1.5)], ids=str
)
def test_any_alignment_of_triton_scores_equals_the_reference(alignment, monkeypatch):
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", DEVICE)
    monkeypatch.setattr(tuning, "MIN_TRITON_ELEMENTS", 1)
    for score in (AdditiveScore(3, 5, hidden_size=6, bias=True), ConcatScore(3, 5, hidden_size=6)):
        attention = SingleHeadAttention(score, alignment, WeightedSumReadout()).to(DEVICE).double()
        values = torch.randn(2, 9, 5, device=DEVICE, dtype=torch.double)
        memory = attention.build_memory(values, padding_mask(torch.tensor([9, 4]), 9).to(DEVICE))
        queries = torch.randn(2, 3, 3, device=DEVICE, dtype=torch.double)
        kernel = attend.select_kernel(attention, queries, memory, None)
        assert kernel.run is kernels.attend_to_unmasked_with_triton
        actual = attention(queries, memory)
        with monkeypatch.context() as patch:
            patch.setattr(attend, "kernels", [])
            patch.setattr(additive_score, "kernels", [])
            expected = attention(queries, memory)
        torch.testing.assert_close(actual[:2], expected[:2])
        parameters = list(score.parameters())
        torch.testing.assert_close(
            torch.autograd.grad((actual.context**2).sum(), parameters, retain_graph=True),
            torch.autograd.grad((expected.context**2).sum(), parameters),
        )


def test_second_derivative_raises():
    arguments = inputs((), 2, 3, 4)
    scores = triton_additive_score(*arguments)
    first = torch.autograd.grad(scores.square().sum(), arguments, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def test_triton_is_selected_by_device_dtype_and_size(monkeypatch):
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", DEVICE)
    monkeypatch.setattr(tuning, "MIN_TRITON_ELEMENTS", 2 * 3 * 4 * 5)
    queries, keys, vector = inputs((2,), 3, 4, 5)
    assert additive_score.select_kernel(queries, keys, vector).name == "triton"
    assert additive_score.select_kernel(queries[:1], keys[:1], vector) is None
    assert additive_score.select_kernel(queries.long(), keys, vector) is None
    monkeypatch.setattr(tuning, "MIN_TRITON_QUERIES", 4)
    assert additive_score.select_kernel(queries, keys, vector) is None
    monkeypatch.setattr(tuning, "MIN_TRITON_QUERIES", 3)
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", "meta")
    assert additive_score.select_kernel(queries, keys, vector) is None

"""Additive scores in chunks are the plain ones, in value and in gradient, without their memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration.chunked_attention import chunked_additive_score
from heedful.acceleration.tuning import MAX_UNCHUNKED_ELEMENTS
from heedful.attention.additive_scores import additive_score

plain_additive_score = additive_score.reference

WIDTH = 5

# Leading dimensions, queries, keys.
SHAPES = [
    ((), 1, 1),
    ((), 7, 3),
    ((1,), 4, 6),
    ((3,), 1, 7),
    ((3,), 7, 1),
    ((5,), 3, 9),
    ((2, 3), 5, 4),
    ((2,), 0, 4),
    ((2,), 4, 0),
    ((0,), 4, 3),
]
# Hidden elements: less than one query, one query of 9 keys, an odd number, everything.
CHUNKS = [1, 9 * WIDTH, 101, 10_000]

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_chunk = pytest.mark.parametrize("chunk", CHUNKS)


def inputs(shape, *, width=WIDTH, dtype=torch.double):
    leading, times, places = shape
    sizes = [(*leading, times, width), (*leading, places, width), (width,)]
    return [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]


def is_chunked(queries, keys):
    return additive_score.select_kernel(queries, keys, torch.ones(queries.size(-1))) is not None


def value_and_gradients(form, arguments, grad_outputs, **options):
    scores = form(*arguments, **options)
    return [scores, *torch.autograd.grad(scores, arguments, grad_outputs)]


@each_shape
@each_chunk
def test_chunked_scores_equal_reference_in_value_and_gradient(shape, chunk):
    arguments = inputs(shape)
    grad_outputs = torch.randn(*shape[0], *shape[1:]).double()
    plain = value_and_gradients(plain_additive_score, arguments, grad_outputs)
    torch.testing.assert_close(
        value_and_gradients(chunked_additive_score, arguments, grad_outputs, max_elements=chunk),
        plain,
    )


@each_chunk
def test_chunked_scores_match_hand_calculation(chunk):
    queries, keys, vector = inputs(((2,), 3, 4))
    scores = chunked_additive_score(queries, keys, vector, max_elements=chunk)
    for row, time, place in [(0, 0, 0), (0, 2, 1), (1, 1, 3)]:
        terms = zip(vector, queries[row, time], keys[row, place], strict=True)
        by_hand = sum(v * torch.tanh(q + k) for v, q, k in terms)
        torch.testing.assert_close(scores[row, time, place], by_hand)


@each_chunk
def test_gradients_match_finite_differences(chunk):
    def score(*arguments):
        return chunked_additive_score(*arguments, max_elements=chunk)

    assert torch.autograd.gradcheck(score, inputs(((2,), 3, 4)))


def test_gradient_of_a_single_input():
    arguments = inputs(((2,), 3, 4))
    expected = torch.autograd.grad(plain_additive_score(*arguments).sum(), arguments)
    for place, gradient in enumerate(expected):
        alone = [each.detach() for each in arguments]
        alone[place].requires_grad_()
        chunked_additive_score(*alone, max_elements=30).sum().backward()
        torch.testing.assert_close(alone[place].grad, gradient)


def test_chunked_scores_accept_views():
    queries, keys, vector = inputs(((2, 3), 4, 6))
    views = queries.transpose(0, 1), keys[0].unsqueeze(1).expand(-1, 2, -1, -1), vector
    torch.testing.assert_close(
        chunked_additive_score(*views, max_elements=50), plain_additive_score(*views)
    )


@pytest.mark.parametrize("form", [plain_additive_score, chunked_additive_score, additive_score])
@pytest.mark.parametrize(
    ("of_queries", "of_keys"), [((2, 3), (2, 1)), ((1, 3), (2, 1)), ((3,), (2, 1)), ((), (2,))]
)
def test_leading_dimensions_may_broadcast(form, of_queries, of_keys):
    queries, keys, vector = (
        inputs((of_queries, 4, 6))[0],
        inputs((of_keys, 4, 6))[1],
        inputs(((), 1, 1))[2],
    )
    leading = torch.broadcast_shapes(of_queries, of_keys)
    spread = [each.expand(*leading, -1, -1) for each in (queries, keys)]
    grad_outputs = torch.randn(*leading, 4, 6).double()
    wanted = plain_additive_score(*spread, vector)
    actual = form(queries, keys, vector)
    torch.testing.assert_close(actual, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(actual, (queries, keys, vector), grad_outputs),
        torch.autograd.grad(wanted, (queries, keys, vector), grad_outputs),
    )


def test_kernel_is_selected_by_the_broadcast_size():
    queries = torch.zeros(()).expand(1, 1, 1)
    keys = torch.zeros(()).expand(MAX_UNCHUNKED_ELEMENTS, 2, 1)
    assert is_chunked(queries, keys)


def test_saturated_units_have_zero_gradient():
    queries, keys, vector = inputs(((2,), 3, 4))
    far = (queries.detach() + 1000).requires_grad_()
    gradient, *_ = torch.autograd.grad(
        chunked_additive_score(far, keys, vector, max_elements=30).sum(), far
    )
    assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtype_is_kept_and_error_is_at_most_twice_the_references(dtype):
    exact = inputs(((2,), 33, 9))
    grad_outputs = torch.randn(2, 33, 9).double()
    truth = value_and_gradients(plain_additive_score, exact, grad_outputs)
    arguments = [each.detach().to(dtype).requires_grad_() for each in exact]
    actual = value_and_gradients(
        chunked_additive_score, arguments, grad_outputs.to(dtype), max_elements=50
    )
    plain = value_and_gradients(plain_additive_score, arguments, grad_outputs.to(dtype))
    for one, other, goal in zip(actual, plain, truth, strict=True):
        assert one.dtype == dtype
        rounding = torch.finfo(dtype).eps * goal.abs().max()
        assert (one - goal).norm() <= 2 * (other - goal).norm() + rounding


def test_vector_is_rounded_to_the_dtype_of_the_projections():
    queries, keys, vector = (each.detach().bfloat16() for each in inputs(((2,), 3, 4)))
    exact = vector.float().requires_grad_()
    scores = chunked_additive_score(queries, keys, exact, max_elements=30)
    scores.sum().backward()
    assert scores.dtype == torch.bfloat16
    assert exact.grad.dtype == torch.float32
    torch.testing.assert_close(scores, plain_additive_score(queries, keys, vector))


def test_second_derivative_raises():
    arguments = inputs(((), 2, 3))
    scores = chunked_additive_score(*arguments)
    first = torch.autograd.grad(scores.square().sum(), arguments, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def sized(elements, places):
    """Queries and keys whose hidden layer has so many elements; they take no memory."""
    queries = torch.zeros(()).expand(1, elements // places, 1)
    return queries, torch.zeros(()).expand(1, places, 1)


@pytest.mark.parametrize("places", [1, 2, 1024])
def test_chunks_are_for_inputs_above_the_threshold(places):
    assert not is_chunked(*sized(places, places))
    assert not is_chunked(*sized(MAX_UNCHUNKED_ELEMENTS, places))
    assert is_chunked(*sized(MAX_UNCHUNKED_ELEMENTS + places, places))


def test_scores_agree_on_both_sides_of_the_threshold():
    width, places = 256, 128
    border = MAX_UNCHUNKED_ELEMENTS // (width * places)
    arguments = inputs(((), border + 1, places), width=width, dtype=torch.float)
    below = [arguments[0][:-1], *arguments[1:]]
    assert not is_chunked(*below[:2])
    assert is_chunked(*arguments[:2])
    torch.testing.assert_close(additive_score(*arguments)[:-1], additive_score(*below))


class LargestTensor(TorchDispatchMode):
    """Notes the most elements that any operation has given a tensor storage for."""

    elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        produced = operation(*args, **(kwargs or {}))
        for each in tree_leaves(produced):
            if isinstance(each, torch.Tensor):
                stored = each.untyped_storage().nbytes() // each.element_size()
                self.elements = max(self.elements, stored)
        return produced


@pytest.mark.parametrize("shape", [((4,), 40, 20), ((200,), 2, 8), ((), 160, 20)], ids=str)
def test_no_tensor_is_larger_than_a_chunk_an_input_or_the_scores(shape):
    arguments = inputs(shape, dtype=torch.float)
    chunk = 300
    with LargestTensor() as largest:
        chunked_additive_score(*arguments, max_elements=chunk).sum().backward()
    scores = plain_additive_score(*arguments)
    allowed = max(chunk, scores.numel(), *(each.numel() for each in arguments))
    assert largest.elements <= allowed < scores.numel() * WIDTH
    with LargestTensor() as largest:
        plain_additive_score(*arguments)
    assert largest.elements == scores.numel() * WIDTH


def test_only_inputs_saved_for_backward():
    arguments, kept = inputs(((2,), 8, 6)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, id):
        chunked_additive_score(*arguments, max_elements=30)
    owned = {each.untyped_storage().data_ptr() for each in arguments}
    assert {each.untyped_storage().data_ptr() for each in kept} <= owned


def test_nothing_is_saved_without_gradients():
    with torch.no_grad():
        assert chunked_additive_score(*inputs(((2,), 3, 4)), max_elements=30).grad_fn is None

"""A step of additive attention in Triton is the plain one, in value and in gradient.

It runs on a GPU, or in Triton's interpreter where there is none (`make test-extras`).
"""

import pytest
import torch

from heedful.acceleration import kernels, tuning
from heedful.attention import additive_scores as additive
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention, attend
from heedful.attention.masks import padding_mask
from heedful.attention.readouts import ArgmaxReadout, WeightedSumReadout
from heedful.pytree import tensors_of

pytestmark = pytest.mark.extras
pytest.importorskip("triton", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
QUERY_SIZE, KEY_SIZE = 3, 5
FEATURES = {
    "no feature": [],
    "coverage": [additive.CoverageFeature],
    "coverage twice": [additive.CoverageFeature] * 2,
    "location": [lambda size: additive.LocationFeature(size, num_filters=2, kernel_size=3)],
    "last context": [lambda size: additive.ContextFeature(size, value_size=KEY_SIZE)],
    "coverage, location": [
        additive.CoverageFeature,
        lambda size: additive.LocationFeature(size, num_filters=2, kernel_size=3),
    ],
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles that few keys fill more than once, on any device."""
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", DEVICE)
    monkeypatch.setattr(tuning, "TRITON_STEP_TILE", (8, 1))
    monkeypatch.setattr(tuning, "TRITON_STEP_GRADIENT_TILE", (8, 1))


def build_attention(size=6, *, features=(), dtype=torch.double, alignment=None, **options):
    score = additive.AdditiveScore(
        QUERY_SIZE, KEY_SIZE, hidden_size=size, features=[build(size) for build in features]
    )
    attention = SingleHeadAttention(
        score, alignment or SoftmaxAlignment(0.5), WeightedSumReadout(), **options
    )
    return attention.to(DEVICE, dtype)


def random_inputs(num_rows=3, num_keys=5, *, dtype=torch.double, scale=1.0):
    queries = scale * torch.randn(num_rows, 2, QUERY_SIZE, device=DEVICE, dtype=dtype)
    values = torch.randn(num_rows, num_keys, KEY_SIZE, device=DEVICE, dtype=dtype)
    lengths = torch.tensor([num_keys, 1, num_keys // 2], device=DEVICE)[:num_rows]
    return queries.requires_grad_(), values.requires_grad_(), padding_mask(lengths, num_keys)


def run_steps(attention, queries, values, mask, *, has_state=True):
    """Attend twice, and differentiate everything that a decoder may use."""
    memory = attention.build_memory(values, mask)
    state = attention.initial_state(memory) if has_state else None
    outputs = []
    for query in queries.split(1, dim=1):
        output = attention(query, memory, state)
        state = output.state
        outputs += [output.context, output.weights]
    if state is not None:
        outputs += [state.coverage, state.last_weights, state.last_context]
    total = sum((part * part.detach().cos()).sum() for part in outputs)
    inputs = [queries, values, *attention.parameters()]
    gradients = torch.autograd.grad(total, inputs, allow_unused=True)
    return [*outputs, *gradients, *([] if state is None else [state.num_queries])]


def without_kernels(monkeypatch, run, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(attend, "kernels", [])
        return run(*arguments, **options)


def assert_kernel_equals_reference(monkeypatch, attention, inputs, has_state=True, **tolerance):
    memory = attention.build_memory(inputs[1], inputs[2])
    kernel = attend.select_kernel(attention, inputs[0][:, :1], memory, None)
    assert kernel.run is kernels.fused_attend
    actual = run_steps(attention, *inputs, has_state=has_state)
    expected = without_kernels(monkeypatch, run_steps, attention, *inputs, has_state=has_state)
    torch.testing.assert_close(actual, expected, **tolerance)


@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize("size", [1, 6, 9])
def test_step_equals_reference_in_value_and_gradient(size, has_state, monkeypatch):
    attention = build_attention(size)
    assert_kernel_equals_reference(monkeypatch, attention, random_inputs(), has_state)


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_part_of_the_score(name, monkeypatch):
    attention = build_attention(features=FEATURES[name])
    assert_kernel_equals_reference(monkeypatch, attention, random_inputs())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_narrow_inputs_summed_in_float32(dtype, tolerance, monkeypatch):
    attention = build_attention(features=FEATURES["coverage"], dtype=dtype)
    inputs = random_inputs(dtype=dtype)
    assert_kernel_equals_reference(monkeypatch, attention, inputs, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
def test_autocast_returns_the_dtypes_of_the_reference(monkeypatch):
    attention = build_attention(features=FEATURES["coverage"], dtype=torch.float32)
    inputs = random_inputs(dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert_kernel_equals_reference(monkeypatch, attention, inputs, rtol=4e-2, atol=4e-2)


def test_production_tiles_equal_reference(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", DEVICE)
    attention, inputs = build_attention(70, dtype=torch.float32), random_inputs(2, 37)
    inputs = [part.detach().float().requires_grad_() for part in inputs[:2]] + [inputs[2]]
    assert_kernel_equals_reference(monkeypatch, attention, inputs, rtol=1e-4, atol=1e-4)


def test_concat_score_equals_reference(monkeypatch):
    score = additive.ConcatScore(QUERY_SIZE, KEY_SIZE, hidden_size=6)
    attention = SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())
    assert_kernel_equals_reference(monkeypatch, attention.to(DEVICE).double(), random_inputs())


def test_noncontiguous_memory_equals_reference(monkeypatch):
    attention, (queries, values, mask) = build_attention(), random_inputs(3, 8)
    strided = values.detach().mT.contiguous().mT[:, ::2].requires_grad_()
    inputs = queries, strided, mask[:, :, ::2]
    assert_kernel_equals_reference(monkeypatch, attention, inputs)


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_large_projections_do_not_overflow(scale, monkeypatch):
    attention = build_attention(dtype=torch.float32)
    inputs = random_inputs(dtype=torch.float32, scale=scale)
    assert_kernel_equals_reference(monkeypatch, attention, inputs, rtol=1e-3, atol=1e-3)


def test_masked_rows_get_zeros(monkeypatch):
    attention, (queries, values, mask) = build_attention(), random_inputs()
    mask[1] = False
    mask[0, :, 1:3] = False  # a hole
    assert_kernel_equals_reference(monkeypatch, attention, (queries, values, mask))
    output = attention(queries[:, :1], attention.build_memory(values, mask))
    assert not output.weights[1].any()
    assert not output.context[1].any()


def test_masked_keys_are_not_read():
    attention, (queries, values, mask) = build_attention(), random_inputs()
    memory = attention.build_memory(values.detach(), mask)
    hidden = ~mask.squeeze(1)
    damaged = memory._replace(
        keys=memory.keys.masked_fill(hidden.unsqueeze(-1), torch.nan),
        values=memory.values.masked_fill(hidden.unsqueeze(-1), torch.nan),
    )
    expected, actual = (attention(queries[:, :1], part) for part in (memory, damaged))
    assert torch.equal(actual.context, expected.context)
    assert torch.equal(actual.weights, expected.weights)


def test_nan_in_a_query_reaches_all_of_the_row(monkeypatch):
    attention, (queries, values, mask) = build_attention(), random_inputs()
    with torch.no_grad():
        queries[1, 0, 0] = torch.nan
    memory = attention.build_memory(values, mask)
    actual = attention(queries[:, :1], memory)
    expected = without_kernels(monkeypatch, attention, queries[:, :1], memory)
    for one, other in zip(actual[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.fixture
def deterministic():
    """Torch's deterministic mode, which also fills new tensors with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_steps_and_gradients_repeat_bit_by_bit():
    attention = build_attention(features=FEATURES["coverage"], dtype=torch.float32)
    inputs = random_inputs(dtype=torch.float32)
    first, second = (run_steps(attention, *inputs) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


def test_gradient_of_only_context_or_only_weights():
    attention, (queries, values, mask) = build_attention(), random_inputs()
    memory = attention.build_memory(values, mask)
    actual = attention(queries[:, :1], memory)
    expected = attend.reference(attention, queries[:, :1], memory, None)
    for one, other in zip(actual[:2], expected[:2], strict=True):
        inputs = [queries, memory.keys, *([memory.values] if one is actual.context else [])]
        grads = torch.randn_like(one)
        torch.testing.assert_close(
            torch.autograd.grad(one, inputs, grads, retain_graph=True),
            torch.autograd.grad(other, inputs, grads, retain_graph=True),
        )


def test_no_rows_return_no_rows():
    attention, (queries, values, mask) = build_attention(), random_inputs()
    memory = attention.build_memory(values[:0], mask[:0])
    output = attention(queries[:0, :1], memory, attention.initial_state(memory))
    assert all(part.size(0) == 0 for part in tensors_of(output))


def test_only_softmax_of_one_query_takes_the_step(monkeypatch):
    queries, values, mask = random_inputs()

    def is_taken(attention, queries=queries[:, :1]):
        memory = attention.build_memory(values, mask)
        return attend.select_kernel(attention, queries, memory, None) is not None

    assert is_taken(build_attention())
    assert not is_taken(build_attention(), queries)
    assert not is_taken(build_attention(alignment=SparsemaxAlignment()))
    assert not is_taken(build_attention(dropout=0.1))
    assert is_taken(build_attention(dropout=0.1).eval())
    argmax = build_attention()
    argmax.readout = ArgmaxReadout()
    assert not is_taken(argmax)
    hooked = build_attention()
    hooked.alignment_function.register_forward_hook(lambda *_: None)
    assert not is_taken(hooked)
    with monkeypatch.context() as patch:  # a row has 5 keys of 6 channels and values of 5
        patch.setattr(tuning, "MAX_TRITON_STEP_ELEMENTS", 54)
        assert not is_taken(build_attention())
        patch.setattr(tuning, "MIN_TRITON_STEP_ROWS", 3)
        assert is_taken(build_attention())
    monkeypatch.setattr(tuning, "MAX_TRITON_STEP_SIZE", 5)
    assert not is_taken(build_attention())
    assert is_taken(build_attention(5))
    monkeypatch.setattr(kernels, "TRITON_DEVICE_TYPE", "meta")
    assert not is_taken(build_attention(5))

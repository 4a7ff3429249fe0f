"""Inference in bf16 and int8: error bounds, independence of rows, and what is rejected."""

import copy

import pytest
import torch
from torch import nn

from heedful.acceleration import precision
from heedful.acceleration.precision import (
    Int8GRUCell,
    Int8Linear,
    Int8LSTMCell,
    Int8Map,
    check_dtype,
    convert_model,
)
from heedful.acceleration.registry import accelerate
from heedful.errors import ConfigError
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cells import GRUCell, LSTMCell
from heedful.search import LengthPenalty
from tests.catalogue import batch, build, store

CPU = torch.device("cpu")
EXAMPLES = batch(store(), [0, 3, 5, 6])
NAMES = [
    *("lstm, step-then-attend", "gru, attend-then-step", "prefix LM, lstm"),
    *("transformer", "transformer, pre-norm", "decoder only, span full", "bridge tanh"),
]


@pytest.fixture(autouse=True)
def _without_gradients(monkeypatch):
    monkeypatch.setattr(precision, "_MIN_INT8_ELEMENTS", 2)
    with torch.inference_mode():
        yield


def error_bound(inputs, weight):
    """Largest error of int8 products: each factor is off by at most half a step."""
    input_step = inputs.abs().amax(dim=1, keepdim=True) / 127
    weight_step = weight.abs().amax(dim=1) / 127
    by_weights = inputs.abs().sum(dim=1, keepdim=True) * weight_step / 2
    by_inputs = weight.abs().sum(dim=1) * input_step / 2
    return by_weights + by_inputs + weight.size(1) * input_step * weight_step / 4


@pytest.mark.parametrize("bias", [True, False])
def test_int8_map_is_within_the_error_bound(bias):
    linear = nn.Linear(40, 24, bias=bias)
    inputs = torch.randn(7, 40) * torch.logspace(-3, 3, 7)[:, None]
    error = (Int8Map(linear.weight, linear.bias)(inputs) - linear(inputs)).abs()
    assert error.max() > 0
    assert (error <= 1.01 * error_bound(inputs, linear.weight) + 1e-6).all()


def test_int8_outputs_of_a_row_do_not_depend_on_other_rows():
    linear = nn.Linear(40, 24)
    inputs = torch.randn(9, 40) * torch.logspace(-2, 2, 9)[:, None]
    int8_map = Int8Map(linear.weight, linear.bias)
    alone = torch.cat([int8_map(row) for row in inputs.split(1)])
    assert torch.equal(int8_map(inputs), alone)


def test_int8_map_of_zeros_is_the_bias():
    linear = nn.Linear(20, 18)
    outputs = Int8Map(linear.weight, linear.bias)(torch.zeros(3, 20))
    torch.testing.assert_close(outputs, linear.bias.expand(3, -1))


def test_int8_linear_is_plain_while_gradients_recorded():
    with torch.inference_mode(mode=False):
        linear = nn.Linear(20, 18)
        inputs = torch.randn(2, 3, 20)
        expected = linear(inputs)
        linear.__class__ = Int8Linear
        with torch.enable_grad():
            assert torch.equal(linear(inputs), expected)
        with torch.no_grad():
            assert not torch.equal(linear(inputs), expected)
            torch.testing.assert_close(linear(inputs), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("cell_class", "int8_class"), [(LSTMCell, Int8LSTMCell), (GRUCell, Int8GRUCell)]
)
def test_int8_cells_are_close_to_plain_ones(cell_class, int8_class):
    cells = StackedCells([cell_class(24, 32), cell_class(32, 32)], dropout=0.0).eval()
    converted = convert_model(copy.deepcopy(cells), "int8")
    assert [type(cell) for cell in converted.cells] == [int8_class, int8_class]
    state = cells.initial_state([torch.randn(3, 32), torch.randn(3, 32)])
    inputs = torch.randn(3, 24)
    torch.testing.assert_close(converted(inputs, state), cells(inputs, state), atol=0.02, rtol=0)


def log_probs_of(model):
    return model(EXAMPLES).log_probs


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_converted_models_are_close_and_accelerated_ones_equal(name, dtype):
    model = copy.deepcopy(build(name)).float().eval()
    expected = log_probs_of(model)
    converted = convert_model(model, dtype)
    actual = log_probs_of(converted)
    assert actual.dtype == torch.float32
    assert not torch.equal(actual, expected)
    assert (actual - expected).abs().mean() < 0.1
    tolerance = 0.05 if dtype == "bf16" else 1e-4
    accelerated = accelerate(converted, CPU)
    searches = [search(converted), search(accelerated)]
    for hypotheses, others in zip(*searches, strict=True):
        scores = [[item.score for item in found] for found in (hypotheses, others)]
        assert scores[0] == pytest.approx(scores[1], abs=tolerance)


def search(model):
    return model.search(
        EXAMPLES.sources,
        beam_size=2,
        max_lengths=EXAMPLES.sources.lengths,
        length_penalty=LengthPenalty(),
    )


@pytest.mark.parametrize(
    ("dtype", "device", "message"),
    [
        ("int4", "cpu", "--dtype: there is no data type called 'int4'\n  choose fp32, bf16, int8"),
        (
            "int8",
            "cuda",
            "--dtype: int8 is computed on a CPU, but the device is 'cuda'\n"
            "  add --device cpu, or choose bf16",
        ),
        (
            "bf16",
            "cpu",
            "--dtype: the processor has no bfloat16 instructions\n  choose fp32",
        ),
        (
            "int8",
            "cpu",
            "--dtype: the processor has no int8 instructions that PyTorch uses (VNNI)\n"
            "  choose fp32",
        ),
        ("bf16", "cuda", "--dtype: the GPU has no bfloat16 instructions\n  choose fp32"),
    ],
)
def test_dtype_that_the_device_lacks_raises(monkeypatch, dtype, device, message):
    monkeypatch.setattr(precision, "has_bf16", lambda device: False)
    monkeypatch.setattr(precision, "has_int8", lambda: False)
    with pytest.raises(ConfigError) as raised:
        check_dtype(dtype, torch.device(device))
    assert str(raised.value) == message

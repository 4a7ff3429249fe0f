"""Inference in bfloat16 and int8, where the processor has them.

bf16 converts all parameters. int8 replaces linear maps and recurrent cells of decoders: weights are
quantized once, with a scale per output, inputs at each call, with a scale per row; all else, the
encoder's recurrence included, stays in float32. Invariant: the outputs of a row do not depend on
other rows.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.errors import check
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cells import (
    GRUCell,
    LSTMCell,
    Projected,
    RecurrentState,
    gru_update,
    lstm_update,
)
from heedful.shapes import Float, Hidden, Int

Dtype = Literal["fp32", "bf16", "int8"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
Module = TypeVar("Module", bound=nn.Module)

_MIN_INT8_ELEMENTS = 2**17  # of a weight; below it, quantizing the inputs takes longer
_MIN_INT8_ROWS = 5  # oneDNN takes milliseconds for one row (two Xeon cores, torch 2.11)
_MIN_NORM = 1e-30  # a row of zeros has no scale of its own


def check_dtype(dtype: str, device: torch.device) -> None:
    """Raise ConfigError if the device has no instructions for this data type."""
    location = "--dtype"
    message, hint = f"there is no data type called {dtype!r}", f"choose {', '.join(DTYPES)}"
    check(dtype in DTYPES, location, message, hint)
    is_cpu = device.type == "cpu"
    if dtype == "int8":
        message = f"int8 is computed on a CPU, but the device is {device.type!r}"
        check(is_cpu, location, message, "add --device cpu, or choose bf16")
        message = "the processor has no int8 instructions that PyTorch uses (VNNI)"
        check(has_int8(), location, message, "choose fp32")
    if dtype == "bf16":
        message = f"the {'processor' if is_cpu else 'GPU'} has no bfloat16 instructions"
        check(has_bf16(device), location, message, "choose fp32")


def has_bf16(device: torch.device) -> bool:
    """Whether the device has bfloat16 instructions; without them it is slower than float32."""
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return True


def has_int8() -> bool:
    """Whether the processor has int8 products for which oneDNN packs weights: x86 with VNNI."""
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()


def convert_model(model: Module, dtype: Dtype) -> Module:
    """Return a model for inference in this data type; "fp32" is the model itself."""
    if dtype == "bf16":
        return model.to(torch.bfloat16)
    return _quantize(model) if dtype == "int8" else model


def _quantize(model: Module) -> Module:
    """Replace linear maps, and cells that run step by step; changes the model, as `to` does."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.numel() >= _MIN_INT8_ELEMENTS:
            module.__class__ = Int8Linear
        elif isinstance(module, StackedCells):
            for cell in module.modules():
                cell.__class__ = _INT8_CELLS.get(type(cell), type(cell))
    return model


# ----- int8


class Int8Map:
    """inputs @ weight.T + bias, with int8 products that are added up in int32."""

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, "N"] | None) -> None:
        weight = weight.detach()
        scales = weight.abs().amax(dim=1, keepdim=True).clamp(min=_MIN_NORM) / 127
        quantized = (weight / scales).round().to(torch.int8)
        self._bias = bias
        self._scales = scales.squeeze(1)
        self._zero_points = torch.zeros_like(self._scales, dtype=torch.int32)
        self._is_packed = has_int8()
        pack = torch.ops.onednn.qlinear_prepack
        self._weight = pack(quantized, None) if self._is_packed else quantized.t().contiguous()

    def __call__(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Return the outputs of each row."""
        norms = torch.linalg.vector_norm(inputs, torch.inf, dim=1, keepdim=True)
        row_scales = norms.clamp_(min=_MIN_NORM).mul_(1 / 127)
        products = self._product((inputs / row_scales).round_().to(torch.int8))
        if self._bias is None:
            return products * row_scales
        return torch.addcmul(self._bias, products, row_scales)

    def _product(self, rows: Int[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Return rows @ weight, times the scales of the outputs."""
        if not self._is_packed:
            return torch._int_mm(rows, self._weight) * self._scales
        num_rows = len(rows)
        if num_rows < _MIN_INT8_ROWS:
            rows = pad(rows, (0, 0, 0, _MIN_INT8_ROWS - num_rows))
        # The inputs' scale and zero point, those of the outputs and their type, no activation.
        inputs: Any = (rows, 1.0, 0)
        outputs: Any = (1.0, 0, torch.float32, "none", [], "")
        weight = self._weight, self._scales, self._zero_points
        products: Tensor = torch.ops.onednn.qlinear_pointwise(*inputs, *weight, None, *outputs)
        return products[:num_rows]


class _CachedMaps:
    """Mixin of modules that keep int8 copies of their parameters, which a copy makes anew."""

    _maps: Sequence[Int8Map] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_maps"}


class Int8Linear(_CachedMaps, nn.Linear):
    """A linear map with int8 products, unless gradients are recorded or the inputs are narrow."""

    @override
    def forward(self, input: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        if torch.is_grad_enabled() or input.dtype != torch.float32 or not input.numel():
            return super().forward(input)
        self._maps = self._maps or [Int8Map(self.weight, self.bias)]
        outputs = self._maps[0](input.reshape(-1, input.size(-1)))
        return outputs.view(*input.shape[:-1], -1)


class Int8LSTMCell(_CachedMaps, LSTMCell):
    """An LSTM cell whose gates are one int8 map of [x; h]."""

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        if torch.is_grad_enabled() or inputs.dtype != torch.float32:
            return super().update(inputs, state, hidden)
        if self._maps is None:
            weight_ih, weight_hh, bias_ih, bias_hh = self.weights
            self._maps = [Int8Map(torch.cat([weight_ih, weight_hh], dim=1), bias_ih + bias_hh)]
        gates = self._maps[0](torch.cat([inputs, hidden], dim=1))
        output_gate, cell_state = lstm_update(gates, state[1])
        return output_gate * cell_state.tanh(), cell_state


class Int8GRUCell(_CachedMaps, GRUCell):
    """A GRU cell with an int8 map of its input and one of its state."""

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        if torch.is_grad_enabled() or inputs.dtype != torch.float32:
            return super().update(inputs, state, hidden)
        if self._maps is None:
            weight_ih, weight_hh, bias_ih, bias_hh = self.weights
            self._maps = [Int8Map(weight_ih, bias_ih), Int8Map(weight_hh, bias_hh)]
        input_map, hidden_map = self._maps
        return (gru_update(input_map(inputs), hidden_map(hidden), state[0]),)


_INT8_CELLS: dict[type, type] = {LSTMCell: Int8LSTMCell, GRUCell: Int8GRUCell}

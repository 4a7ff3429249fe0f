"""Linear maps of decoding steps on a CPU, and the output head, with weights stored for few rows.

torch stores a weight as (out, in); products of a few rows take up to 1.5x the time of those with a
copy stored as (in, out). A copy is stale as soon as the parameter changes, so only replacements
made for inference hold copies. Invariant: a packed map matches the linear map up to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.precision import Int8Linear, Int8Map
from heedful.models.output_heads import CopyInputs, Features, SoftmaxHead, log_softmax
from heedful.shapes import Float, LogProbs, SourceWeights

MapOutputs = Float[Tensor, "R N"]


def can_pack(inputs: Tensor) -> bool:
    """Whether packed maps may run: on a CPU, without gradients or autocast."""
    return (
        inputs.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


class PackedLinear:
    """A linear map, or several of the same inputs side by side, with its weight as (in, out).

    Once a number of rows has repeated often enough, the weight is also kept in MKL's layout for
    exactly this number, as torch.compile does it; the layouts of two numbers are kept.
    """

    def __init__(
        self,
        weight: Float[Tensor, "D N"],
        bias: Float[Tensor, "N"] | None,
        *,
        is_int8: bool = False,
    ) -> None:
        self.weight = weight
        self.bias = bias
        self.is_int8 = is_int8
        self._int8_map: Int8Map | None = None
        self.mkl_layouts: dict[int, Tensor] = {}  # by number of rows
        self._plain: Tensor | None = None  # the weight as (out, in), of which they are made
        self._last_num_rows = 0
        self._num_repeats = 0  # calls with this number of rows in sequence

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> Self:
        """Copy the weight of a linear map."""
        is_int8 = isinstance(linear, Int8Linear)
        return cls(linear.weight.t().contiguous(), linear.bias, is_int8=is_int8)

    @classmethod
    def concatenate(cls, linears: Sequence[Self]) -> Self:
        """Join maps of the same inputs; all have biases, or none has, and likewise int8."""
        biases = [linear.bias for linear in linears if linear.bias is not None]
        assert len(biases) in {0, len(linears)}, "some maps have a bias and some have none"
        weight = torch.cat([linear.weight for linear in linears], dim=1)
        bias = torch.cat(biases) if biases else None
        return cls(weight, bias, is_int8=linears[0].is_int8)

    def map_outputs(self, transform: Callable[[Tensor], Tensor]) -> Self:
        """Return this map followed by a linear transform of its outputs."""
        bias = None if self.bias is None else transform(self.bias)
        return type(self)(transform(self.weight), bias, is_int8=self.is_int8)

    def __call__(self, inputs: Float[Tensor, "R D"]) -> MapOutputs:
        """Return inputs @ weight + bias."""
        if (outputs := self._apply_packed(inputs)) is not None:
            return outputs
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)

    def add_to(self, sums: MapOutputs, inputs: Float[Tensor, "R D"]) -> MapOutputs:
        """Return sums + inputs @ weight + bias."""
        if (outputs := self._apply_packed(inputs)) is not None:
            return outputs.add_(sums)
        added = torch.addmm(sums, inputs, self.weight)
        return added if self.bias is None else added.add_(self.bias)

    def _apply_packed(self, inputs: Float[Tensor, "R D"]) -> MapOutputs | None:
        """Return inputs @ weight + bias in int8 or, after enough repetitions, by MKL; or None."""
        if self.is_int8:
            self._int8_map = self._int8_map or Int8Map(self.weight.t().contiguous(), self.bias)
            return self._int8_map(inputs)
        num_rows = len(inputs)
        if num_rows not in self.mkl_layouts:
            self._num_repeats = self._num_repeats + 1 if num_rows == self._last_num_rows else 1
            self._last_num_rows = num_rows
            if self._num_repeats < tuning.MIN_REPEATS or not can_use_mkl(self.weight, num_rows):
                return None
            self._plain = self.weight.t().contiguous() if self._plain is None else self._plain
            layout = torch.ops.mkl._mkl_reorder_linear_weight(self._plain, num_rows)
            self.mkl_layouts = dict([*self.mkl_layouts.items()][-1:]) | {num_rows: layout}
        weights = (self.mkl_layouts[num_rows], self._plain)
        outputs: Tensor = torch.ops.mkl._mkl_linear(inputs, *weights, self.bias, num_rows)
        return outputs


def can_use_mkl(weight: Float[Tensor, "D N"], num_rows: int) -> bool:
    """Whether MKL is available and has a faster layout for this number of rows."""
    return (
        tuning.MIN_PACKED_ROWS <= num_rows <= tuning.MAX_PACKED_ROWS
        and weight.dtype == torch.float32
        and torch.backends.mkl.is_available()
        and hasattr(torch.ops.mkl, "_mkl_linear")
    )


def activate_inplace(activation: nn.Module, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Apply an activation to a tensor that nothing else holds, in place where that is possible."""
    activated: Tensor = hidden.relu_() if type(activation) is nn.ReLU else activation(hidden)
    return activated


class PackedSoftmaxHead(SoftmaxHead):
    """log softmax(W f + b) with W packed for few rows, normalized in place."""

    _packed: PackedLinear | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy packs its own parameters; MKL's layout cannot be pickled.
        return {key: value for key, value in vars(self).items() if key != "_packed"}

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        is_single_step = features.dim() == 3 and features.size(1) == 1
        if (
            not is_single_step
            or self.training
            or not can_pack(features)
            or self.projection._forward_hooks
        ):
            return super().forward(features, weights)
        is_packed = tuning.MIN_PACKED_ROWS <= len(features) <= tuning.MAX_PACKED_ROWS
        if is_packed and not isinstance(self.projection, Int8Linear):
            self._packed = self._packed or PackedLinear.from_linear(self.projection)
            logits = self._packed(features.squeeze(1)).unsqueeze(1)
        else:
            logits = self.projection(features)
        if logits.dtype == torch.bfloat16:
            return log_softmax(logits)
        return torch.log_softmax(logits, dim=-1, out=logits)

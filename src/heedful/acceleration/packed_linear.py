"""Linear maps packed for few rows on a CPU, as in a decoding step.

torch stores a weight as (out, in); products of a few rows with it take up to 1.5x the time of
those with a copy stored as (in, out). A copy is stale as soon as the parameter changes, so only
replacements made for inference hold copies.

Invariant: a packed map gives what the linear map gives, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.acceleration import tuning
from heedful.shapes import Float


def can_pack(inputs: Tensor) -> bool:
    """Whether packed maps may run: on a CPU, without gradients or autocast."""
    return (
        inputs.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


class PackedLinear:
    """A linear map, or several of the same inputs side by side, with its weight as (in, out)."""

    def __init__(self, weight: Float[Tensor, "D N"], bias: Float[Tensor, "N"] | None) -> None:
        self.weight = weight
        self.bias = bias
        self._mkl_linear: MKLLinear | None = None
        self._last_num_rows = 0
        self._num_repeats = 0  # calls with this number of rows in sequence

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> PackedLinear:
        """Copy the weight of a linear map."""
        return cls(linear.weight.t().contiguous(), linear.bias)

    @classmethod
    def concatenate(cls, linears: Sequence[PackedLinear]) -> PackedLinear:
        """Join maps of the same inputs; all have biases, or none has."""
        biases = [linear.bias for linear in linears if linear.bias is not None]
        assert len(biases) in {0, len(linears)}, "some maps have a bias and some have none"
        weight = torch.cat([linear.weight for linear in linears], dim=1)
        return cls(weight, torch.cat(biases) if biases else None)

    def __call__(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Return inputs @ weight + bias."""
        if (mkl_linear := self._mkl_linear_for(len(inputs))) is not None:
            return mkl_linear(inputs, self.bias)
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)

    def add_to(
        self, sums: Float[Tensor, "R N"], inputs: Float[Tensor, "R D"]
    ) -> Float[Tensor, "R N"]:
        """Return sums + inputs @ weight + bias."""
        if (mkl_linear := self._mkl_linear_for(len(inputs))) is not None:
            return mkl_linear(inputs, self.bias).add_(sums)
        added = torch.addmm(sums, inputs, self.weight)
        return added if self.bias is None else added.add_(self.bias)

    def map_outputs(self, transform: Callable[[Tensor], Tensor]) -> PackedLinear:
        """Return this map followed by a linear transform of its outputs."""
        bias = None if self.bias is None else transform(self.bias)
        return PackedLinear(transform(self.weight), bias)

    def _mkl_linear_for(self, num_rows: int) -> MKLLinear | None:
        """Return a map packed for exactly `num_rows`, once they have repeated often enough."""
        if self._mkl_linear is not None and self._mkl_linear.num_rows == num_rows:
            return self._mkl_linear
        self._num_repeats = self._num_repeats + 1 if num_rows == self._last_num_rows else 1
        self._last_num_rows = num_rows
        if self._num_repeats < tuning.MIN_REPEATS or not can_use_mkl(self.weight, num_rows):
            return None
        self._mkl_linear = MKLLinear.from_weight(self.weight, num_rows)
        return self._mkl_linear


class MKLLinear(NamedTuple):
    """A linear map in MKL's layout for one number of rows, as torch.compile uses it."""

    reordered_weight: Tensor
    weight: Float[Tensor, "N D"]
    num_rows: int

    @classmethod
    def from_weight(cls, weight: Float[Tensor, "D N"], num_rows: int) -> MKLLinear:
        """Reorder a weight for this number of rows."""
        plain = weight.t().contiguous()
        return cls(torch.ops.mkl._mkl_reorder_linear_weight(plain, num_rows), plain, num_rows)

    def __call__(
        self, inputs: Float[Tensor, "R D"], bias: Float[Tensor, "N"] | None
    ) -> Float[Tensor, "R N"]:
        """Return inputs @ weight + bias."""
        outputs: Tensor = torch.ops.mkl._mkl_linear(
            inputs, self.reordered_weight, self.weight, bias, self.num_rows
        )
        return outputs


def can_use_mkl(weight: Float[Tensor, "D N"], num_rows: int) -> bool:
    """Whether MKL is available and has a faster layout for this number of rows."""
    return (
        tuning.MIN_PACKED_ROWS <= num_rows <= tuning.MAX_PACKED_ROWS // 2
        and weight.dtype == torch.float32
        and torch.backends.mkl.is_available()
        and hasattr(torch.ops.mkl, "_mkl_linear")
    )


def activate_inplace(activation: nn.Module, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Apply an activation to a tensor that nothing else holds, in place where that is possible."""
    activated: Tensor = hidden.relu_() if type(activation) is nn.ReLU else activation(hidden)
    return activated

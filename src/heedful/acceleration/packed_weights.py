"""In place: what may be overwritten, when nobody else has it?

A table that is made at every step only to be changed once costs its memory twice, and memory for
large tables is had anew each time, page by page. Law: what is given is what changing a copy gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.shapes import Float

# Packing: how are weights laid out, so that few rows are multiplied by them fastest?
#
# Search multiplies a few rows at a time, over and over. On a CPU that takes up to half as long again
# by weights as torch keeps them, (out, in), as by a copy laid out (in, out). Nobody can tell for sure
# whether a weight has changed (torch's fused optimizers leave no trace), so copies are made and used
# only while somebody promises that none does. Law: what comes of it is what the linear map gives.

Packed = TypeVar("Packed")

MIN_PACKED_ROWS, MAX_PACKED_ROWS = 8, 256  # rows; below and beyond the layout makes no difference

MIN_REPEATS = 16
"""Products after which a layout for just so many rows has paid for itself, or nearly."""

_PACKED_CACHE: ContextVar[dict[nn.Module, Any] | None] = ContextVar("at rest", default=None)


@contextmanager
def assume_constant_parameters() -> Iterator[None]:
    """Promise that no weight changes while within; what is then made of them is used again."""
    if _PACKED_CACHE.get() is not None:
        yield
        return
    token = _PACKED_CACHE.set({})
    try:
        yield
    finally:
        _PACKED_CACHE.reset(token)


class PackedLinear:
    """One linear map, or several of the same inputs side by side."""

    def __init__(self, weight: Float[Tensor, "D N"], bias: Float[Tensor, "N"] | None) -> None:
        self.weight = weight
        self.bias = bias
        self._mkl_layer: MKLLinear | None = None
        self._last_num_rows = 0  # how many rows came last
        self._num_repeats = 0  # and how often in a row

    def __call__(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Multiply."""
        if (fitted := self._mkl_linear_for(len(inputs))) is not None:
            return fitted(inputs, self.bias)
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)

    def add_to(
        self, sums: Float[Tensor, "R N"], inputs: Float[Tensor, "R D"]
    ) -> Float[Tensor, "R N"]:
        """Multiply, and add what comes of it to sums."""
        if (fitted := self._mkl_linear_for(len(inputs))) is not None:
            return fitted(inputs, self.bias).add_(sums)
        added = torch.addmm(sums, inputs, self.weight)
        return added if self.bias is None else added.add_(self.bias)

    def transform(self, transform: Callable[[Tensor], Tensor]) -> PackedLinear:
        """The map whose outputs are changed so; a change must be linear."""
        return PackedLinear(
            transform(self.weight), None if self.bias is None else transform(self.bias)
        )

    def _mkl_linear_for(self, num_rows: int) -> MKLLinear | None:
        """The map for just so many rows, once they have come often enough to be worth it."""
        if self._mkl_layer is not None and self._mkl_layer.num_rows == num_rows:
            return self._mkl_layer
        self._num_repeats = self._num_repeats + 1 if num_rows == self._last_num_rows else 1
        self._last_num_rows = num_rows
        if self._num_repeats < MIN_REPEATS or not can_use_mkl(self.weight, num_rows):
            return None
        self._mkl_layer = MKLLinear.from_weight(self.weight, num_rows)
        return self._mkl_layer


class MKLLinear(NamedTuple):
    """A linear map for one number of rows, as MKL wants it; torch's own compiler uses it so."""

    reordered_weight: Tensor
    weight: Float[Tensor, "N D"]
    num_rows: int

    @classmethod
    def from_weight(cls, weight: Float[Tensor, "D N"], num_rows: int) -> MKLLinear:
        """Lay out weights for so many rows."""
        plain = weight.t().contiguous()
        return cls(torch.ops.mkl._mkl_reorder_linear_weight(plain, num_rows), plain, num_rows)

    def __call__(
        self, inputs: Float[Tensor, "R D"], bias: Float[Tensor, "N"] | None
    ) -> Float[Tensor, "R N"]:
        """Multiply."""
        outputs: Tensor = torch.ops.mkl._mkl_linear(
            inputs, self.reordered_weight, self.weight, bias, self.num_rows
        )
        return outputs


def can_use_mkl(weight: Float[Tensor, "D N"], num_rows: int) -> bool:
    """Whether MKL is there and knows a better layout; beyond so many rows there is none."""
    is_fit = MIN_PACKED_ROWS <= num_rows <= MAX_PACKED_ROWS // 2 and weight.dtype == torch.float32
    return is_fit and torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def pack(linear: nn.Linear) -> PackedLinear:
    """Lay out a linear map."""
    return PackedLinear(linear.weight.t().contiguous(), linear.bias)


def concat_linears(linears: Sequence[PackedLinear]) -> PackedLinear:
    """Make one map of several of the same inputs; all of them have biases, or none."""
    biases = [each.bias for each in linears if each.bias is not None]
    assert len(biases) in {0, len(linears)}, "some have biases and some have none"
    weight = torch.cat([each.weight for each in linears], dim=1)
    return PackedLinear(weight, torch.cat(biases) if biases else None)


def cached_pack(owner: nn.Module, pack_owner: Callable[[], Packed]) -> Packed:
    """What `factory` makes of an owner's weights, once while they are at rest."""
    cache = _PACKED_CACHE.get()
    assert cache is not None, "weights may change"
    if owner not in cache:
        cache[owner] = pack_owner()
    packed_value: Packed = cache[owner]
    return packed_value


def packed_linear(linear: nn.Linear, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
    """Apply a linear map, by the faster layout where that is one."""
    is_few = MIN_PACKED_ROWS <= inputs.numel() / linear.in_features <= MAX_PACKED_ROWS
    if not is_few or not can_pack(inputs) or type(linear) is not nn.Linear:
        outputs: Tensor = linear(inputs)
        return outputs
    packed = cached_pack(linear, lambda: pack(linear))
    return packed(inputs.reshape(-1, linear.in_features)).view(
        *inputs.shape[:-1], linear.out_features
    )


def can_pack(inputs: Tensor) -> bool:
    """Whether weights are at rest, on a CPU, and nothing is to be learned or cast."""
    is_plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    return is_plain and inputs.device.type == "cpu" and _PACKED_CACHE.get() is not None


def log_softmax_inplace(scores: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Normalise scores that nobody else has, and nobody learns from while weights are at rest."""
    if can_pack(scores):
        return torch.log_softmax(scores, dim=-1, out=scores)
    return scores.log_softmax(dim=-1)


def activate_inplace(activation: nn.Module, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Bend a hidden layer that nobody else has, and nobody learns from, where that can be done."""
    activated: Tensor = hidden.relu_() if type(activation) is nn.ReLU else activation(hidden)
    return activated

"""Packing: how are weights laid out, so that few rows are multiplied by them fastest?

Search multiplies a few rows at a time, over and over. On a CPU that takes up to half as long again
by weights as torch keeps them, (out, in), as by a copy laid out (in, out). Nobody can tell for sure
whether a weight has changed (torch's fused optimizers leave no trace), so copies are made and used
only while somebody promises that none does. Law: what comes of it is what the linear map gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.shapes import Float

Made = TypeVar("Made")

FEWEST, FEW = 8, 256  # rows; below and beyond the layout makes no difference

OFTEN = 16
"""Products after which a layout for just so many rows has paid for itself, or nearly."""

_AT_REST: ContextVar[dict[nn.Module, Any] | None] = ContextVar("at rest", default=None)


@contextmanager
def weights_at_rest() -> Iterator[None]:
    """Promise that no weight changes while within; what is then made of them is used again."""
    if _AT_REST.get() is not None:
        yield
        return
    token = _AT_REST.set({})
    try:
        yield
    finally:
        _AT_REST.reset(token)


class Packed:
    """One linear map, or several of the same inputs side by side."""

    def __init__(self, weight: Float[Tensor, "D N"], bias: Float[Tensor, "N"] | None) -> None:
        self.weight = weight
        self.bias = bias
        self._fitted: Fitted | None = None
        self._usual = 0  # how many rows came last
        self._times = 0  # and how often in a row

    def __call__(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Multiply."""
        if (fitted := self._fit(len(inputs))) is not None:
            return fitted(inputs, self.bias)
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)

    def added_to(
        self, sums: Float[Tensor, "R N"], inputs: Float[Tensor, "R D"]
    ) -> Float[Tensor, "R N"]:
        """Multiply, and add what comes of it to sums."""
        if (fitted := self._fit(len(inputs))) is not None:
            return fitted(inputs, self.bias).add_(sums)
        added = torch.addmm(sums, inputs, self.weight)
        return added if self.bias is None else added.add_(self.bias)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Packed:
        """The map whose outputs are changed so; a change must be linear."""
        return Packed(change(self.weight), None if self.bias is None else change(self.bias))

    def _fit(self, num_rows: int) -> Fitted | None:
        """The map for just so many rows, once they have come often enough to be worth it."""
        if self._fitted is not None and self._fitted.num_rows == num_rows:
            return self._fitted
        self._times = self._times + 1 if num_rows == self._usual else 1
        self._usual = num_rows
        if self._times < OFTEN or not can_fit(self.weight, num_rows):
            return None
        self._fitted = Fitted.of(self.weight, num_rows)
        return self._fitted


class Fitted(NamedTuple):
    """A linear map for one number of rows, as MKL wants it; torch's own compiler uses it so."""

    laid_out: Tensor
    weight: Float[Tensor, "N D"]
    num_rows: int

    @classmethod
    def of(cls, weight: Float[Tensor, "D N"], num_rows: int) -> Fitted:
        """Lay out weights for so many rows."""
        plain = weight.t().contiguous()
        return cls(torch.ops.mkl._mkl_reorder_linear_weight(plain, num_rows), plain, num_rows)

    def __call__(
        self, inputs: Float[Tensor, "R D"], bias: Float[Tensor, "N"] | None
    ) -> Float[Tensor, "R N"]:
        """Multiply."""
        outputs: Tensor = torch.ops.mkl._mkl_linear(
            inputs, self.laid_out, self.weight, bias, self.num_rows
        )
        return outputs


def can_fit(weight: Float[Tensor, "D N"], num_rows: int) -> bool:
    """Whether MKL is there and knows a better layout; beyond so many rows there is none."""
    is_fit = FEWEST <= num_rows <= FEW // 2 and weight.dtype == torch.float32
    return is_fit and torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


def pack(linear: nn.Linear) -> Packed:
    """Lay out a linear map."""
    return Packed(linear.weight.t().contiguous(), linear.bias)


def side_by_side(maps: Sequence[Packed]) -> Packed:
    """Make one map of several of the same inputs; all of them have biases, or none."""
    biases = [each.bias for each in maps if each.bias is not None]
    assert len(biases) in {0, len(maps)}, "some have biases and some have none"
    together = torch.cat([each.weight for each in maps], dim=1)
    return Packed(together, torch.cat(biases) if biases else None)


def made_of(owner: nn.Module, make: Callable[[], Made]) -> Made:
    """What `make` makes of an owner's weights, once while they are at rest."""
    known = _AT_REST.get()
    assert known is not None, "weights may change"
    if owner not in known:
        known[owner] = make()
    made: Made = known[owner]
    return made


def few_rows(linear: nn.Linear, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
    """Apply a linear map, by the faster layout where that is one."""
    is_few = FEWEST <= inputs.numel() / linear.in_features <= FEW
    if not is_few or not may_pack(inputs) or type(linear) is not nn.Linear:
        outputs: Tensor = linear(inputs)
        return outputs
    packed = made_of(linear, lambda: pack(linear))
    return packed(inputs.reshape(-1, linear.in_features)).view(
        *inputs.shape[:-1], linear.out_features
    )


def may_pack(inputs: Tensor) -> bool:
    """Whether weights are at rest, on a CPU, and nothing is to be learned or cast."""
    is_plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    return is_plain and inputs.device.type == "cpu" and _AT_REST.get() is not None

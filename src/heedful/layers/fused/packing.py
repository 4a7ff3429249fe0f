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


class Packed(NamedTuple):
    """One linear map, or several of the same inputs side by side."""

    weight: Float[Tensor, "D N"]
    bias: Float[Tensor, "N"] | None

    def __call__(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R N"]:
        """Multiply."""
        if self.bias is None:
            return inputs @ self.weight
        return torch.addmm(self.bias, inputs, self.weight)


def pack(linears: Sequence[nn.Linear]) -> Packed:
    """Lay out maps of the same inputs side by side; all of them have biases, or none."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    assert len(biases) in {0, len(linears)}, "some have biases and some have none"
    return Packed(torch.cat(weights).t().contiguous(), torch.cat(biases) if biases else None)


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
    packed = made_of(linear, lambda: pack([linear]))
    return packed(inputs.reshape(-1, linear.in_features)).view(
        *inputs.shape[:-1], linear.out_features
    )


def may_pack(inputs: Tensor) -> bool:
    """Whether weights are at rest, on a CPU, and nothing is to be learned or cast."""
    is_plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    return is_plain and inputs.device.type == "cpu" and _AT_REST.get() is not None

"""Packing: how are weights laid out, so that few rows are multiplied by them fastest?

Search multiplies a few rows at a time, over and over. On a CPU that takes up to half as long again
by weights as torch keeps them, (out, in), as by a copy laid out (in, out). A copy is made once, and
made anew when a weight has changed. Law: what comes of it is what the linear map gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from heedful.shapes import Float

Made = TypeVar("Made")

FEW = 256  # rows; from there on the layout makes no difference

_KNOWN: WeakKeyDictionary[nn.Module, tuple[Any, Any]] = WeakKeyDictionary()


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


def made_of(owner: nn.Module, linears: Sequence[nn.Linear], make: Callable[[], Made]) -> Made:
    """What `make` gives, kept for its owner as long as none of these maps changes."""
    state = [_state(weight) for linear in linears for weight in (linear.weight, linear.bias)]
    known = _KNOWN.get(owner)
    if known is None or known[0] != state:
        known = state, make()
        _KNOWN[owner] = known
    made: Made = known[1]
    return made


def _state(weight: Tensor | None) -> tuple[object, ...]:
    """What is no longer the same once a weight has been changed, moved or replaced."""
    if weight is None:
        return ()
    return weight.data_ptr(), weight._version, weight.dtype


def few_rows(linear: nn.Linear, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
    """Apply a linear map, by the faster layout where that is one."""
    is_few = inputs.numel() <= FEW * linear.in_features
    if not is_few or not may_pack(inputs) or type(linear) is not nn.Linear:
        outputs: Tensor = linear(inputs)
        return outputs
    packed = made_of(linear, [linear], lambda: pack([linear]))
    return packed(inputs.reshape(-1, linear.in_features)).view(
        *inputs.shape[:-1], linear.out_features
    )


def may_pack(inputs: Tensor) -> bool:
    """Whether nothing is to be learned here, on a CPU, in the precision of the weights."""
    is_cast = torch.is_autocast_enabled("cpu")
    return inputs.device.type == "cpu" and not torch.is_grad_enabled() and not is_cast

"""Precision: in which numbers are products computed?

Weights, their gradients and what the optimizer keeps are fp32 always. In bf16 and fp16 the products
of a forward pass, and so of its gradient, are computed in 16 bits where that is safe
(Micikevicius et al. 2018). bf16 has the range of fp32; fp16 has not, so its loss is multiplied by a
scale first and gradients are divided by it again: small ones are then not lost.

Law: the scale is a power of two, so it rounds nothing, and it is a function of which updates
overflowed: it and a count are all that must be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from heedful.shapes import Float

PrecisionName = Literal["fp32", "bf16", "fp16"]

_NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}

_FIRST_SCALE = 2.0**15  # the largest that fp16 holds, so that a loss in fp16 can be scaled too
_STEPS_BEFORE_DOUBLING = 2000  # as torch.amp.GradScaler has it
# The scale alone cannot explain an overflow once it is 1; beyond 2^32 no gradient is that small.
_SCALES = 1.0, 2.0**32


class Precision:
    """How a forward pass is computed and differentiated."""

    def __init__(self, name: PrecisionName, device_type: str) -> None:
        self.name = name
        self.device_type = device_type
        self._is_scaled = name == "fp16"
        self._scale = _FIRST_SCALE if self._is_scaled else 1.0
        self._steps = 0  # since the scale was last changed

    def computing(self) -> AbstractContextManager[Any]:
        """Compute what is done within in this precision."""
        if self.name not in _NARROW:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=_NARROW[self.name])

    def differentiate(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss to those of the weights, times the scale."""
        wide = loss.to(torch.promote_types(loss.dtype, torch.float32))  # a scale overflows fp16
        (wide * self._scale if self._is_scaled else wide).backward()

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, once all of a group have been added up."""
        if not self._is_scaled:
            return
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.grad.mul_(1 / self._scale)

    def step(self, optimizer: Optimizer) -> None:
        """Move the weights; after many moves without an overflow the scale is doubled."""
        optimizer.step()
        self._steps += 1
        if self._is_scaled and self._steps >= _STEPS_BEFORE_DOUBLING:
            self._rescale(2.0)

    def is_overflow(self, norm_is_finite: bool) -> bool:
        """Whether the scale explains that a gradient is not finite; if so, it is halved.

        To be asked once for an update, in place of the step that is then not taken. A scale that
        has come down to 1 explains nothing any more.
        """
        if norm_is_finite or self._scale <= _SCALES[0]:
            return False
        self._rescale(0.5)
        return True

    def facts(self) -> dict[str, float]:
        """What must be saved to go on; nothing where there is no scale."""
        return {"scale": self._scale, "steps": float(self._steps)} if self._is_scaled else {}

    def restore(self, facts: Mapping[str, float]) -> None:
        """Go on from facts that were saved; from none, as at the beginning."""
        if self._is_scaled and facts:
            self._scale, self._steps = facts["scale"], int(facts["steps"])

    def _rescale(self, factor: float) -> None:
        least, most = _SCALES
        self._scale, self._steps = min(most, max(least, self._scale * factor)), 0

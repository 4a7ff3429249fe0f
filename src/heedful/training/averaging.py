"""Averaging: what were the weights, on the whole, of late?

The mean of the weights along the way is often a better model than the last of them (Polyak &
Juditsky 1992). Law: training goes on as if no average were kept, and the average is a function of
the weights after each step and of the steps' numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.config import Choice
from heedful.weights import distinct_weights


class AverageConfig(Choice):
    """Keep a moving average of the weights."""

    decay: float = Field(default=0.999, gt=0, lt=1)
    """Share of the average that each step keeps; fewer at first, when there is little to keep."""


class MovingAverage:
    """a = d a + (1 - d) w after each step n, with d = min(decay, (1 + n) / (10 + n)).

    The second term lets the first, random weights go soon: it is that of TensorFlow's
    ExponentialMovingAverage, as its documentation gives it for `num_updates`.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        state = model.state_dict(keep_vars=True)
        # The parameters themselves: if the model is moved, updating fails, where a view would lag.
        self._live: dict[str, Tensor] = {name: state[name] for name in distinct_weights(model)}
        self._average = {name: tensor.detach().clone() for name, tensor in self._live.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 1."""
        kept = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self._live.items():
            if tensor.is_floating_point():
                self._average[name].lerp_(tensor, 1 - kept)
            else:  # counts have no mean
                self._average[name].copy_(tensor)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model's weights be the average within; afterwards they are what they were."""
        before = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        self._put(self._average)
        try:
            yield
        finally:
            self._put(before)

    def weights(self) -> dict[str, Tensor]:
        """The average, by the names of the model's weights; the next update changes it."""
        return dict(self._average)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from an average that was saved; from none, begin at the weights as they are."""
        found = tensors or self._live
        for name, tensor in self._average.items():
            tensor.copy_(found[name].detach())

    @torch.no_grad()
    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._live.items():
            tensor.copy_(tensors[name])

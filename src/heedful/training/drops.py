"""Drops: how many words found their expert full?

Experts with a capacity say so of every batch; here it is heard, without a word to the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from heedful.layers.experts import Experts, Mixed


class DropCount:
    """Hears the experts of a model that have a capacity, as they learn."""

    def __init__(self, model: nn.Module) -> None:
        self._heard: list[tuple[Tensor, Tensor]] = []
        for module in model.modules():
            if isinstance(module, Experts) and module.capacity_factor is not None:
                module.register_forward_hook(self._hear)

    def take(self) -> float | None:
        """The share of sends that were dropped since this was last asked; None if none was."""
        heard, self._heard = self._heard, []
        if not heard:
            return None
        sent, dropped = (torch.stack(each).sum().item() for each in zip(*heard, strict=True))
        return dropped / max(sent, 1)

    def _hear(self, module: nn.Module, _: Any, mixed: Mixed) -> None:
        if module.training:
            self._heard.append((mixed.sent, mixed.dropped))

"""Replicas: a model that several ranks have whole, and that tells the others its gradients.

Torch's DistributedDataParallel does the telling. It waits for the gradient of every weight, unless
it looks after every forward pass for those that will get none, which took 5 to 17 % of a step
(small recipes, two ranks on CPUs). Some models have such weights and most have not, so it is looked
once, before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.parallel import DistributedDataParallel

from heedful.decoders.own_tokens import Own
from heedful.tasks.model import Transduced
from heedful.training.random_states import random_states, restore_random
from heedful.training.ranks import Ranks


class _Said(nn.Module):
    """A model of which nothing comes out but what is learned from.

    Of what comes out, torch expects that it has a part in the loss.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any, teacher_share: float, own: Own) -> Transduced:
        """Ask the model, and not where it looked."""
        said: Transduced = self.model(batch, teacher_share, own, need_weights=False)
        return said._replace(weights=None)


class Replica(nn.Module):
    """A model as it is called to learn."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        super().__init__()
        self.model = model
        self._said = _Said(model)
        self._ranks = ranks
        # Not a part of this module: its weights are the model's.
        self._telling: list[DistributedDataParallel] = []
        self._is_apart = False

    def forward(
        self,
        batch: Any,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = False,
    ) -> Transduced:
        """Ask the model as it is asked to learn."""
        assert not need_weights, "who learns does not ask where was looked"
        if not self._telling:
            (is_needed,) = self._ranks.any(self._has_idle_weights(batch, teacher_share, own))
            self._telling = [
                DistributedDataParallel(
                    self._said, gradient_as_bucket_view=True, find_unused_parameters=is_needed
                )
            ]
        (telling,) = self._telling
        with telling.no_sync() if self._is_apart else nullcontext():
            return telling(batch, teacher_share, own)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Add up gradients without telling the other ranks, while within."""
        self._is_apart = True
        try:
            yield
        finally:
            self._is_apart = False

    def _has_idle_weights(self, batch: Any, teacher_share: float, own: Own) -> bool:
        """Whether some weights have no part in what the model says; asking leaves no trace."""
        random = random_states()
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        reached = weights_behind(self._said(batch, teacher_share, own))
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        restore_random(random)
        return any(
            weight.requires_grad and id(weight) not in reached for weight in self.model.parameters()
        )


def weights_behind(outputs: Any) -> set[int]:
    """Give the ids of the weights that outputs were computed from."""
    waiting = [tensor.grad_fn for tensor in _tensors(outputs) if tensor.grad_fn is not None]
    seen, weights = set[Node](waiting), set[int]()
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            weights.add(id(node.variable))
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)
    return weights


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)

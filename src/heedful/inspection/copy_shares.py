"""How much of each output token was copied: p(copied | token), by output heads that copy."""

from typing import Any

import torch
from torch import nn

from heedful.data.batching import Batch
from heedful.models.copying import CopyingHead
from heedful.shapes import PerQuery


def find_copying_head(model: nn.Module) -> CopyingHead | None:
    """Return the output head of a model if it copies."""
    return next((module for module in model.modules() if isinstance(module, CopyingHead)), None)


@torch.inference_mode()
def compute_copy_shares(model: nn.Module, batch: Batch) -> PerQuery | None:
    """Return the copied part of the probability of each target; None if nothing is copied."""
    head = find_copying_head(model)
    if head is None:
        return None
    shares: list[PerQuery] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        features, weights, copying = inputs
        shares.append(head.copy_shares(features, weights, copying, batch.targets))

    handle = head.register_forward_hook(record)
    try:
        model(batch)
    finally:
        handle.remove()
    (of_batch,) = shares
    return of_batch

"""Sharded: how several ranks learn a model of which each holds a part.

Weights, gradients and what the optimizer keeps are parted (FSDP2, torch's `fully_shard`). Blocks,
the sublayers of Transformers, are whole only while they compute; what is left, such as tables of
words, and all of models without such layers, is whole for the length of a step.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from heedful.errors import ConfigError
from heedful.layers.feedforward import PlaceWise
from heedful.layers.self_attention import SelfAttention
from heedful.training.distributed import Replicated
from heedful.weights import distinct_weights


class Sharded(Replicated):
    """Several ranks, each with a part of every weight."""

    is_sharded = True

    def place(self, model: nn.Module) -> nn.Module:
        """Leave each rank its part of a model; it stays the same object."""
        _refuse_single_numbers(model)
        # Of blocks whose outputs may not be changed in place: ours are not.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        self._twin = copy.deepcopy(model)
        _let_go(self._twin)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (self.world,))
        for block in _blocks(model):
            fully_shard(block, mesh=mesh)
            if isinstance(block, SelfAttention):
                register_fsdp_forward_method(block, "both_ways")
        fully_shard(model, mesh=mesh)
        if list(model.buffers()):
            model.register_forward_pre_hook(_share_buffers)
        return model

    def spread(self, model: nn.Module) -> nn.Module:
        """A placed model tells the other ranks its gradients by itself."""
        return model

    @contextmanager
    def apart(self, spread: nn.Module) -> Iterator[None]:
        """Add up gradients, whole, without telling the other ranks yet."""
        assert isinstance(spread, FSDPModule), type(spread)
        spread.set_requires_gradient_sync(False)
        spread.set_is_last_backward(False)
        try:
            yield
        finally:
            spread.set_requires_gradient_sync(True)
            spread.set_is_last_backward(True)

    def asked(self, model: nn.Module) -> nn.Module:
        """Give the twin: one rank may ask it without the others, and not only by `forward`."""
        del model
        return self._twin

    @contextmanager
    def whole(self, model: nn.Module) -> Iterator[None]:
        """Gather the weights of a model for its twin, and let go of them afterwards."""
        twin = self._twin.state_dict(keep_vars=True)
        for name, tensor in distinct_weights(model).items():
            twin[name].data = _gathered(tensor)  # in its own place, which may have two names
        try:
            yield
        finally:
            _let_go(self._twin)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights of a model, whole and in main memory; others than the first get none."""
        found = dict[str, Tensor]()
        for name, tensor in distinct_weights(model).items():
            whole = _gathered(tensor)
            if self.is_first:
                found[name] = whole.cpu()
        return found


def _gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def _let_go(model: nn.Module) -> None:
    """Leave nothing of a model but what it is made of."""
    for tensor in model.state_dict(keep_vars=True).values():
        tensor.data = tensor.new_empty(0)


def _refuse_single_numbers(model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() == 0:
            raise ConfigError(
                "training.parallel",
                f"{name} is a single number, and cannot be parted among ranks",
                "set training.parallel=replicated, or choose a model without it",
            )


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Give the modules whose weights are used nowhere but in their own forward passes.

    Attention to a source is none of them: its keys are prepared before the layer is asked.
    """
    for module in model.modules():
        if isinstance(module, (SelfAttention, PlaceWise)) and list(module.parameters()):
            yield module


@torch.no_grad()
def _share_buffers(model: nn.Module, inputs: object) -> None:
    """Let what is counted along the way be that of the first rank, as DDP does it."""
    del inputs
    if model.training:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)

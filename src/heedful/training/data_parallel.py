""""""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd.graph import Node
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from heedful.errors import ConfigError
from heedful.layers.feed_forward import PositionwiseLayer
from heedful.layers.self_attention import SelfAttention
from heedful.models.base import ModelOutput
from heedful.models.scheduled_sampling import TokenChoice
from heedful.pytree import map_tensors, tensors_of
from heedful.storage.state_dict import unique_weights
from heedful.training.distributed import BatchShard, DistributedContext
from heedful.training.trainer import get_rng_states, set_rng_states

# Replicas: a model that several ranks have whole, and that tells the others its gradients.
#
# Torch's DistributedDataParallel does the telling. It waits for the gradient of every weight, unless
# it looks after every forward pass for those that will get none, which took 5 to 17 % of a step
# (small recipes, two ranks on CPUs). Some models have such weights and most have not, so it is looked
# once, before the first step.


class _LossOutputsOnly(nn.Module):
    """A model without attention weights: DDP expects every output to be part of the loss.

    `scheduled_sampling` holds the arguments of `forward_scheduled_sampling`; without them the model
    is called with teacher forcing.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, batch: Any, *scheduled_sampling: Any) -> ModelOutput:
        if scheduled_sampling:
            output = self.model.forward_scheduled_sampling(batch, *scheduled_sampling)
        else:
            output = self.model(batch)
        return output._replace(weights=None)


class DDPModule(nn.Module):
    """A model as it is called to learn."""

    def __init__(self, model: nn.Module, dist_context: DistributedContext) -> None:
        super().__init__()
        self.model = model
        self._model_without_weights = _LossOutputsOnly(model)
        self._dist_context = dist_context
        # Not a part of this module: its weights are the model's.
        self._ddp: list[DistributedDataParallel] = []
        self._is_no_sync = False

    @override
    def forward(self, batch: Any, *, need_weights: bool = False) -> ModelOutput:
        assert not need_weights, "a model in training returns no attention weights"
        return self._forward(batch)

    def forward_scheduled_sampling(
        self, batch: Any, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        """Run the model's own `forward_scheduled_sampling`."""
        return self._forward(batch, teacher_forcing_ratio, token_choice)

    def _forward(self, batch: Any, *scheduled_sampling: Any) -> ModelOutput:
        if not self._ddp:
            (is_needed,) = self._dist_context.all_reduce_any(
                self._has_unused_parameters(batch, *scheduled_sampling)
            )
            self._ddp = [
                DistributedDataParallel(
                    self._model_without_weights,
                    gradient_as_bucket_view=True,
                    find_unused_parameters=is_needed,
                )
            ]
        (ddp_module,) = self._ddp
        with ddp_module.no_sync() if self._is_no_sync else nullcontext():
            return ddp_module(batch, *scheduled_sampling)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add up gradients without telling the other ranks, while within."""
        self._is_no_sync = True
        try:
            yield
        finally:
            self._is_no_sync = False

    def _has_unused_parameters(self, batch: Any, *scheduled_sampling: Any) -> bool:
        """Whether some weights have no part in what the model says; asking leaves no trace."""
        random = get_rng_states()
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        reached = parameters_in_graph(self._model_without_weights(batch, *scheduled_sampling))
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        set_rng_states(random)
        return any(
            weight.requires_grad and id(weight) not in reached for weight in self.model.parameters()
        )


def parameters_in_graph(outputs: Any) -> set[int]:
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


_POLL_INTERVAL = 0.05  # seconds


class DDPContext(DistributedContext):
    """Several ranks, each with all weights; their gradients are added up."""

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        self.rank = rank
        self.world_size = world_size
        self._store = store
        self._barrier_count = 0

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Make of a model one that tells the other ranks its gradients."""
        return DDPModule(model, self)

    @contextmanager
    def no_sync(self, wrapped_model: nn.Module) -> Iterator[None]:
        """Add up gradients without telling the other ranks yet."""
        assert isinstance(wrapped_model, DDPModule), type(wrapped_model)
        with wrapped_model.no_sync():
            yield

    def shard_batch(self, batch: Any) -> BatchShard:
        """Take every so manieth row; where there are too few, the first again, which counts not."""
        num_rows = len(next(tensors_of(batch)))
        rows = slice(self.rank, None, self.world_size) if self.rank < num_rows else slice(0, 1)
        own = map_tensors(lambda tensor: tensor[rows], batch)
        return BatchShard(own, 1.0 if self.rank < num_rows else 0.0)

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """Add up numbers over all ranks."""
        sums = numbers.detach().clone()
        dist.all_reduce(sums)
        return sums

    def all_reduce_any(self, *flags: bool) -> tuple[bool, ...]:
        """Whether the answer of any rank is yes, for each of some questions."""
        return tuple(number > 0 for number in self.all_reduce(torch.tensor(flags, dtype=torch.int)))

    def gather_to_main(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        """Give the first rank what every rank has, in their order; the others get nothing."""
        everyone: list[dict[str, Tensor]] = [
            {} for _ in range(self.world_size * self.is_main_process)
        ]
        for name, tensor in tensors.items():
            found = [torch.empty_like(tensor) for _ in everyone] if self.is_main_process else None
            dist.gather(tensor, found, dst=0)
            for own, each in zip(everyone, found or [], strict=True):
                own[name] = each
        return list(everyone)

    def barrier(self) -> None:
        """Wait until every rank has come here, however long that takes."""
        self._barrier_count += 1
        key = f"wait-{self._barrier_count}"
        self._store.add(key, 1)
        # Not a collective operation: those give up, and building a large corpus takes hours.
        while self._store.add(key, 0) < self.world_size:
            time.sleep(_POLL_INTERVAL)


# Sharded: how several ranks learn a model of which each holds a part.
#
# Weights, gradients and what the optimizer keeps are parted (FSDP2, torch's `fully_shard`). Blocks,
# the sublayers of Transformers, are whole only while they compute; what is left, such as tables of
# words, and all of models without such layers, is whole for the length of a step.


class FSDPContext(DDPContext):
    """Several ranks, each with a part of every weight."""

    is_sharded = True

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """Leave each rank its part of a model; it stays the same object."""
        _check_no_scalar_parameters(model)
        # Of blocks whose outputs may not be changed in place: ours are not.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        self._twin = copy.deepcopy(model)
        _free_parameters(self._twin)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (self.world_size,))
        for block in _shardable_modules(model):
            fully_shard(block, mesh=mesh)
            if isinstance(block, SelfAttention):
                register_fsdp_forward_method(block, "forward_bidirectional")
        fully_shard(model, mesh=mesh)
        model.register_forward_pre_hook(_broadcast_buffers)
        if hasattr(model, "forward_scheduled_sampling"):
            _shard_scheduled_sampling(model)
        return model

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """A placed model tells the other ranks its gradients by itself."""
        return model

    @contextmanager
    def no_sync(self, wrapped_model: nn.Module) -> Iterator[None]:
        """Add up gradients, whole, without telling the other ranks yet."""
        assert isinstance(wrapped_model, FSDPModule), type(wrapped_model)
        wrapped_model.set_requires_gradient_sync(False)
        wrapped_model.set_is_last_backward(False)
        try:
            yield
        finally:
            wrapped_model.set_requires_gradient_sync(True)
            wrapped_model.set_is_last_backward(True)

    def inference_model(self, model: nn.Module) -> nn.Module:
        """Give the twin: one rank may ask it without the others, and not only by `forward`."""
        del model
        return self._twin

    @contextmanager
    def summon_full_params(self, model: nn.Module) -> Iterator[None]:
        """Gather the weights of a model for its twin, and let go of them afterwards."""
        twin = self._twin.state_dict(keep_vars=True)
        for name, tensor in unique_weights(model).items():
            twin[name].data = _full_tensor(tensor)  # in its own place, which may have two names
        try:
            yield
        finally:
            _free_parameters(self._twin)

    def full_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights of a model, whole and in main memory; others than the first get none."""
        found = dict[str, Tensor]()
        for name, tensor in unique_weights(model).items():
            whole = _full_tensor(tensor)
            if self.is_main_process:
                found[name] = whole.cpu()
        return found


def _full_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def _free_parameters(model: nn.Module) -> None:
    """Leave nothing of a model but what it is made of."""
    for tensor in model.state_dict(keep_vars=True).values():
        tensor.data = tensor.new_empty(0)


def _check_no_scalar_parameters(model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() == 0:
            raise ConfigError(
                "training.distributed_strategy",
                f"{name} is a single number, and cannot be parted among ranks",
                "set training.distributed_strategy=ddp, or choose a model without it",
            )


def _shardable_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Give the modules whose weights are used nowhere but in their own forward passes.

    Attention to a source is none of them: its keys are prepared before the layer is asked.
    """
    for module in model.modules():
        if isinstance(module, (SelfAttention, PositionwiseLayer)) and list(module.parameters()):
            yield module


def _shard_scheduled_sampling(model: Any) -> None:
    """Let FSDP gather parameters for `forward_scheduled_sampling`, which runs no hooks."""
    forward = model.forward_scheduled_sampling

    def broadcast_and_forward(*args: Any) -> ModelOutput:
        _broadcast_buffers(model, args)
        return forward(*args)

    model.forward_scheduled_sampling = broadcast_and_forward
    register_fsdp_forward_method(model, "forward_scheduled_sampling")


@torch.no_grad()
def _broadcast_buffers(model: nn.Module, inputs: object) -> None:
    """Let what is counted along the way be that of the first rank, as DDP does it."""
    del inputs
    if model.training:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)

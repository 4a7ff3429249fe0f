"""Multiple ranks that train one model: DDP (replicated) and FSDP2 (sharded).

Invariant: after each step all ranks have the same parameters, which are, up to rounding and
dropout, those that one process would have.
"""

import copy
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd.graph import Node
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from heedful.errors import check
from heedful.layers.self_attention import SelfAttention
from heedful.layers.sublayers import PositionwiseLayer
from heedful.models.base import ModelOutput
from heedful.models.scheduled_sampling import InputSampler
from heedful.storage.state_dict import gather_shards, unique_weights
from heedful.training.distributed import (
    FAILURE_KEY,
    BatchShard,
    DistributedContext,
    DistributedError,
    DistributedStrategy,
    get_rng_states,
    set_rng_states,
    shard_rows,
)

_POLL_INTERVAL = 0.05  # seconds


class _LossOutputsOnly(nn.Module):
    """A model without attention weights: DDP expects each output to be part of the loss.

    With a `sampler`, `forward_scheduled_sampling` is called instead of teacher forcing.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, batch: Any, sampler: InputSampler | None) -> ModelOutput:
        if sampler is None:
            output = self.model(batch)
        else:
            output = self.model.forward_scheduled_sampling(batch, sampler)
        return output._replace(weights=None) if hasattr(output, "weights") else output


class DDPModule(nn.Module):
    """A model in DistributedDataParallel, which is built at the first forward pass.

    DDP waits for the gradient of each parameter, or searches the graph of each step for unused
    ones, which took 5 to 17 % of a step (two ranks on CPUs). They are searched for once instead.
    """

    def __init__(self, model: nn.Module, dist_context: DistributedContext) -> None:
        super().__init__()
        self.model = model
        self._model_without_weights = _LossOutputsOnly(model)
        self._dist_context = dist_context
        self._ddp: list[DistributedDataParallel] = []  # in a list: not a submodule
        self.is_no_sync = False  # whether gradients are accumulated without all-reducing them

    @override
    def forward(self, batch: Any, *, need_weights: bool = False) -> ModelOutput:
        assert not need_weights, "a model in training returns no attention weights"
        return self._forward(batch, None)

    def forward_scheduled_sampling(self, batch: Any, sampler: InputSampler) -> ModelOutput:
        """Run the model's own `forward_scheduled_sampling`."""
        return self._forward(batch, sampler)

    def _forward(self, batch: Any, sampler: InputSampler | None) -> ModelOutput:
        if not self._ddp:
            has_unused = self._has_unused_parameters(batch, sampler)
            ddp = DistributedDataParallel(
                self._model_without_weights,
                gradient_as_bucket_view=True,
                find_unused_parameters=self._dist_context.all_reduce_any(has_unused)[0],
            )
            self._ddp = [ddp]
        (ddp_module,) = self._ddp
        with ddp_module.no_sync() if self.is_no_sync else nullcontext():
            return ddp_module(batch, sampler)

    def _has_unused_parameters(self, batch: Any, sampler: InputSampler | None) -> bool:
        """Run a forward pass and restore buffers and random state after it."""
        rng_states = get_rng_states()
        saved_buffers = [buffer.clone() for buffer in self.model.buffers()]
        used = parameters_in_graph(self._model_without_weights(batch, sampler))
        for buffer, saved in zip(self.model.buffers(), saved_buffers, strict=True):
            buffer.copy_(saved)
        set_rng_states(rng_states)
        trainable = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return any(id(parameter) not in used for parameter in trainable)


def parameters_in_graph(outputs: Any) -> set[int]:
    """Return the ids of the parameters that outputs depend on."""
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
    stack = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    visited: set[Node] = set(stack)
    parameters: set[int] = set()
    while stack:
        node = stack.pop()
        if hasattr(node, "variable"):
            parameters.add(id(node.variable))
        for parent, _ in node.next_functions:
            if parent is not None and parent not in visited:
                visited.add(parent)
                stack.append(parent)
    return parameters


class DDPContext(DistributedContext):
    """Ranks that have all parameters each; gradients are summed."""

    def __init__(self, rank: int, world_size: int, store: Store) -> None:
        self.rank = rank
        self.world_size = world_size
        self.loss_factor = float(world_size)  # DDP and FSDP average gradients
        self._store = store
        self._barrier_count = 0

    @override
    def wrap_model(self, model: nn.Module) -> nn.Module:
        return DDPModule(model, self)

    @override
    @contextmanager
    def no_sync(self, wrapped_model: nn.Module) -> Iterator[None]:
        assert isinstance(wrapped_model, DDPModule), type(wrapped_model)
        wrapped_model.is_no_sync = True
        try:
            yield
        finally:
            wrapped_model.is_no_sync = False

    @override
    def shard_batch(self, batch: Any) -> BatchShard:
        return shard_rows(batch, self.rank, self.world_size)

    @override
    def all_reduce(self, tensor: Tensor) -> Tensor:
        total = tensor.detach().clone()
        dist.all_reduce(total)
        return total

    @override
    def all_reduce_any(self, *flags: bool) -> tuple[bool, ...]:
        return tuple(count > 0 for count in self.all_reduce(torch.tensor(flags, dtype=torch.int)))

    @override
    def gather_to_main(self, tensors: Mapping[str, Tensor]) -> list[Mapping[str, Tensor]]:
        num_ranks = self.world_size if self.is_main_process else 0
        by_rank: list[dict[str, Tensor]] = [{} for _ in range(num_ranks)]
        for name, tensor in tensors.items():
            gathered = [torch.empty_like(tensor) for _ in by_rank]
            dist.gather(tensor, gathered or None, dst=0)
            for tensors_of_rank, value in zip(by_rank, gathered, strict=True):
                tensors_of_rank[name] = value
        return list(by_rank)

    @override
    def barrier(self) -> None:
        self._barrier_count += 1
        key = f"wait-{self._barrier_count}"
        self._store.add(key, 1)
        # Not a collective operation: those time out, and tokenizing a large corpus takes hours.
        location, hint = f"rank {self.rank} of {self.world_size}", "see its messages"
        while self._store.add(key, 0) < self.world_size:
            has_failed = self._store.add(FAILURE_KEY, 0)
            check(not has_failed, location, "another rank has failed", hint, DistributedError)
            time.sleep(_POLL_INTERVAL)


class FSDPContext(DDPContext):
    """Ranks that have a shard of each parameter each (FSDP2, `fully_shard`).

    Transformer sublayers are gathered while they compute; other parameters for the whole step.
    """

    is_sharded = True

    @override
    @torch.no_grad()
    def total_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return gather_shards(super().total_norm(gradients))

    @override
    def prepare_model(self, model: nn.Module) -> nn.Module:
        for name, parameter in model.named_parameters():
            message = f"{name} is a scalar and cannot be sharded"
            hint = "set training.distributed_strategy=ddp, or choose a model without it"
            check(parameter.dim() > 0, "training.distributed_strategy", message, hint)
        # The warning is about outputs that are changed in place; ours are not.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        self._inference_model = copy.deepcopy(model)
        _free_parameters(self._inference_model)
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.world_size,))
        # Modules whose parameters are used only in their own forward pass. Cross-attention is none:
        # its keys are projected before the layer is called.
        for module in model.modules():
            if isinstance(module, (SelfAttention, PositionwiseLayer)) and list(module.parameters()):
                fully_shard(module, mesh=mesh)
                if isinstance(module, SelfAttention):
                    register_fsdp_forward_method(module, "forward_bidirectional")
        fully_shard(model, mesh=mesh)
        if list(model.buffers()):
            model.register_forward_pre_hook(_broadcast_buffers)
        return model

    @override
    def wrap_model(self, model: nn.Module) -> nn.Module:
        return model

    @override
    @contextmanager
    def no_sync(self, wrapped_model: nn.Module) -> Iterator[None]:
        assert isinstance(wrapped_model, FSDPModule), type(wrapped_model)
        wrapped_model.set_requires_gradient_sync(False)
        wrapped_model.set_is_last_backward(False)
        try:
            yield
        finally:
            wrapped_model.set_requires_gradient_sync(True)
            wrapped_model.set_is_last_backward(True)

    @override
    def inference_model(self, model: nn.Module) -> nn.Module:
        """Return an unsharded copy, which a single rank can use inside `summon_full_params`."""
        del model
        return self._inference_model

    @override
    @contextmanager
    def summon_full_params(self, model: nn.Module) -> Iterator[None]:
        state = self._inference_model.state_dict(keep_vars=True)
        for name, tensor in unique_weights(model).items():
            state[name].data = _full_tensor(tensor)  # in place: a tied parameter has two names
        try:
            yield
        finally:
            _free_parameters(self._inference_model)

    @override
    def full_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the gathered parameters on the CPU; empty but on the main process."""
        state_dict: dict[str, Tensor] = {}
        for name, tensor in unique_weights(model).items():
            full = _full_tensor(tensor)  # collective: on every rank
            if self.is_main_process:
                state_dict[name] = full.cpu()
        return state_dict


def _full_tensor(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def _free_parameters(model: nn.Module) -> None:
    for tensor in model.state_dict(keep_vars=True).values():
        tensor.data = tensor.new_empty(0)


@torch.no_grad()
def _broadcast_buffers(model: nn.Module, inputs: object) -> None:
    """Copy the buffers of rank 0 to all ranks, as DDP does."""
    del inputs
    if model.training:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


_RENDEZVOUS_TIMEOUT = timedelta(minutes=5)  # torchrun starts all ranks together
# A dead rank is noticed sooner by its closed connection, and rank 0 may decode or save for long.
_COLLECTIVE_TIMEOUT = timedelta(minutes=60)
_RENDEZVOUS_COUNTER = count()  # the same on all ranks
# Groups are kept until the process ends: DDP's reducer would destroy the last reference while it
# holds the GIL, and join a gloo thread that may be waiting for the GIL to free its last tensors.
_KEPT_GROUPS: list[dist.ProcessGroup | None] = []


@contextmanager
def init_distributed(
    device: torch.device,
    strategy: DistributedStrategy = "ddp",
    *,
    timeout: timedelta = _RENDEZVOUS_TIMEOUT,
) -> Iterator[tuple[DistributedContext, torch.device]]:
    """Join the process group of a launcher; yield its context and the device of this rank."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        message = f"not set, but RANK is {rank} and WORLD_SIZE is {world_size}"
        hint = "start with torchrun, which sets it, or unset RANK to train in one process"
        check(name in os.environ, name, message, hint)
    hint = "train with --device cpu, or in one process"
    check(device.type != "mps", "--device", "mps cannot train in multiple processes", hint)
    if device.type == "cuda":
        device = _select_gpu(int(os.environ["LOCAL_RANK"]))
    try:
        store = _rendezvous(rank, world_size, device, timeout)
        try:
            context_class = DDPContext if strategy == "ddp" else FSDPContext
            yield context_class(rank, world_size, store), device
        except BaseException:
            with suppress(RuntimeError):  # the store may be gone
                store.add(FAILURE_KEY, 1)
            raise
        finally:
            _KEPT_GROUPS.append(dist.group.WORLD)
            dist.destroy_process_group()
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise DistributedError(
            f"rank {rank} of {world_size}",
            f"another rank has died or cannot be reached ({_reason(error)})",
            "see its messages; run the same command to resume from the last checkpoint",
        ) from error


def _select_gpu(local_rank: int) -> torch.device:
    num_gpus = torch.cuda.device_count()
    message = f"this is process {local_rank + 1} of its machine, but there are {num_gpus} GPUs"
    hint = "start one process per GPU, or train with --device cpu"
    check(local_rank < num_gpus, "--nproc-per-node", message, hint)
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)  # for NCCL and the random state
    return device


def _rendezvous(rank: int, world_size: int, device: torch.device, timeout: timedelta) -> Store:
    """Join the process group and return the store that its ranks share."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # all restart when one rank dies
    try:
        server = TCPStore(host, port, world_size, is_master=is_master, timeout=timeout)
        # A prefix per attempt: otherwise a rank may find the address of one that has ended.
        store = PrefixStore(f"attempt-{attempt}/{next(_RENDEZVOUS_COUNTER)}", server)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=_COLLECTIVE_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise DistributedError(
            f"{host}:{port}",
            f"rank {rank} of {world_size} cannot reach the others ({_reason(error)})",
            "check that all are started and that every machine can reach this address",
        ) from error
    return PrefixStore("ranks", store)


def _reason(error: Exception) -> str:
    """Return the first sentence of a message, without the source location that gloo prepends."""
    line = str(error).partition("\n")[0]
    return re.sub(r"^\[\S*\] ", "", line).partition(". ")[0]

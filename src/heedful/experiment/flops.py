"""FLOPs: the floating-point operations of a forward and a backward pass.

Matrix products, convolutions, attention and recurrences count, two operations per multiply-add;
elementwise work does not. Invariant: the count depends only on shapes, so a fused kernel counts as
its plain form, masked positions count, and a model can be counted on the meta device. Recomputation
by activation checkpointing counts again; recomputation inside a kernel does not.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.pytree import map_tensors
from heedful.recipes import Recipe
from heedful.tasks.task_data import BatchShape, DataModule, VocabSizes

Formula = Callable[[Sequence[Any], Any], int]
"""FLOPs, from the arguments and the output of an operator."""

_SMALL_VOCABULARIES = VocabSizes(16, 16)
_NUM_ROWS = 2  # a batch norm may need two
_MATRIX_SIZE, _MEASURED_SECONDS = 512, 0.1
_TRAINING_EFFICIENCY = 0.3  # a guess: 0.1 was measured for gpt-small on a busy core
_aten = torch.ops.aten


def training_flops_per_target(recipe: Recipe, model: nn.Module, data_module: DataModule) -> float:
    """Return the training FLOPs per target token for an example of the mean length in dev."""
    shape = recipe.task.data.mean_shape(list(data_module.validation_batches()))
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    return _training_flops(recipe, model, sizes, shape)


def check_trainable(recipe: Recipe) -> None:
    """Raise the errors of optimizer and first batch: on the meta device, without the data."""
    with torch.device("meta"):
        model = recipe.task.build_model(recipe, _SMALL_VOCABULARIES)
    recipe.training.optimizer.group_parameters(model)
    _training_flops(recipe, model, _SMALL_VOCABULARIES, BatchShape(2, 2))


def _training_flops(
    recipe: Recipe, model: nn.Module, sizes: VocabSizes, shape: BatchShape
) -> float:
    with torch.device("meta"):
        batch = recipe.task.data.dummy_batch(recipe.model, sizes, shape, _NUM_ROWS)
    return _count_training(_meta_copy(model), batch) / (_NUM_ROWS * shape.target_length)


def measure_speed(device: torch.device) -> float:
    """Return the FLOPs per second of training on this device, roughly, within a tenth of a second.

    That of matrix products, times the fraction that training steps reach of it.
    """
    matrix = torch.ones(_MATRIX_SIZE, _MATRIX_SIZE, device=device)
    float((matrix @ matrix)[0, 0])  # the first one loads libraries
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < _MEASURED_SECONDS:
        float((matrix @ matrix)[0, 0])
        count += 1
    seconds = time.perf_counter() - start
    return _TRAINING_EFFICIENCY * count * 2 * _MATRIX_SIZE**3 / seconds


class FlopsPerToken(NamedTuple):
    """FLOPs per target token; those of the source are divided among the targets."""

    forward: float
    training: float  # forward and backward, without the optimizer


def flops_per_token(model: nn.Module, batch: Any, *, num_targets: int) -> FlopsPerToken:
    """Count the FLOPs of a batch with this many target tokens, by a copy on the meta device."""
    copy = _meta_copy(model)
    batch = map_tensors(lambda tensor: tensor.to("meta"), batch)
    with FlopCounter() as forward, torch.no_grad():
        copy.eval()(batch)
    return FlopsPerToken(forward.total / num_targets, _count_training(copy, batch) / num_targets)


def _meta_copy(model: nn.Module) -> nn.Module:
    parameters = {
        id(tensor): nn.Parameter(tensor.detach().to("meta"), requires_grad=tensor.requires_grad)
        for tensor in model.parameters()
    }
    buffers = {id(buffer): buffer.detach().to("meta") for buffer in model.buffers()}
    return deepcopy(model, {**parameters, **buffers})  # which copies no tensor


def _count_training(model: nn.Module, batch: Any) -> int:
    with FlopCounter() as counter, torch.enable_grad():
        output = model.train()(batch)
        sum(output.auxiliary_losses.values(), start=output.log_probs.sum()).backward()
    return counter.total


class FlopCounter(TorchDispatchMode):
    """Counts the FLOPs of all operators that reach a device inside the context.

    On the meta device a Boolean index is taken to select all positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: Counter[str] = Counter()  # by torch's name: addmm, convolution, ...

    @property
    def total(self) -> int:
        """The FLOPs of all operators."""
        return self.by_operator.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = _FORMULA_BY_OP.get(func.overloadpacket)
        if formula is None:
            # Without gradients, composite operators arrive undecomposed.
            with self:
                output = func.decompose(*args, **kwargs)
            if output is NotImplemented:
                output = func(*_replace_boolean_indices(func, args), **kwargs)
            return output
        output = func(*args, **kwargs)
        self.by_operator[func.overloadpacket.__name__] += formula(args, output)
        return output


def _replace_boolean_indices(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace Boolean indices of a meta tensor by indices of all positions."""
    if func.overloadpacket not in _INDEXING or not args[0].is_meta:
        return args
    indices: list[Tensor | None] = []
    for index in args[1]:
        if index is None or index.dtype != torch.bool:
            indices.append(index)
        else:
            positions = torch.empty(index.numel(), dtype=torch.long, device="meta")
            indices += [positions] * index.dim()
    return (args[0], indices, *args[2:])


def _matmul_flops(left: Tensor, right: Tensor) -> int:
    """(*B, N, M) times (*B, M, K), or times (M)."""
    return 2 * left.numel() * (right.size(-1) if right.dim() > 1 else 1)


def _attention_flops(queries: Tensor, keys: Tensor, values: Tensor) -> int:
    """Scores and weighted sums of values; heads may share keys."""
    num_queries, num_keys = queries.numel() // queries.size(-1), keys.size(-2)
    return 2 * num_queries * num_keys * (queries.size(-1) + values.size(-1))


def _conv_flops(inputs: Tensor, weight: Tensor, outputs: Tensor, transposed: bool) -> int:
    """One kernel per output, or per input if transposed."""
    return 2 * (inputs if transposed else outputs).numel() * weight[0].numel()


def _convolution_backward(args: Sequence[Any], _: Any) -> int:
    grad_outputs, inputs, weight, output_mask = args[0], args[1], args[2], args[-1]
    return _conv_flops(inputs, weight, grad_outputs, args[7]) * sum(output_mask[:2])


def _rnn_flops(inputs: Tensor, weights: Sequence[Tensor]) -> int:
    """Each weight matrix once per input vector."""
    num_inputs = inputs.numel() // inputs.size(-1)
    return 2 * num_inputs * sum(weight.numel() for weight in weights if weight.dim() == 2)


def _cudnn_backward(args: Sequence[Any], _: Any) -> int:
    needs_weight_grad = args[-1][3]
    return _rnn_flops(args[0], args[1]) * (2 if needs_weight_grad else 1)


_SDPA_KERNELS = (
    "flash_attention_for_cpu",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
_SDPA = " ".join(f"_scaled_dot_product_{kernel}" for kernel in _SDPA_KERNELS)
_SDPA_BACKWARD = " ".join(f"_scaled_dot_product_{kernel}_backward" for kernel in _SDPA_KERNELS)
_FLOP_FORMULAS: Mapping[str, Formula] = {
    "mm bmm mv dot vdot": lambda args, _: _matmul_flops(*args[:2]),
    "addmm baddbmm addbmm addmv _addmm_activation": lambda args, _: _matmul_flops(*args[1:3]),
    _SDPA: lambda args, _: _attention_flops(*args[:3]),
    _SDPA_BACKWARD: lambda args, _: 2 * _attention_flops(*args[1:4]),
    "convolution": lambda args, outputs: _conv_flops(args[0], args[1], outputs, args[6]),
    "convolution_backward": _convolution_backward,
    "mkldnn_rnn_layer": lambda args, _: _rnn_flops(args[0], args[1:5]),
    "mkldnn_rnn_layer_backward": lambda args, _: 2 * _rnn_flops(args[0], args[1:5]),
    "_cudnn_rnn": lambda args, _: _rnn_flops(*args[:2]),
    "_cudnn_rnn_backward": _cudnn_backward,
}
_FORMULA_BY_OP: Mapping[Any, Formula] = {
    getattr(_aten, name): formula
    for names, formula in _FLOP_FORMULAS.items()
    for name in names.split()
}
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}

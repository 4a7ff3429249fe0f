"""Operations: how many floating-point operations does a computation take?

Counted are the additions and multiplications of products of matrices and vectors, convolutions,
attention and recurrences, forwards and backwards, two for each multiply-add. Work done element by
element is not: activations, norms, softmax, sums, looking up embeddings, an optimizer. Law: shapes
alone decide. So a kernel counts as much as the plain form of what it does, what a mask hides as
much as what it shows, and tensors on the meta device, which hold nothing, as much as any. What
checkpointing does again is counted again; what a kernel does again to save memory is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.data.batching import Batch, SourceBatch
from heedful.data.token_stream import LMBatch
from heedful.models.base import Seq2SeqModel
from heedful.models.language_model import LanguageModel
from heedful.models.masked_language_model import MaskedLanguageModel
from heedful.recipes import Recipe
from heedful.recipes.recipe import ModelConfig
from heedful.tasks.pair_task import PairDataModule
from heedful.tasks.task import DataModule

CountableModel = Seq2SeqModel | LanguageModel | MaskedLanguageModel
Formula = Callable[[Sequence[Any], Any], int]
"""Operations, from the arguments of a call and what came of it."""

_aten = torch.ops.aten


@dataclass
class FlopCount:
    """What has been counted so far."""

    by_operator: Counter[str] = field(default_factory=Counter)
    """Operations of products, convolutions, attention and recurrences, each by themselves."""

    @property
    def total(self) -> int:
        """All operations."""
        return self.by_operator.total()


@contextmanager
def count_flops() -> Iterator[FlopCount]:
    """Count the operations of all that is computed within, on any device.

    On the meta device indexing by a mask is taken to find every place, for nobody knows.
    """
    counted = FlopCount()
    with _FlopCounterMode(counted):
        yield counted


class FlopsPerToken(NamedTuple):
    """Operations for one target token, those for the source shared among them."""

    forward: float
    training: float  # forward and backward; the optimizer is left out


def flops_per_token(
    model: CountableModel, *, target_length: int, source_length: int | None = None
) -> FlopsPerToken:
    """Count what a model does with one text of this length, or one pair where there is a source.

    Lengths are those a model sees, begin and end symbols counted. It costs next to nothing however
    large the model is, and leaves the model as it was: counted is what a copy of it does on the
    meta device. The model may be there itself.
    """
    copy, batch = _to_meta(model), _fake_batch(model, source_length, target_length)
    with count_flops() as answering, torch.no_grad():
        copy.eval()(batch)
    with count_flops() as learning, torch.enable_grad():
        output = copy.train()(batch)
        sum(output.auxiliary_losses.values(), start=output.log_probs.sum()).backward()
    return FlopsPerToken(answering.total / target_length, learning.total / target_length)


def _to_meta(model: CountableModel) -> CountableModel:
    """Copy a model to the meta device, and nothing of what its tensors hold."""
    weights = {
        id(weight): nn.Parameter(weight.detach().to("meta"), requires_grad=weight.requires_grad)
        for weight in model.parameters()
    }
    buffers = {id(buffer): buffer.detach().to("meta") for buffer in model.buffers()}
    return deepcopy(model, {**weights, **buffers})


def _fake_batch(
    model: CountableModel, source_length: int | None, target_length: int
) -> Batch | LMBatch:
    """Make a batch of one row that holds nothing."""
    assert (source_length is None) != isinstance(model, Seq2SeqModel), (type(model), source_length)
    target = torch.zeros(1, target_length, dtype=torch.long, device="meta")
    if source_length is None:
        return LMBatch(target, target)
    source = torch.zeros(1, source_length, dtype=torch.long, device="meta")
    return Batch(SourceBatch(source, source[:, 0]), target, target)


class _FlopCounterMode(TorchDispatchMode):
    """Sees every call that reaches a device."""

    def __init__(self, counted: FlopCount) -> None:
        super().__init__()
        self.counted = counted

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        kind, formula = _FORMULA_BY_OP.get(func.overloadpacket, (None, None))
        if kind is None or formula is None:
            # Where no gradient is wanted, calls come that are still to be taken apart.
            with self:
                outcome = func.decompose(*args, **named)
            return (
                func(*_replace_boolean_indices(func, args), **named)
                if outcome is NotImplemented
                else outcome
            )
        outcome = func(*args, **named)
        self.counted.by_operator[kind] += formula(args, outcome)
        return outcome


def _replace_boolean_indices(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace masks by which a meta tensor is indexed by the numbers of all places."""
    if func.overloadpacket not in _INDEXING or not args[0].is_meta:
        return args
    indices = list[Tensor | None]()
    for index in args[1]:
        if index is None or index.dtype != torch.bool:
            indices.append(index)
        else:
            numbers = torch.empty(index.numel(), dtype=torch.long, device="meta")
            indices += [numbers] * index.dim()
    return (args[0], indices, *args[2:])


def _matmul_flops(left: Tensor, right: Tensor) -> int:
    """(*B, N, M) times (*B, M, K), or times (M)."""
    return 2 * left.numel() * (right.size(-1) if right.dim() > 1 else 1)


def _mm_flops(args: Sequence[Any], _: Any) -> int:
    return _matmul_flops(*args[:2])


def _addmm_flops(args: Sequence[Any], _: Any) -> int:
    return _matmul_flops(*args[1:3])


def _attention_flops(queries: Tensor, keys: Tensor, values: Tensor) -> int:
    """Compare every query with every key, and add up the values; heads may share keys."""
    num_queries, num_keys = queries.numel() // queries.size(-1), keys.size(-2)
    return 2 * num_queries * num_keys * (queries.size(-1) + values.size(-1))


def _attention_forward(args: Sequence[Any], _: Any) -> int:
    return _attention_flops(*args[:3])


def _attention_backward(args: Sequence[Any], _: Any) -> int:
    return 2 * _attention_flops(*args[1:4])


def _conv_flops(inputs: Tensor, weight: Tensor, outputs: Tensor, *, transposed: bool) -> int:
    """Meet every output, or every input if transposed, with all that a kernel reaches."""
    return 2 * (inputs if transposed else outputs).numel() * weight[0].numel()


def _convolution_forward(args: Sequence[Any], outputs: Any) -> int:
    return _conv_flops(args[0], args[1], outputs, transposed=args[6])


def _convolution_backward(args: Sequence[Any], _: Any) -> int:
    of_outputs, inputs, weight, wanted = args[0], args[1], args[2], args[-1]
    once = _conv_flops(inputs, weight, of_outputs, transposed=args[7])
    return once * sum(wanted[:2])


def _rnn_flops(inputs: Tensor, weights: Sequence[Tensor]) -> int:
    """Meet every weight but the biases once for every input."""
    num_inputs = inputs.numel() // inputs.size(-1)
    return 2 * num_inputs * sum(weight.numel() for weight in weights if weight.dim() == 2)


def _onednn_forward(args: Sequence[Any], _: Any) -> int:
    return _rnn_flops(args[0], args[1:5])


def _onednn_backward(args: Sequence[Any], _: Any) -> int:
    return 2 * _rnn_flops(args[0], args[1:5])


def _cudnn_forward(args: Sequence[Any], _: Any) -> int:
    return _rnn_flops(args[0], args[1])


def _cudnn_backward(args: Sequence[Any], _: Any) -> int:
    of_weights = args[-1][3]
    return _rnn_flops(args[0], args[1]) * (2 if of_weights else 1)


_FLOP_FORMULAS: Mapping[str, Mapping[Formula, Sequence[str]]] = {
    "product": {
        _mm_flops: ("mm", "bmm", "mv", "dot", "vdot"),
        _addmm_flops: ("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"),
    },
    "attention": {
        _attention_forward: (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
        _attention_backward: (
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
    },
    "convolution": {
        _convolution_forward: ("convolution",),
        _convolution_backward: ("convolution_backward",),
    },
    "recurrence": {
        _onednn_forward: ("mkldnn_rnn_layer",),
        _onednn_backward: ("mkldnn_rnn_layer_backward",),
        _cudnn_forward: ("_cudnn_rnn",),
        _cudnn_backward: ("_cudnn_rnn_backward",),
    },
}
_FORMULA_BY_OP: Mapping[Any, tuple[str, Formula]] = {
    getattr(_aten, name): (kind, formula)
    for kind, formulas in _FLOP_FORMULAS.items()
    for formula, names in formulas.items()
    for name in names
}
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}


# Costs: how many floating-point operations does it take to learn from one target token?

_MODELS: TypeAdapter[ModelConfig] = TypeAdapter(ModelConfig)


def training_flops_per_target(recipe: Recipe, data_module: DataModule) -> float:
    """Count for a text or a pair of the mean length of those held out."""
    batches = list(data_module.validation_batches())
    num_rows = sum(len(batch.targets) for batch in batches)
    num_tokens = sum(batch.num_tokens for batch in batches)
    lengths: tuple[int | None, int] = None, _rounded_mean(num_tokens, num_rows)
    if isinstance(data_module, PairDataModule):
        targets = sum(batch.num_targets for batch in batches)
        lengths = _rounded_mean(num_tokens - targets, num_rows), _rounded_mean(targets, num_rows)
    sizes = len(data_module.tokenizers.source), len(data_module.tokenizers.target)
    return _count_flops(recipe.model.model_dump_json(), sizes, lengths)


def _rounded_mean(total: int, count: int) -> int:
    return max(1, round(total / count))


@cache
def _count_flops(model: str, sizes: tuple[int, int], lengths: tuple[int | None, int]) -> float:
    source_vocab_size, target_vocab_size = sizes
    source, target = lengths
    with torch.device("meta"):
        config = _MODELS.validate_json(model)
        built = config.build(
            source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size
        )
    return flops_per_token(built, target_length=target, source_length=source).training

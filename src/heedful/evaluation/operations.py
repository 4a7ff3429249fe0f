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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.data.collate import Batch, Sources
from heedful.data.running import TextBatch
from heedful.tasks.language_model import LanguageModel
from heedful.tasks.masked_language_model import MaskedLanguageModel
from heedful.tasks.model import Model

Countable = Model | LanguageModel | MaskedLanguageModel
Formula = Callable[[Sequence[Any], Any], int]
"""Operations, from the arguments of a call and what came of it."""

_aten = torch.ops.aten


@dataclass
class Operations:
    """What has been counted so far."""

    by_kind: Counter[str] = field(default_factory=Counter)
    """Operations of products, convolutions, attention and recurrences, each by themselves."""

    @property
    def total(self) -> int:
        """All operations."""
        return self.by_kind.total()


@contextmanager
def counting_operations() -> Iterator[Operations]:
    """Count the operations of all that is computed within, on any device.

    On the meta device indexing by a mask is taken to find every place, for nobody knows.
    """
    counted = Operations()
    with _Counting(counted):
        yield counted


class PerToken(NamedTuple):
    """Operations for one target token, those for the source shared among them."""

    forward: float
    training: float  # forward and backward; the optimizer is left out


def operations_per_token(
    model: Countable, *, target_length: int, source_length: int | None = None
) -> PerToken:
    """Count what a model does with one text of this length, or one pair where there is a source.

    Lengths are those a model sees, begin and end symbols counted. It costs next to nothing however
    large the model is, and leaves the model as it was: counted is what a copy of it does on the
    meta device. The model may be there itself.
    """
    copy, batch = _without_numbers(model), _synthetic(model, source_length, target_length)
    with counting_operations() as answering, torch.no_grad():
        copy.eval()(batch, need_weights=False)
    with counting_operations() as learning, torch.enable_grad():
        told = copy.train()(batch, need_weights=False)
        sum(told.penalties.values(), start=told.log_probs.sum()).backward()
    return PerToken(answering.total / target_length, learning.total / target_length)


def _without_numbers(model: Countable) -> Countable:
    """Copy a model to the meta device, and nothing of what its tensors hold."""
    weights = {
        id(weight): nn.Parameter(weight.detach().to("meta"), requires_grad=weight.requires_grad)
        for weight in model.parameters()
    }
    buffers = {id(buffer): buffer.detach().to("meta") for buffer in model.buffers()}
    return deepcopy(model, {**weights, **buffers})


def _synthetic(
    model: Countable, source_length: int | None, target_length: int
) -> Batch | TextBatch:
    """Make a batch of one row that holds nothing."""
    assert (source_length is None) != isinstance(model, Model), (type(model), source_length)
    target = torch.zeros(1, target_length, dtype=torch.long, device="meta")
    if source_length is None:
        return TextBatch(target, target)
    source = torch.zeros(1, source_length, dtype=torch.long, device="meta")
    return Batch(Sources(source, source[:, 0]), target, target)


class _Counting(TorchDispatchMode):
    """Sees every call that reaches a device."""

    def __init__(self, counted: Operations) -> None:
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
        kind, formula = _FORMULAS.get(func.overloadpacket, (None, None))
        if kind is None or formula is None:
            # Where no gradient is wanted, calls come that are still to be taken apart.
            with self:
                outcome = func.decompose(*args, **named)
            return (
                func(*_finding_all(func, args), **named) if outcome is NotImplemented else outcome
            )
        outcome = func(*args, **named)
        self.counted.by_kind[kind] += formula(args, outcome)
        return outcome


def _finding_all(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
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


def _product(left: Tensor, right: Tensor) -> int:
    """(*B, N, M) times (*B, M, K), or times (M)."""
    return 2 * left.numel() * (right.size(-1) if right.dim() > 1 else 1)


def _product_of_two(args: Sequence[Any], _: Any) -> int:
    return _product(*args[:2])


def _product_added(args: Sequence[Any], _: Any) -> int:
    return _product(*args[1:3])


def _attention(queries: Tensor, keys: Tensor, values: Tensor) -> int:
    """Compare every query with every key, and add up the values; heads may share keys."""
    num_queries, num_keys = queries.numel() // queries.size(-1), keys.size(-2)
    return 2 * num_queries * num_keys * (queries.size(-1) + values.size(-1))


def _attention_forward(args: Sequence[Any], _: Any) -> int:
    return _attention(*args[:3])


def _attention_backward(args: Sequence[Any], _: Any) -> int:
    return 2 * _attention(*args[1:4])


def _convolution(inputs: Tensor, weight: Tensor, outputs: Tensor, *, transposed: bool) -> int:
    """Meet every output, or every input if transposed, with all that a kernel reaches."""
    return 2 * (inputs if transposed else outputs).numel() * weight[0].numel()


def _convolution_forward(args: Sequence[Any], outputs: Any) -> int:
    return _convolution(args[0], args[1], outputs, transposed=args[6])


def _convolution_backward(args: Sequence[Any], _: Any) -> int:
    of_outputs, inputs, weight, wanted = args[0], args[1], args[2], args[-1]
    once = _convolution(inputs, weight, of_outputs, transposed=args[7])
    return once * sum(wanted[:2])


def _recurrence(inputs: Tensor, weights: Sequence[Tensor]) -> int:
    """Meet every weight but the biases once for every input."""
    num_inputs = inputs.numel() // inputs.size(-1)
    return 2 * num_inputs * sum(weight.numel() for weight in weights if weight.dim() == 2)


def _onednn_forward(args: Sequence[Any], _: Any) -> int:
    return _recurrence(args[0], args[1:5])


def _onednn_backward(args: Sequence[Any], _: Any) -> int:
    return 2 * _recurrence(args[0], args[1:5])


def _cudnn_forward(args: Sequence[Any], _: Any) -> int:
    return _recurrence(args[0], args[1])


def _cudnn_backward(args: Sequence[Any], _: Any) -> int:
    of_weights = args[-1][3]
    return _recurrence(args[0], args[1]) * (2 if of_weights else 1)


_KINDS: Mapping[str, Mapping[Formula, Sequence[str]]] = {
    "product": {
        _product_of_two: ("mm", "bmm", "mv", "dot", "vdot"),
        _product_added: ("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"),
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
_FORMULAS: Mapping[Any, tuple[str, Formula]] = {
    getattr(_aten, name): (kind, formula)
    for kind, formulas in _KINDS.items()
    for formula, names in formulas.items()
    for name in names
}
_INDEXING = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}

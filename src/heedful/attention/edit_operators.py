"""Operators in graphs of a model that mark where its attention has a mask and weights.

ONNX does not have `EditMask` and `EditWeights`; they return what they get. The interpreter of a
page (`plotting/page/interpreter.js`) records weights there, and applies edits as `attention.edits`
does.
Invariant: a model with the operators computes what it computes without them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentFunction, AlignmentOutput, SoftAlignment
from heedful.attention.edits import AttentionSite, find_attention
from heedful.attention.memory import AttentionState
from heedful.pytree import Module, ModuleChange, rebuild_modules
from heedful.shapes import Mask, Queries, Scores, Weights


def editable_sites(model: nn.Module) -> list[AttentionSite]:
    """Return the attention of a model whose weights have an axis of tokens."""
    return [site for site in find_attention(model) if not site.is_segmented]


def with_edit_operators(model: Module) -> Module:
    """Return a copy of a model that shares its parameters and has the operators of edits."""
    sites = {site.alignment_path: site for site in editable_sites(model)}

    def find_change(path: str, *_: nn.Module | None) -> ModuleChange | None:
        if path not in sites:
            return None
        inner = sites[path].alignment_function
        marked: AlignmentFunction
        if isinstance(inner, SoftAlignment):
            marked = _MarkedSoftAlignment(inner, sites[path].path).eval()
        else:
            marked = _MarkedAlignment(inner, sites[path].path).eval()
        return lambda attention: setattr(attention, "alignment_function", marked)

    return rebuild_modules(model, find_change)


_EDIT_MASK = "(Tensor mask, str path) -> Tensor"
_EDIT_WEIGHTS = "(Tensor weights, Tensor mask, str path) -> Tensor"


@torch.library.custom_op("heedful::edit_mask", mutates_args=(), schema=_EDIT_MASK)
def _edit_mask(mask: Tensor, path: str) -> Tensor:
    return mask.clone()


@torch.library.custom_op("heedful::edit_weights", mutates_args=(), schema=_EDIT_WEIGHTS)
def _edit_weights(weights: Tensor, mask: Tensor, path: str) -> Tensor:
    return weights.clone()


@_edit_mask.register_fake
def _(mask: Tensor, path: str) -> Tensor:
    return torch.empty_like(mask, memory_format=torch.contiguous_format)


@_edit_weights.register_fake
def _(weights: Tensor, mask: Tensor, path: str) -> Tensor:
    return torch.empty_like(weights, memory_format=torch.contiguous_format)


def onnx_translations() -> dict[Any, Any]:
    """Return the ONNX operators of the two operators of torch."""
    mask_op = _define_operator("EditMask", ("mask",), ("tensor(bool)",))
    types = ("tensor(float)", "tensor(double)")
    weights_op = _define_operator("EditWeights", ("weights", "mask"), types)

    def translate_mask(mask: Any, path: str) -> Any:
        return mask_op(mask, path=path)

    def translate_weights(weights: Any, mask: Any, path: str) -> Any:
        return weights_op(weights, mask, path=path)

    ops = torch.ops.heedful
    return {ops.edit_mask.default: translate_mask, ops.edit_weights.default: translate_weights}


def _define_operator(name: str, inputs: tuple[str, ...], types: tuple[str, ...]) -> Any:
    from onnx.defs import OpSchema
    from onnxscript import values

    kinds = ["T", "tensor(bool)"]
    parameter = OpSchema.FormalParameter
    path = OpSchema.Attribute("path", OpSchema.AttrType.STRING, required=True)
    schema = OpSchema(
        name,
        "heedful",
        1,
        inputs=[parameter(*pair) for pair in zip(inputs, kinds, strict=False)],
        outputs=[parameter("output", "T")],
        type_constraints=[("T", list(types), "")],
        attributes=[path],
    )
    return values.Op(values.Opset("heedful", 1), name, op_schema=schema)


class _MarkedSoftAlignment(SoftAlignment):
    def __init__(self, inner: SoftAlignment, path: str) -> None:
        super().__init__()
        self.inner, self.path = inner, path
        self.is_unnormalized = inner.is_unnormalized

    @override
    def normalize(self, scores: Scores, mask: Mask) -> Weights:
        mask = mask.expand(scores.shape)
        weights = self.inner.normalize(scores, _edit_mask(mask, self.path))
        return _edit_weights(weights, mask, self.path)


class _MarkedAlignment(AlignmentFunction):
    def __init__(self, inner: AlignmentFunction, path: str) -> None:
        super().__init__()
        self.inner, self.path = inner, path
        self.is_unnormalized = inner.is_unnormalized

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        mask = mask.expand(scores.shape)
        output = self.inner.align(scores, _edit_mask(mask, self.path), queries, state)
        weights = _edit_weights(output.weights, mask, self.path)
        return output._replace(weights=weights)

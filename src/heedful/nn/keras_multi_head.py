"""Keras's `MultiHeadAttention`, with inputs of any rank.

The parameters have the shapes that they have in Keras: kernels (input size, heads, head size), and
(heads, head size, output size) of the output. Invariant: equal to Keras in value and gradient
wherever a query has a visible key.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.attention.scores import ScaledDotScore
from heedful.errors import ArgumentError, check
from heedful.nn.keras_attention import KerasLayer, Shape, materialize_, unsized_parameter
from heedful.nn.mechanism import (
    Alignment,
    PairMask,
    Score,
    as_boolean,
    attend_with_mask,
    build_mechanism,
)
from heedful.shapes import Bool, Float, Weights

Inputs = Float[Tensor, "B ..."]


class MultiHeadAttention(KerasLayer):
    """W_o [head_1; head_2; ...], head_i = attention(W_q,i q, W_k,i k, W_v,i v), as Keras's layer.

    `use_gate` multiplies each head by sigmoid(W_g,i q). `score` and `alignment` replace scaled dot
    product and softmax by others: a config or a module. Without `query_size` the parameters get
    their sizes from the first call; `value_size` and `key_size` default to `query_size`.
    """

    def __init__(  # noqa: PLR0917 - the parameters of Keras
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        sliding_window: int | None = None,
        *,
        use_gate: bool = False,
        score: Score = None,
        alignment: Alignment = None,
        query_size: int | None = None,
        value_size: int | None = None,
        key_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        for name, size in {**sizes, "sliding_window": sliding_window}.items():
            is_valid = size is None or size > 0
            check(is_valid, name, f"is {size}", "choose 1 or more", ArgumentError)
        self.num_heads, self.key_dim, self.value_dim = num_heads, key_dim, value_dim or key_dim
        self.output_shape = _as_tuple(output_shape)
        self.attention_axes = _as_tuple(attention_axes)
        self.sliding_window = sliding_window
        names = ["query", "key", "gate", "value", "attention_output"]
        for name in names:
            for part in ("kernel", "bias"):
                is_used = (use_bias or part == "kernel") and (use_gate or name != "gate")
                parameter = unsized_parameter(device, dtype) if is_used else None
                self.register_parameter(f"{name}_{part}", parameter)
        self.attention = build_mechanism(
            score,
            alignment,
            default_score=ScaledDotScore(),
            query_size=key_dim,
            num_heads=num_heads,
            dropout=dropout,
            device=device,
            dtype=dtype,
        )
        if query_size is not None:
            value_size = value_size or query_size
            self._build_for(query_size, value_size, key_size or value_size)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Create the parameters for inputs of these shapes; the first call also does it."""
        key_shape = value_shape if key_shape is None else key_shape
        self._build_for(query_shape[-1], value_shape[-1], key_shape[-1])

    def _build_for(self, query_size: int, value_size: int, key_size: int) -> None:
        head_shape, value_shape = (self.num_heads, self.key_dim), (self.num_heads, self.value_dim)
        output_shape = self.output_shape or (query_size,)
        shapes = {
            "query": ((query_size,), head_shape),
            "key": ((key_size,), head_shape),
            "gate": ((query_size,), value_shape),
            "value": ((value_size,), value_shape),
            "attention_output": (value_shape, output_shape),
        }
        for name, (input_shape, shape) in shapes.items():
            kernel, bias = getattr(self, f"{name}_kernel"), getattr(self, f"{name}_bias")
            if kernel is not None and materialize_(kernel, (*input_shape, *shape)):
                with torch.no_grad():  # the fans are those of the matrix (inputs, outputs)
                    nn.init.xavier_uniform_(kernel.flatten(len(input_shape)).flatten(0, -2))
            if bias is not None and materialize_(bias, shape):
                nn.init.zeros_(bias)

    def forward(  # noqa: PLR0917 - the parameters of Keras
        self,
        query: Inputs,
        value: Inputs,
        key: Inputs | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Weights]:
        """Attend to `value` with `query`, with keys from `key` or else from `value`.

        Masks are True where attention is allowed: `query_mask` (B, T), `value_mask` and `key_mask`
        (B, S), `attention_mask` (B, T, S) or (B, heads, T, S). `training=None` takes the mode of
        the module. The "scores" that can be returned are the weights, (B, heads, T, S).
        """
        key = value if key is None else key
        axes = self._axes(query, value, key)
        self._build_for(query.size(-1), value.size(-1), key.size(-1))
        masks = {"query_mask": query_mask, "value_mask": value_mask, "key_mask": key_mask}
        visible = self._merge_masks(masks, attention_mask, query, value, axes)
        is_one_axis = len(axes) == 1 or not (use_causal_mask or self.sliding_window)
        message = f"attention over {len(axes)} axes has no order of positions"
        hint = "pass attention_axes with one axis, or leave out use_causal_mask and sliding_window"
        check(is_one_axis, "attention_axes", message, hint, ArgumentError)
        queries, keys, values = (
            _to_heads(self._project(name, inputs), axes)
            for name, inputs in (("query", query), ("key", key), ("value", value))
        )
        with self._mode(training):
            context, weights = attend_with_mask(
                self.attention,
                queries,
                keys,
                values,
                PairMask(visible, is_causal=use_causal_mask),
                need_weights=return_attention_scores,
            )
        context = _from_heads(context, query, axes)  # (B, ..., heads, value_dim)
        if self.gate_kernel is not None:
            context = context * self._project("gate", query).sigmoid()
        outputs = self._project("attention_output", context, num_inputs=2)
        if weights is None:
            return outputs
        lengths = [inputs.size(axis) for inputs in (query, value) for axis in axes]
        return outputs, weights.view(*weights.shape[:-2], *lengths)

    def _axes(self, query: Inputs, value: Inputs, key: Inputs) -> tuple[int, ...]:
        """Return the axes to attend over, from 1, or raise if the shapes do not fit."""
        rank = query.dim()
        axes = tuple(axis % rank for axis in self.attention_axes or range(1, rank - 1))
        others = [
            [size for axis, size in enumerate(inputs.shape[:-1]) if axis not in axes]
            for inputs in (query, value)
        ]
        is_valid = value.dim() == rank >= 3 and others[0] == others[1]
        is_valid = is_valid and value.shape[:-1] == key.shape[:-1]
        shapes = ", ".join(str(tuple(inputs.shape)) for inputs in (query, value, key))
        message = f"query, value and key have the shapes {shapes}"
        hint = "they may differ in the last axis, and the query in the axes that are attended over"
        check(is_valid, "inputs", message, hint, ArgumentError)
        return axes

    def _merge_masks(
        self,
        masks: Mapping[str, Tensor | None],
        attention_mask: Tensor | None,
        query: Inputs,
        value: Inputs,
        axes: tuple[int, ...],
    ) -> Bool[Tensor, "*#B #T #S"] | None:
        """Return where all masks are True, (B, ..., heads, T, S) or broadcast to it."""
        num_pair_dims = 2 * len(axes)
        parts = [] if attention_mask is None else [as_boolean(attention_mask, "attention_mask")]
        for name, mask in masks.items():
            if mask is not None:
                is_sequence = mask.dim() == 2 and query.dim() == 3
                message = f"has {mask.dim()} dimensions, and inputs have {query.dim()}"
                hint = "pass (B, T) with inputs (B, T, D), or an attention_mask"
                check(is_sequence, name, message, hint, ArgumentError)
                parts.append(as_boolean(mask, name).unsqueeze(-1 if name == "query_mask" else -2))
        if self.sliding_window is not None:
            lengths = [inputs.size(axes[0]) for inputs in (query, value)]
            rows, columns = (torch.arange(length, device=query.device) for length in lengths)
            parts.append((rows[:, None] - columns).abs() < self.sliding_window)
        if not parts:
            return None
        rank = query.dim() + len(axes)  # of the scores: (B, ..., heads, T ..., S ...)
        visible = torch.ones((), dtype=torch.bool, device=query.device)
        for part in parts:
            leading = (slice(None),) * (part.dim() - num_pair_dims)
            visible = visible & part[(*leading, *(None,) * (rank - part.dim()))]
        sizes = [inputs.size(axis) for inputs in (query, value) for axis in axes]
        visible = visible.expand(*visible.shape[:-num_pair_dims], *sizes)
        return visible.flatten(-len(axes)).flatten(-1 - len(axes), -2)

    def _project(self, name: str, inputs: Tensor, num_inputs: int = 1) -> Tensor:
        """Multiply the last axes with the kernel and add the bias."""
        kernel, bias = getattr(self, f"{name}_kernel"), getattr(self, f"{name}_bias")
        matrix = kernel.flatten(num_inputs).flatten(0, num_inputs - 1)  # (inputs, outputs)
        bias = None if bias is None else bias.flatten()
        outputs = linear(inputs.flatten(-num_inputs), matrix.mT, bias)
        return outputs.unflatten(-1, kernel.shape[num_inputs:])


def _to_heads(projected: Float[Tensor, "B ... H K"], axes: tuple[int, ...]) -> Tensor:
    """Return (B, other axes, heads, positions, head size); positions are the axes, flattened."""
    order = _head_order(projected.dim(), axes)
    return projected.permute(order).flatten(-1 - len(axes), -2)


def _from_heads(context: Float[Tensor, "*B T V"], query: Inputs, axes: tuple[int, ...]) -> Tensor:
    """Return contexts of heads with the axes of the query: (B, ..., heads, value size)."""
    order = _head_order(query.dim() + 1, axes)
    inverse = [order.index(axis) for axis in range(len(order))]
    return context.unflatten(-2, [query.size(axis) for axis in axes]).permute(inverse)


def _head_order(rank: int, axes: tuple[int, ...]) -> list[int]:
    others = [axis for axis in range(1, rank - 2) if axis not in axes]
    return [0, *others, rank - 2, *axes, rank - 1]


def _as_tuple(sizes: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)

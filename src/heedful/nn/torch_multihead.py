"""torch.nn's `MultiheadAttention` with any score and alignment.

Invariant: equal to `torch.nn.MultiheadAttention` in value and gradient wherever a query has a
visible key, with the same state dict.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from typing_extensions import override

from heedful.attention.scores import ScaledDotScore
from heedful.errors import ArgumentError, check
from heedful.nn.mechanism import (
    Alignment,
    PairMask,
    Score,
    attend_with_mask,
    build_mechanism,
    visible_pairs,
)
from heedful.shapes import Float


class MultiheadAttention(nn.MultiheadAttention):
    """W_o [head_1; head_2; ...], head_i = attention(W_q,i q, W_k,i k, W_v,i v), as in torch.nn.

    `score` and `alignment` replace scaled dot product and softmax by others: a config or a module.
    Their parameters, if any, are the only new keys of the state dict. Masks are those of torch:
    True where attention is not allowed, or numbers that are added to the scores.
    """

    def __init__(  # noqa: PLR0917 - the parameters of torch.nn
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Score = None,
        alignment: Alignment = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout=dropout,
            bias=bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        self.attention = build_mechanism(
            score,
            alignment,
            default_score=ScaledDotScore(),
            query_size=self.head_dim,
            num_heads=num_heads,
            dropout=dropout,
            device=device,
            dtype=dtype,
        )

    @override
    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # nn.TransformerEncoderLayer would run its own attention instead of this layer's.
        self._qkv_same_embed_dim = False

    @override
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs, and the weights before dropout or None, as torch.nn does.

        `is_causal` masks later keys, with an `attn_mask` or without one.
        """
        self._check_inputs(query, key, value)
        heads = [self._to_heads(inputs) for inputs in self._project(query, key, value)]
        queries, keys, values = heads  # (B, H, T, head_dim), (B, H, S, head_dim)
        mask = self._merge_masks(key_padding_mask, attn_mask, queries, keys, is_causal)
        if self.bias_k is not None or self.add_zero_attn:
            mask = PairMask(visible_pairs(mask, queries, keys), mask.bias)
            keys, values, mask = self._append_positions(keys, values, mask)
        context, weights = attend_with_mask(
            self.attention, queries, keys, values, mask, need_weights=need_weights
        )
        outputs = self.out_proj(context.transpose(1, 2).flatten(2))  # (B, T, E)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if query.dim() == 2:
            return outputs.squeeze(0), None if weights is None else weights.squeeze(0)
        return outputs if self.batch_first else outputs.transpose(0, 1), weights

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        is_nested = query.is_nested or key.is_nested or value.is_nested
        hint = "pass padded tensors and a key_padding_mask"
        check(not is_nested, "query", "is a nested tensor", hint, ArgumentError)
        rank, batch_dim = query.dim(), 0 if self.batch_first else 1
        shapes = [tuple(inputs.shape) for inputs in (query, key, value)]
        sizes = (self.embed_dim, self.kdim, self.vdim)
        is_valid = rank in {2, 3} and tuple(shape[-1] for shape in shapes) == sizes
        is_valid = is_valid and key.dim() == rank and shapes[1][:-1] == shapes[2][:-1]
        if is_valid and rank == 3:
            is_valid = query.size(batch_dim) == key.size(batch_dim)
        layout = "(batch, positions, size)" if self.batch_first else "(positions, batch, size)"
        message = f"query, key and value have the shapes {', '.join(map(str, shapes))}"
        hint = f"pass {layout} or (positions, size), of the sizes {', '.join(map(str, sizes))}"
        check(is_valid, "query", message, hint, ArgumentError)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Apply the input projections; one matrix product if all inputs are the same tensor."""
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        else:
            matrices = self.in_proj_weight.chunk(3)
        parts = zip((query, key, value), matrices, biases, strict=True)
        return tuple(linear(*part) for part in parts)

    def _to_heads(self, projected: Tensor) -> Float[Tensor, "B H N K"]:
        if projected.dim() == 2:
            projected = projected.unsqueeze(0)
        elif not self.batch_first:
            projected = projected.transpose(0, 1)
        return projected.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _merge_masks(
        self,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        queries: Float[Tensor, "B H T K"],
        keys: Float[Tensor, "B H S K"],
        is_causal: bool,
    ) -> PairMask:
        batch, num_keys, num_queries = queries.size(0), keys.size(2), queries.size(2)
        pairs = PairMask(is_causal=is_causal)
        if key_padding_mask is not None:
            shape = tuple(key_padding_mask.shape)
            _check_shape(
                "key_padding_mask", shape, [(batch, num_keys), (num_keys,)][: 1 + (batch == 1)]
            )
            pairs = _add_mask(pairs, key_padding_mask.view(batch, 1, 1, num_keys), queries.dtype)
        if attn_mask is not None:
            size = (num_queries, num_keys)
            _check_shape(
                "attn_mask", tuple(attn_mask.shape), [size, (batch * self.num_heads, *size)]
            )
            heads = self.num_heads if attn_mask.dim() == 3 else 1
            pairs = _add_mask(pairs, attn_mask.view(-1, heads, *size), queries.dtype)
        return pairs

    def _append_positions(
        self, keys: Float[Tensor, "B H S K"], values: Float[Tensor, "B H S K"], mask: PairMask
    ) -> tuple[Tensor, Tensor, PairMask]:
        """Append the learned key and value, and those of zeros, which every query sees."""
        for is_added, parameters in (
            (self.bias_k is not None, (self.bias_k, self.bias_v)),
            (self.add_zero_attn, (None, None)),
        ):
            if is_added:
                keys, values = (
                    _append(heads, parameter)
                    for heads, parameter in zip((keys, values), parameters, strict=True)
                )
                visible, bias = mask.visible, mask.bias
                mask = PairMask(
                    None if visible is None else pad(visible, (0, 1), value=True),
                    None if bias is None else pad(bias, (0, 1)),
                )
        return keys, values, mask


def _append(heads: Float[Tensor, "B H S K"], parameter: Tensor | None) -> Tensor:
    batch, num_heads, _, head_dim = heads.shape
    if parameter is None:
        return pad(heads, (0, 0, 0, 1))
    return torch.cat(
        [heads, parameter.view(1, num_heads, 1, head_dim).expand(batch, -1, -1, -1)], 2
    )


def _check_shape(name: str, shape: tuple[int, ...], allowed: Sequence[tuple[int, ...]]) -> None:
    message = f"has the shape {shape}, but must have {' or '.join(map(str, allowed))}"
    check(shape in allowed, name, message, "see the shapes of query and key", ArgumentError)


def _add_mask(pairs: PairMask, mask: Tensor, dtype: torch.dtype) -> PairMask:
    """Add one of torch's masks: True where attention is not allowed, or summands of the scores."""
    is_valid = mask.dtype == torch.bool or mask.is_floating_point()
    message, hint = f"has dtype {mask.dtype}", "pass a Boolean or a floating-point mask"
    check(is_valid, "mask", message, hint, ArgumentError)
    bias = pairs.bias
    if mask.is_floating_point():
        hidden = mask == -torch.inf
        summand = mask.masked_fill(hidden, 0).to(dtype)
        bias = summand if bias is None else bias + summand
    else:
        hidden = mask
    visible = ~hidden if pairs.visible is None else pairs.visible & ~hidden
    return pairs._replace(visible=visible, bias=bias)

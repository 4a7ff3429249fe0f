"""The mechanism inside the layers: a score and an alignment as arguments, and one attention call.

Invariant: with and without weights, the context is the same up to rounding, and a query whose keys
are all masked has the context zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention.alignments import AlignmentFunction, SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.config import AlignmentConfig, ScoreConfig
from heedful.attention.masks import broadcast_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScoreFunction
from heedful.errors import ArgumentError, check
from heedful.shapes import Bool, Context, Float, Keys, Queries, Values, Weights

Score: TypeAlias = ScoreConfig | ScoreFunction | None
"""A config, a module, or None for the score of the layer that is imitated."""
Alignment: TypeAlias = AlignmentConfig | AlignmentFunction | None
"""A config, a module, or None for softmax."""


class PairMask(NamedTuple):
    """Mask and bias of pairs of queries and keys; each part broadcasts to (*B, T, S)."""

    visible: Bool[Tensor, "*#B #T #S"] | None = None
    """True where a query may attend."""
    bias: Float[Tensor, "*#B #T #S"] | None = None
    """A summand of the scores."""
    is_causal: bool = False
    """Whether keys behind the position of the query are masked, too."""


def build_mechanism(
    score: Score,
    alignment: Alignment,
    *,
    default_score: ScoreFunction,
    query_size: int | None = None,
    key_size: int | None = None,
    num_heads: int | None = None,
    dropout: float = 0.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> SingleHeadAttention:
    """Build attention from a score and an alignment, each a config, a module or None."""
    hint = "choose a number from 0 to 1"
    check(0 <= dropout <= 1, "dropout", f"is {dropout}", hint, ArgumentError)
    if score is None:
        score = default_score
    elif not isinstance(score, ScoreFunction):
        size = _check_size(score, query_size)
        score = score.build(query_size=size, key_size=key_size or size, num_heads=num_heads)
    if alignment is None:
        alignment = SoftmaxAlignment()
    elif not isinstance(alignment, AlignmentFunction):
        alignment = alignment.build(query_size=_check_size(alignment, query_size))
    assert isinstance(alignment, AlignmentFunction), alignment
    message = "learns from the likelihood of target tokens, which a layer does not see"
    hint = "choose 'gumbel-softmax' or 'straight-through'"
    check(not alignment.has_auxiliary_losses, "alignment", message, hint, ArgumentError)
    attention = SingleHeadAttention(score, alignment, WeightedSumReadout(), dropout=dropout)
    return attention.to(device=device, dtype=dtype)


def _check_size(config: Any, query_size: int | None) -> int:
    message = f"is needed to build the parameters of {config.type!r}"
    hint = "pass query_size, and key_size if keys have another size; or pass a module"
    if query_size is None:
        raise ArgumentError("query_size", message, hint)
    return query_size


def attend_with_mask(
    attention: SingleHeadAttention,
    queries: Queries,
    keys: Keys,
    values: Values,
    mask: PairMask,
    *,
    need_weights: bool,
) -> tuple[Context, Weights | None]:
    """Return the context of each query, and the weights before dropout if they are needed."""
    if attention.is_softmax_attention and not need_weights:
        return _fused_context(attention, queries, keys, values, mask), None
    memory = attention.build_memory(values, visible_pairs(mask, queries, keys), keys=keys)
    if mask.bias is None:
        output = attention(queries, memory)
        return output.context, output.weights if need_weights else None
    hint = "pass a Boolean mask, or a score without features"
    message = "numbers cannot be added to a score that depends on earlier queries"
    check(not attention.score.uses_history, "mask", message, hint, ArgumentError)
    scores = attention.score(queries, memory.keys) + mask.bias
    weights = attention.alignment_function(scores, memory.mask, queries).weights
    context = attention.readout(attention.dropout(weights), memory.values, queries)
    return context, weights if need_weights else None


def _fused_context(
    attention: SingleHeadAttention, queries: Queries, keys: Keys, values: Values, mask: PairMask
) -> Context:
    """Compute softmax attention by a fused kernel, which never holds the weights."""
    assert isinstance(attention.alignment_function, SoftmaxAlignment), attention
    is_only_causal = mask.is_causal and mask.visible is None and mask.bias is None
    visible = None if is_only_causal else visible_pairs(mask, queries, keys)
    memory = attention.build_memory(values, visible, keys=keys)
    pair_mask = mask.bias if visible is None else memory.mask
    if mask.bias is not None and visible is not None:
        pair_mask = mask.bias.masked_fill(~visible, -torch.inf)
    context = scaled_dot_product_attention(
        queries,
        memory.keys,
        values,
        attn_mask=pair_mask,
        dropout_p=attention.dropout.p if attention.training else 0.0,
        is_causal=is_only_causal,
        scale=1 / attention.alignment_function.temperature,
    )
    return context if visible is None else context.masked_fill(~visible.any(-1, keepdim=True), 0)


def visible_pairs(mask: PairMask, queries: Queries, keys: Keys) -> Bool[Tensor, "*#B #T S"] | None:
    """Return the mask of visible pairs with as many dimensions as the scores; None masks none."""
    visible, num_queries, num_keys = mask.visible, queries.size(-2), keys.size(-2)
    if mask.is_causal:
        pairs = torch.ones(num_queries, num_keys, dtype=torch.bool, device=queries.device).tril()
        pairs = pairs[(None,) * (queries.dim() - 2)]
        visible = pairs if visible is None else visible & pairs
    if visible is None:
        return None
    visible = visible.expand(*visible.shape[:-1], num_keys)
    return broadcast_mask(visible, queries.shape[:-2], num_keys, num_queries)


def as_boolean(mask: Tensor, name: str) -> Bool[Tensor, "..."]:
    """Return a mask of Booleans or of integers as Booleans, or raise ArgumentError."""
    message = f"has dtype {mask.dtype}, but must be Boolean or integer, true where attention is"
    hint = "pass mask == 0 for summands (0 and -inf), mask != 0 for factors"
    check(not mask.is_floating_point(), name, f"{message} allowed", hint, ArgumentError)
    return mask.bool()


@contextmanager
def training_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Run a block in training mode or in inference mode."""
    before = module.training
    module.train(training)
    try:
        yield
    finally:
        module.train(before)

"""Rules: which form of a computation is used, given what its inputs are?

Law: all forms of one computation agree in value and in gradient, so a rule decides time and
memory, never results. No model and no configuration names a form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from heedful.attention.alignments import Alignment, Softmax
from heedful.attention.fused.chunked import chunked_additive
from heedful.attention.fused.dot_product import dot_product_context
from heedful.attention.products import BilinearScore, DotScore, ScaledDotScore
from heedful.attention.readouts import Expectation, Readout
from heedful.attention.scores import Score
from heedful.shapes import Float

# Measured on two cores, A=256, forward and backward: with 16 queries a row chunks are faster from
# 2**19 elements on; with one query, where the hidden layer is no larger than the keys, recomputing
# costs up to twice the time at 2**20, 1.4 times at 2**22 and nothing from 2**23 on. Between them
# lies 2**22: 16 MiB in single precision.
PLAIN_ELEMENTS = 2**22

# Those whose score is the inner product of the query with the prepared key, and nothing more.
INNER_PRODUCTS = (DotScore, ScaledDotScore, BilinearScore)

AdditiveForm = Callable[[Tensor, Tensor, Tensor], Tensor]
ContextForm = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def context_form(score: Score, align: Alignment, read: Readout) -> ContextForm | None:
    """The form that takes a context and makes no weights; None where there is no such form."""
    # The very types: a subclass may score, share or take otherwise.
    if type(score) in INNER_PRODUCTS and type(align) is Softmax and type(read) is Expectation:
        return partial(dot_product_context, temperature=align.temperature)
    return None


def additive(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), in the form that suits the inputs."""
    return additive_form(queries, keys)(queries, keys, vector)


def additive_form(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"]
) -> AdditiveForm:
    """The first form that applies."""
    return next(form for applies, form in ADDITIVE_FORMS if applies(queries, keys))


def plain_additive(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), as it is written."""
    hidden = queries.unsqueeze(-2) + keys.unsqueeze(-3)  # (*B, T, S, A)
    return hidden.tanh_() @ vector


def _is_small(queries: Tensor, keys: Tensor) -> bool:
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    return math.prod((*leading, *queries.shape[-2:], keys.size(-2))) <= PLAIN_ELEMENTS


def _always(queries: Tensor, keys: Tensor) -> bool:
    return True


ADDITIVE_FORMS: tuple[tuple[Callable[[Tensor, Tensor], bool], AdditiveForm], ...] = (
    (_is_small, plain_additive),
    (_always, chunked_additive),
)

"""Keras's `Attention` and `AdditiveAttention`: one head, without projections.

Invariant: equal to Keras in value and gradient wherever a query has a visible key.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from typing_extensions import override

from heedful.attention.additive_scores import additive_score
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.memory import AttentionState
from heedful.attention.scores import ContentScore, DotScore
from heedful.errors import ArgumentError, check, check_choice
from heedful.nn.mechanism import (
    Alignment,
    PairMask,
    Score,
    as_boolean,
    attend_with_mask,
    build_mechanism,
    training_mode,
)
from heedful.shapes import Context, Keys, Queries, Scores, Values, Weights

Shape = Sequence[int]


class LazyParameters(nn.Module):
    """A module whose parameters without sizes get them from a state dict that is loaded."""

    @override
    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None and prefix + name in state_dict:
                materialize_(parameter, state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class KerasLayer(LazyParameters):
    """A layer whose parameters may get their sizes from the first call or from a state dict.

    Until then they are `UninitializedParameter`s, as in torch's lazy modules: an optimizer may hold
    them already.
    """

    attention: SingleHeadAttention

    @property
    def is_built(self) -> bool:
        """Whether all parameters have their sizes."""
        return not any(isinstance(item, UninitializedParameter) for item in self.parameters())

    def get_weights(self) -> list[NDArray[Any]]:
        """Return the parameters as arrays, in the order and the shapes of Keras."""
        self._check_built()
        return [parameter.detach().cpu().numpy() for parameter in self.parameters()]

    def set_weights(self, weights: Sequence[NDArray[Any]]) -> None:
        """Set the parameters from arrays in the order and the shapes of Keras."""
        self._check_built()
        parameters = list(self.parameters())
        expected = [tuple(parameter.shape) for parameter in parameters]
        actual = [np.shape(array) for array in weights]
        message = f"have the shapes {actual}, but must have {expected}"
        hint = "pass get_weights() of a Keras layer with the same options"
        check(actual == expected, "weights", message, hint, ArgumentError)
        with torch.no_grad():
            for parameter, array in zip(parameters, weights, strict=True):
                parameter.copy_(torch.as_tensor(array))

    def _check_built(self) -> None:
        hint = "call the layer or its method build once, or pass query_size to the constructor"
        check(self.is_built, type(self).__name__, "has no sizes yet", hint, ArgumentError)

    def _mode(self, training: bool | None) -> AbstractContextManager[None]:
        return nullcontext() if training is None else training_mode(self.attention, training)


def unsized_parameter(device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Parameter:
    """Return a parameter that gets its shape from `materialize_`."""
    return cast(nn.Parameter, UninitializedParameter(device=device, dtype=dtype))  # type: ignore[call-arg]


def materialize_(parameter: Tensor, shape: Shape) -> bool:
    """Give a parameter its shape if it has none yet, and return whether it had none."""
    if not isinstance(parameter, UninitializedParameter):
        return False
    parameter.materialize(tuple(shape))
    return True


ScoreMode = Literal["dot", "concat"]


class TanhSumScore(ContentScore, LazyParameters):
    """sum_i v_i tanh(q_i + k_i), where v is a vector, one number for all i, or 1.

    The additive score without its matrices, which Keras has; `AdditiveScore` has them.
    """

    def __init__(self, vector: nn.Parameter | None) -> None:
        super().__init__()
        self.vector = vector

    @override
    def forward(self, queries: Queries, keys: Keys, state: AttentionState | None = None) -> Scores:
        size = queries.size(-1)
        vector = queries.new_ones(size) if self.vector is None else self.vector.expand(size)
        return additive_score(queries, keys, vector)


class SingleHeadLayer(KerasLayer):
    """Base of Keras's two layers: inputs and masks as lists, and the outputs."""

    def forward(
        self,
        inputs: Sequence[Tensor],
        mask: Sequence[Tensor | None] | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Context | tuple[Context, Weights]:
        """Attend with `inputs` = [query, value] or [query, value, key].

        `mask` = [query mask, value mask], (B, T) and (B, S), is True where something is: the output
        of other queries is zero, and other values are not attended to. `training=None` takes the
        mode of the module. The "scores" that can be returned are the weights, after softmax.
        """
        query, value, key = _unpack_inputs(inputs)
        query_mask, value_mask = _unpack_mask(mask)
        self._build_for(query.size(-1))
        queries, keys = self._scale_inputs(query, key)
        if value_mask is not None and value_mask.dim() < query.dim():
            value_mask = value_mask.unsqueeze(-2)  # (*B, 1, S): the same for all queries
        pair_mask = PairMask(value_mask, is_causal=use_causal_mask)
        with self._mode(training):
            context, weights = attend_with_mask(
                self.attention,
                queries,
                keys,
                value,
                pair_mask,
                need_weights=return_attention_scores,
            )
        if query_mask is not None:
            context = context.masked_fill(~query_mask.unsqueeze(-1), 0)
        return context if weights is None else (context, weights)

    def build(self, input_shape: Sequence[Shape]) -> None:
        """Create the parameters for [query shape, value shape]; the first call also does it."""
        self._build_for(input_shape[0][-1])

    def _build_for(self, query_size: int) -> None:
        """Give parameters without sizes their sizes."""

    def _scale_inputs(self, query: Queries, key: Keys) -> tuple[Queries, Keys]:
        return query, key


class Attention(SingleHeadLayer):
    """softmax(score(q, k)) v, with the score q . k or sum_i tanh(q_i + k_i), as Keras's layer.

    `use_scale` learns one factor: of the scores in the mode "dot", of queries and keys inside tanh
    in the mode "concat". `score` and `alignment` replace score and softmax by others: a config,
    which needs the sizes, or a module.
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: ScoreMode = "dot",
        dropout: float = 0.0,
        *,
        score: Score = None,
        alignment: Alignment = None,
        query_size: int | None = None,
        key_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice(
            score_mode, ("concat", "dot"), "score mode", location="score_mode", error=ArgumentError
        )
        is_default = score_mode == "dot" and not use_scale
        hint = "leave out score_mode and use_scale, or score"
        message = "replaces the score, but score_mode or use_scale is set"
        check(score is None or is_default, "score", message, hint, ArgumentError)
        self.use_scale, self.score_mode = use_scale, score_mode
        one = torch.ones((), device=device, dtype=dtype)
        self.scale = nn.Parameter(one.clone()) if use_scale else None
        default = DotScore() if score_mode == "dot" else TanhSumScore(nn.Parameter(one))
        self.attention = build_mechanism(
            score,
            alignment,
            default_score=default,
            query_size=query_size,
            key_size=key_size,
            dropout=dropout,
            device=device,
            dtype=dtype,
        )

    @override
    def _scale_inputs(self, query: Queries, key: Keys) -> tuple[Queries, Keys]:
        if self.scale is None:
            return query, key
        return query * self.scale, key if self.score_mode == "dot" else key * self.scale


class AdditiveAttention(SingleHeadLayer):
    """softmax(sum_i v_i tanh(q_i + k_i)) v, as Keras's layer: Bahdanau's score without matrices.

    v is learned with `use_scale`, else 1. With the matrices it is
    `Attention(score=AdditiveScoreConfig())`.
    """

    def __init__(
        self,
        use_scale: bool = True,
        dropout: float = 0.0,
        *,
        alignment: Alignment = None,
        query_size: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.use_scale = use_scale
        vector = unsized_parameter(device, dtype) if use_scale else None
        self.attention = build_mechanism(
            None,
            alignment,
            default_score=TanhSumScore(vector),
            query_size=query_size,
            dropout=dropout,
        )
        if query_size is not None:
            self._build_for(query_size)

    @property
    def scale(self) -> Tensor | None:
        """The vector v, or None if it is 1."""
        score = self.attention.score
        assert isinstance(score, TanhSumScore), score
        return score.vector

    @override
    def _build_for(self, query_size: int) -> None:
        if self.scale is not None and materialize_(self.scale, (query_size,)):
            nn.init.uniform_(self.scale, -math.sqrt(3 / query_size), math.sqrt(3 / query_size))


def _unpack_inputs(inputs: Sequence[Tensor]) -> tuple[Queries, Values, Keys]:
    is_list = isinstance(inputs, list | tuple) and len(inputs) in {2, 3}
    message = f"must be [query, value] or [query, value, key], but is {_describe(inputs)}"
    check(is_list, "inputs", message, "pass a list of two or three tensors", ArgumentError)
    query, value, *rest = inputs
    return query, value, rest[0] if rest else value


def _unpack_mask(mask: Sequence[Tensor | None] | None) -> tuple[Tensor | None, Tensor | None]:
    if mask is None:
        return None, None
    is_list = isinstance(mask, list | tuple) and len(mask) in {2, 3}
    message = f"must be [query mask, value mask], but is {_describe(mask)}"
    hint = "pass a list of two masks; None masks nothing"
    check(is_list, "mask", message, hint, ArgumentError)
    names = ("query mask", "value mask")
    query_mask, value_mask = (
        None if item is None else as_boolean(item, name)
        for name, item in zip(names, mask[:2], strict=True)
    )
    return query_mask, value_mask


def _describe(argument: object) -> str:
    if isinstance(argument, list | tuple):
        return f"a {type(argument).__name__} of {len(argument)}"
    return f"a {type(argument).__name__}"

"""One decoding step of standard Transformer layers, with one back end for CPUs and one for GPUs.

A step reads one position of each row, right behind the cached ones. What both back ends have in
common is here: which layers are standard, when a replacement may run, and the walk over the layers,
in which a residual sum comes with the norm that follows it. A `StepEngine` says how weights are
stored and which kernels run, its `StepCaches` how memories and caches are held. Invariant: a step
matches the plain layers up to rounding.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import Attention
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore, ScaledDotScore
from heedful.layers.self_attention import FullSelfAttention, KVCache, SelfAttentionCache
from heedful.layers.sublayers import CrossAttention, FeedForward, SublayerConnection
from heedful.layers.transformer import (
    TransformerLayer,
    TransformerLayerState,
    TransformerStack,
    TransformerStackState,
)
from heedful.models.output_heads import SoftmaxHead
from heedful.models.transformer import TransformerDecoder
from heedful.shapes import Float, Int

RowVectors = Float[Tensor, "R D"]
Projection = Callable[[RowVectors], RowVectors]


def has_standard_layers(stack: TransformerStack) -> bool:
    """Whether all layers are full multi-head softmax attention and ungated feed-forward."""
    return not stack.has_alignment_heads and all(map(_is_standard_layer, stack.layers))


def can_share_caches(decoder: TransformerDecoder) -> bool:
    """Whether a decoder has standard layers and a softmax head."""
    return has_standard_layers(decoder.stack) and type(decoder.output_head) is SoftmaxHead


def _is_standard_layer(layer: nn.Module) -> bool:
    # Exact types: a subclass may compute something else.
    if type(layer) is not TransformerLayer or type(layer.feed_forward) is not FeedForward:
        return False
    connections = [layer.self_attention_residual, layer.feed_forward_residual]
    attentions = [layer.self_attention.attention]
    if layer.cross_attention is not None:
        if type(layer.cross_attention) is not CrossAttention:
            return False
        connections.append(layer.cross_attention.residual)
        attentions.append(layer.cross_attention.attention)
    return (
        type(layer.self_attention) is FullSelfAttention
        and layer.feed_forward.gate is None
        and all(type(connection) is SublayerConnection for connection in connections)
        and all(map(_is_standard_attention, attentions))
    )


def _is_standard_attention(attention: Attention) -> bool:
    return (
        type(attention) is MultiHeadAttention
        and attention.num_kv_heads == attention.num_heads
        and type(attention.score) in {DotScore, ScaledDotScore}
        and type(attention.alignment_function) is SoftmaxAlignment
        and type(attention.readout) is WeightedSumReadout
        and not attention.has_auxiliary_losses
    )


def multi_head_and_temperature(attention: Attention) -> tuple[MultiHeadAttention, float]:
    """Return a standard attention as its class, and the temperature of its softmax."""
    assert isinstance(attention, MultiHeadAttention), type(attention)
    assert isinstance(attention.alignment_function, SoftmaxAlignment), attention
    return attention, attention.alignment_function.temperature


def build_stack_state(
    kv_caches: Sequence[KVCache | None], start_positions: Int[Tensor, "B"]
) -> TransformerStackState:
    """Return the state of a plain stack with these caches."""
    layers = (TransformerLayerState(SelfAttentionCache(cache)) for cache in kv_caches)
    return TransformerStackState(tuple(layers), start_positions)


class InferenceModule:
    """Mixin of replacements that compute something once from parameters that stay constant."""

    derived: ClassVar[tuple[str, ...]]
    """Attributes that depend on parameters; a copy of the module computes its own."""
    _hooks: Sequence[Mapping[int, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        left_out = {*self.derived, "_hooks"}
        return {key: value for key, value in vars(self).items() if key not in left_out}

    def is_inference(self, device_type: str) -> bool:
        """Whether no gradient, no autocast and no forward hook needs the plain module."""
        assert isinstance(self, nn.Module)
        if self.training or torch.is_grad_enabled() or torch.is_autocast_enabled(device_type):
            return False
        if self._hooks is None:
            modules = list(self.modules())
            self._hooks = [module._forward_hooks for module in modules]
            self._hooks += [module._forward_pre_hooks for module in modules]
        return not any(self._hooks)


class StepAttention(NamedTuple):
    """Multi-head softmax attention of one position, with one projection of its inputs."""

    input_projection: Projection  # queries; in self-attention, keys and values behind them
    output_projection: Any  # as the engine packs it
    norm: Any  # what follows the residual sum, as the engine packs it
    num_heads: int
    scale: float  # of the products of projected queries and keys; 1 if the projection contains it


class StepFeedForward(NamedTuple):
    """A feed-forward sublayer of one position."""

    input_projection: Any
    activation: nn.Module
    output_projection: Any
    norm: Any


class StepLayer(NamedTuple):
    """A Transformer layer of one position."""

    self_attention: StepAttention
    cross_attention: StepAttention | None
    feed_forward: StepFeedForward


class StepCaches(ABC):
    """Memories and caches of all layers during a step."""

    @abstractmethod
    def attend_to_cache(
        self, index: int, attention: StepAttention, projected: RowVectors
    ) -> tuple[RowVectors, Tensor | None]:
        """Append keys and values of layer `index`; return contexts and weights (..., heads, S)."""

    @abstractmethod
    def attend_to_memory(
        self, index: int, attention: StepAttention, queries: RowVectors, *, need_weights: bool
    ) -> tuple[RowVectors, Tensor | None]:
        """Attend to the source in layer `index`; return contexts, and weights if needed."""


class StepEngine(ABC):
    """The layers of a stack, packed for steps."""

    def __init__(self, stack: TransformerStack) -> None:
        connections = [part for layer in stack.layers for part in _connections(layer)]
        norms = [connection.norm for connection in connections]
        self.is_pre_norm = connections[0].norm_order == "pre"
        # With pre-norm, the norm that follows a sum is that of the next sublayer.
        ordered = [*norms, stack.norm] if self.is_pre_norm else [None, *norms]
        packed = (None if norm is None else self.pack_norm(norm) for norm in ordered)
        self.first_norm = next(packed)
        self.layers = [self._pack_layer(layer, packed) for layer in stack.layers]

    def _pack_layer(self, layer: TransformerLayer, norms: Any) -> StepLayer:
        feed_forward, sublayer, cross_attention = layer.feed_forward, layer.cross_attention, None
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        attention = self._pack_attention(layer.self_attention.attention, next(norms), is_self=True)
        if sublayer is not None:
            cross_attention = self._pack_attention(sublayer.attention, next(norms), is_self=False)
        return StepLayer(
            attention,
            cross_attention,
            StepFeedForward(
                self.pack(feed_forward.input_projection),
                feed_forward.activation,
                self.pack(feed_forward.output_projection),
                next(norms),
            ),
        )

    def _pack_attention(self, attention: Attention, norm: Any, *, is_self: bool) -> StepAttention:
        heads, temperature = multi_head_and_temperature(attention)
        projection, scale = self.join_projections(heads, temperature, is_self_attention=is_self)
        output_projection = self.pack(heads.output_projection)
        return StepAttention(projection, output_projection, norm, heads.num_heads, scale)

    def pack_norm(self, norm: nn.Module) -> Any:
        """Return a norm as `connect` uses it."""
        return norm

    @abstractmethod
    def pack(self, linear: nn.Linear) -> Any:
        """Return a linear map as `activate` and `connect` use it."""

    @abstractmethod
    def join_projections(
        self, heads: MultiHeadAttention, temperature: float, *, is_self_attention: bool
    ) -> tuple[Projection, float]:
        """Return the projection of queries, in self-attention of keys and values too; a scale."""

    @abstractmethod
    def activate(self, feed_forward: StepFeedForward, inputs: RowVectors) -> RowVectors:
        """Return the hidden layer of a feed-forward sublayer."""

    @abstractmethod
    def connect(
        self, stream: RowVectors, projection: Any, hidden: RowVectors | None, norm: Any
    ) -> tuple[RowVectors, RowVectors]:
        """Add the projection of a hidden layer, if any, to the stream; return it and its norm."""

    def run(
        self, inputs: RowVectors, caches: StepCaches
    ) -> tuple[RowVectors, Float[Tensor, "*R H S"] | None]:
        """Run all layers and the final norm; return outputs and weights of the last attention."""
        weights: Tensor | None = None
        stream, inputs = self._select(self.connect(inputs, None, None, self.first_norm))
        for index, (attention, cross_attention, feed_forward) in enumerate(self.layers):
            projected = attention.input_projection(inputs)
            hidden, weights = caches.attend_to_cache(index, attention, projected)
            stream, inputs = self._add_residual(stream, attention, hidden)
            if cross_attention is not None:
                queries = cross_attention.input_projection(inputs)
                is_last = index == len(self.layers) - 1
                hidden, weights = caches.attend_to_memory(
                    index, cross_attention, queries, need_weights=is_last
                )
                stream, inputs = self._add_residual(stream, cross_attention, hidden)
            hidden = self.activate(feed_forward, inputs)
            stream, inputs = self._add_residual(stream, feed_forward, hidden)
        return inputs, weights

    def _add_residual(
        self, stream: RowVectors, sublayer: StepAttention | StepFeedForward, hidden: RowVectors
    ) -> tuple[RowVectors, RowVectors]:
        """Return the residual stream after a sublayer, and the input of the next one."""
        return self._select(self.connect(stream, sublayer.output_projection, hidden, sublayer.norm))

    def _select(self, sums_and_outputs: tuple[Tensor, Tensor]) -> tuple[RowVectors, RowVectors]:
        """With post-norm the residual stream is the normalized sum; with pre-norm it is the sum."""
        sums, outputs = sums_and_outputs
        return (sums if self.is_pre_norm else outputs), outputs


def _connections(layer: TransformerLayer) -> list[SublayerConnection]:
    cross_attention = [] if layer.cross_attention is None else [layer.cross_attention.residual]
    return [layer.self_attention_residual, *cross_attention, layer.feed_forward_residual]

"""Replacements of Transformer stacks and decoders for inference.

`PackedTransformerStack` reads whole sequences without their padding and single positions with
packed weights; `PackedTransformerDecoder` adds caches that the hypotheses of a sentence share. Both
are for standard layers on a CPU. Other stacks only keep their memories contiguous.

Invariant: outputs, weights and states are those of the plain modules, but for rounding and
padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from heedful.acceleration.beam_cache import BeamSharedState
from heedful.acceleration.packed_layers import (
    PackedLayer,
    multi_head_and_temperature,
    packed_step,
)
from heedful.acceleration.packed_linear import activate_inplace, can_pack
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.dot_product_scores import DotScore, ScaledDotScore
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.outputs import Memory
from heedful.attention.readouts import WeightedSumReadout
from heedful.layers.feed_forward import FeedForward
from heedful.layers.self_attention import FullSelfAttention, SelfAttentionCache
from heedful.layers.transformer import (
    CrossAttention,
    SublayerConnection,
    TransformerLayer,
    TransformerLayerState,
    TransformerStack,
    TransformerStackOutput,
    TransformerStackState,
)
from heedful.models.base import EncoderOutput
from heedful.models.output_heads import SoftmaxHead
from heedful.models.transformer import TransformerDecoder, TransformerDecoderState
from heedful.pytree import map_tensors
from heedful.search.protocol import StepOutput
from heedful.shapes import Bool, Float, Int, Lengths


def has_standard_layers(stack: TransformerStack) -> bool:
    """Whether all layers are full multi-head softmax attention and ungated feed-forward."""
    return all(map(_is_standard_layer, stack.layers))


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


class ContiguousMemoryStack(TransformerStack):
    """A stack whose memories are contiguous: each step would copy the views of the heads again."""

    @override
    def build_memory(
        self,
        states: Float[Tensor, "B S V"],
        mask: Bool[Tensor, "B 1 S"],
        keys: Float[Tensor, "B S V"] | None = None,
    ) -> tuple[Memory, ...]:
        memories = super().build_memory(states, mask, keys)
        return memories if self.training else map_tensors(Tensor.contiguous, memories)


class PackedTransformerStack(ContiguousMemoryStack):
    """A stack of standard layers that skips padding and packs weights for single positions."""

    _packed: Sequence[PackedLayer] | None = None
    _hooks: Sequence[Mapping[int, Any]] | None = None

    def packed_layers(self, inputs: Tensor) -> Sequence[PackedLayer] | None:
        """Return the packed layers, or None where the plain ones must run."""
        if self.training or not can_pack(inputs) or self._has_forward_hooks:
            return None
        if self._packed is None:
            self._packed = [PackedLayer.from_layer(layer) for layer in self._layers]
        return self._packed

    @property
    def _has_forward_hooks(self) -> bool:
        if self._hooks is None:
            self._hooks = [
                hooks
                for module in self.modules()
                for hooks in (module._forward_hooks, module._forward_pre_hooks)
            ]
        return any(self._hooks)

    def _skips_padding(self, inputs: Tensor) -> bool:
        return (
            inputs.device.type == "cpu"
            and not self.training
            and not torch.is_grad_enabled()
            and not self._has_forward_hooks
        )

    @override
    def build_memory(
        self,
        states: Float[Tensor, "B S V"],
        mask: Bool[Tensor, "B 1 S"],
        keys: Float[Tensor, "B S V"] | None = None,
    ) -> tuple[Memory, ...]:
        if keys is not None or not self._skips_padding(states):
            return super().build_memory(states, mask, keys)
        return build_memories_unpadded(self._layers, states, mask.squeeze(1))

    @override
    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Lengths
    ) -> tuple[Float[Tensor, "B S D"], Mapping[str, Float[Tensor, ""]]]:
        if not self._skips_padding(inputs):
            return super().forward_bidirectional(inputs, lengths)
        positions = torch.arange(inputs.size(1), device=inputs.device)
        outputs = encode_unpadded(self._layers, inputs, positions < lengths.unsqueeze(1))
        return self.apply_final_norm(outputs), NO_AUXILIARY_LOSSES

    @override
    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        lengths: Lengths,
        state: TransformerStackState,
        memories: Sequence[Memory] = (),
        *,
        need_weights: bool = False,
    ) -> TransformerStackOutput:
        layers = self.packed_layers(inputs) if inputs.size(1) == 1 else None
        if layers is None or not _continues_cache(state):
            return super().forward(inputs, lengths, state, memories, need_weights=need_weights)
        kv_caches = [layer.cache.kv_cache for layer in state.layers]
        output = packed_step(
            layers, inputs.squeeze(1), kv_caches, memories, need_weights=need_weights
        )
        layer_states = tuple(
            TransformerLayerState(SelfAttentionCache(cache)) for cache in output.kv_caches
        )
        return TransformerStackOutput(
            self.apply_final_norm(output.outputs),
            output.weights,
            (),
            NO_AUXILIARY_LOSSES,
            TransformerStackState(layer_states, state.start_positions + lengths),
        )


def _continues_cache(state: TransformerStackState) -> bool:
    """Whether the next position of every row is right behind the cache."""
    kv_cache = state.layers[0].cache.kv_cache
    num_cached = 0 if kv_cache is None else kv_cache.values.size(-2)
    return bool((state.start_positions == num_cached).all())


def can_share_caches(decoder: TransformerDecoder) -> bool:
    """Whether a decoder has standard layers, and an output head that does not read the memory."""
    return has_standard_layers(decoder.stack) and type(decoder.output_head) is SoftmaxHead


class PackedTransformerDecoder(TransformerDecoder):
    """A decoder whose hypotheses share the caches of their sentence."""

    stack: PackedTransformerStack

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        state = super().initial_state(encoder_output)
        if self.stack.packed_layers(encoder_output.states) is None:
            return state
        return BeamSharedState.from_memories(state.memories, state.stack_state.start_positions)

    @override
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        if not isinstance(state, BeamSharedState):
            return super().step(tokens, state)
        layers = self.stack.packed_layers(tokens)
        if layers is None:
            return super().step(tokens, _per_row_state(state))
        return self._step_shared(tokens, state.regroup(), layers)

    def _step_shared(
        self, tokens: Int[Tensor, "B"], state: BeamSharedState, layers: Sequence[PackedLayer]
    ) -> StepOutput[BeamSharedState]:
        memories, kv_caches = state.caches
        visible = state.next_visible()
        output = packed_step(
            layers,
            self.embedding(tokens.unsqueeze(1), state.start_positions).squeeze(1),
            kv_caches or [None] * len(memories),
            memories,
            visible=visible,
            need_weights=True,
        )
        assert output.weights is not None
        features = self.stack.apply_final_norm(output.outputs)
        log_probs = self.output_head(features, output.weights, memories[-1])
        next_state = state.advance(tuple(output.kv_caches), visible)
        return StepOutput(log_probs.squeeze(1), next_state, output.weights.squeeze(1))


def _per_row_state(state: BeamSharedState) -> TransformerDecoderState:
    memories, kv_caches = state.per_row()
    layers = tuple(
        TransformerLayerState(SelfAttentionCache(cache))
        for cache in kv_caches or [None] * len(memories)
    )
    return TransformerDecoderState(TransformerStackState(layers, state.start_positions), memories)


class Unpadding(NamedTuple):
    """Indices of the real positions of a padded batch."""

    mask: Bool[Tensor, "B S"]
    indices: Int[Tensor, "N"]  # into the flattened batch

    @classmethod
    def from_mask(cls, mask: Bool[Tensor, "B S"]) -> Unpadding:
        """Find the real positions."""
        return cls(mask, mask.flatten().nonzero().squeeze(1))

    def unpad(self, padded: Float[Tensor, "B S D"]) -> Float[Tensor, "N D"]:
        """Return the real positions, one below the other."""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, tokens: Float[Tensor, "N D"]) -> Float[Tensor, "B S D"]:
        """Put the real positions back among zeros."""
        padded = tokens.new_zeros(self.mask.numel(), tokens.size(1))
        return padded.index_copy_(0, self.indices, tokens).view(*self.mask.shape, -1)


def encode_unpadded(
    layers: Iterable[TransformerLayer], inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S D"]:
    """Run standard layers over whole sequences; only attention sees the padded batch.

    In a batch that is not sorted by length two positions in five may be padding.
    """
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(inputs)
    for layer in layers:
        attended = _attend_unpadded(
            layer.self_attention.attention,
            layer.self_attention_residual.sublayer_input(tokens),
            unpadding,
        )
        tokens = layer.self_attention_residual.add_residual(tokens, attended)
        feed_forward, connection = layer.feed_forward, layer.feed_forward_residual
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        hidden = feed_forward.input_projection(connection.sublayer_input(tokens))
        hidden = activate_inplace(feed_forward.activation, hidden)
        tokens = connection.add_residual(tokens, feed_forward.output_projection(hidden))
    return unpadding.pad(tokens)


def build_memories_unpadded(
    layers: Iterable[TransformerLayer], states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> tuple[Memory, ...]:
    """Build the memories of standard cross-attention without projecting padding."""
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(states)
    memories = []
    for layer in layers:
        if layer.cross_attention is None:
            continue
        heads, _ = multi_head_and_temperature(layer.cross_attention.attention)
        values = _project_to_heads(heads.value_projection, tokens, unpadding, heads)
        keys = _project_to_heads(heads.key_projection, tokens, unpadding, heads)
        prepared = heads.score.prepare_keys(keys)
        memories.append(Memory(values.contiguous(), prepared.contiguous(), mask[:, None, None]))
    return tuple(memories)


def _attend_unpadded(
    attention: Attention, tokens: Float[Tensor, "N D"], unpadding: Unpadding
) -> Float[Tensor, "N D"]:
    heads, temperature = multi_head_and_temperature(attention)
    keys = _project_to_heads(heads.key_projection, tokens, unpadding, heads)
    context = scaled_dot_product_attention(
        _project_to_heads(heads.query_projection, tokens, unpadding, heads),
        heads.score.prepare_keys(keys),
        _project_to_heads(heads.value_projection, tokens, unpadding, heads),
        attn_mask=unpadding.mask[:, None, None],  # a row without real keys has no real queries
        scale=1 / temperature,
    )
    outputs: Tensor = heads.output_projection(unpadding.unpad(context.transpose(1, 2).flatten(2)))
    return outputs


def _project_to_heads(
    projection: nn.Linear,
    tokens: Float[Tensor, "N D"],
    unpadding: Unpadding,
    heads: MultiHeadAttention,
) -> Float[Tensor, "B H S K"]:
    projected = unpadding.pad(projection(tokens))
    return projected.unflatten(-1, (heads.num_heads, -1)).transpose(1, 2)

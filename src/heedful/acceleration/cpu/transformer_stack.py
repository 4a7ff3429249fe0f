"""Replacements of Transformer stacks and decoders for inference.

`PackedTransformerStack` reads whole sequences without their padding and single positions with
packed weights; `PackedTransformerDecoder` adds caches that the hypotheses of a sentence share. Both
are for standard layers on a CPU; other stacks only keep their memories contiguous. Invariant:
outputs, weights and states equal the plain modules', up to rounding and padding.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from heedful.acceleration.cpu.packed_linear import activate_inplace
from heedful.acceleration.cpu.transformer_step import (
    BeamSharedState,
    PackedLayer,
    multi_head_and_temperature,
    packed_step,
)
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.masks import check_padding_mask
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore, ScaledDotScore
from heedful.layers.self_attention import FullSelfAttention, KVCache, SelfAttentionCache
from heedful.layers.sublayers import CrossAttention, FeedForward, SublayerConnection
from heedful.layers.transformer import (
    Memories,
    OutputsWithLosses,
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
from heedful.search import StepOutput
from heedful.shapes import (
    AnyMask,
    Float,
    HiddenStates,
    Int,
    Lengths,
    SourceMask,
    StepTokens,
    Values,
)

TokenVectors = Float[Tensor, "N D"]
"""The real positions of a batch, one below the other."""


def has_standard_layers(stack: TransformerStack) -> bool:
    """Whether all layers are full multi-head softmax attention and ungated feed-forward."""
    return not stack.has_alignment_heads and all(map(_is_standard_layer, stack.layers))


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
        states: Values,
        mask: AnyMask = None,
        keys: Values | None = None,
        layer_states: Sequence[Values] = (),
    ) -> Memories:
        memories = super().build_memory(states, mask, keys, layer_states)
        return memories if self.training else map_tensors(Tensor.contiguous, memories)


class PackedTransformerStack(ContiguousMemoryStack):
    """A stack of standard layers that skips padding and packs weights for single positions."""

    _packed: Sequence[PackedLayer] | None = None
    _hooks: Sequence[Mapping[int, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy packs its own parameters, and watches its own hooks.
        return {key: value for key, value in vars(self).items() if key not in ("_packed", "_hooks")}

    def packed_layers(self, inputs: Tensor) -> Sequence[PackedLayer] | None:
        """Return the packed layers, or None where the plain ones must run."""
        if torch.is_autocast_enabled("cpu") or not self._is_inference(inputs):
            return None
        if self._packed is None:
            self._packed = [PackedLayer.from_layer(layer) for layer in self.layers]
        return self._packed

    def _is_inference(self, inputs: Tensor) -> bool:
        """Whether a CPU computes outputs that no gradient and no forward hook needs."""
        if self.training or torch.is_grad_enabled() or inputs.device.type != "cpu":
            return False
        if self._hooks is None:
            modules = list(self.modules())
            self._hooks = [module._forward_hooks for module in modules]
            self._hooks += [module._forward_pre_hooks for module in modules]
        return not any(self._hooks)

    @override
    def build_memory(
        self,
        states: Values,
        mask: AnyMask = None,
        keys: Values | None = None,
        layer_states: Sequence[Values] = (),
    ) -> Memories:
        has_positions_only = mask is None or mask.dim() == 2 or mask.size(1) == 1
        is_plain = keys is None and not layer_states and has_positions_only
        if not (is_plain and self._is_inference(states)):
            return super().build_memory(states, mask, keys, layer_states)
        positions = mask if mask is None or mask.dim() == 2 else mask.squeeze(1)
        return build_memories_unpadded(self.layers, states, check_padding_mask(positions, states))

    @override
    def forward_bidirectional(
        self, inputs: HiddenStates, lengths: Lengths, layer_inputs: list[Tensor] | None = None
    ) -> OutputsWithLosses:
        if layer_inputs is not None or not self._is_inference(inputs):
            return super().forward_bidirectional(inputs, lengths, layer_inputs)
        positions = torch.arange(inputs.size(1), device=inputs.device)
        outputs = encode_unpadded(self.layers, inputs, positions < lengths.unsqueeze(1))
        return self.apply_final_norm(outputs), NO_AUXILIARY_LOSSES

    @override
    def forward(
        self,
        inputs: HiddenStates,
        lengths: Lengths,
        state: TransformerStackState,
        memories: Sequence[Memory] = (),
        *,
        need_weights: bool = False,
        layer_inputs: list[Tensor] | None = None,
    ) -> TransformerStackOutput:
        is_step = inputs.size(1) == 1 and layer_inputs is None
        layers = self.packed_layers(inputs) if is_step else None
        kv_caches = [layer.cache.kv_cache for layer in state.layers]
        num_cached = 0 if kv_caches[0] is None else kv_caches[0].values.size(-2)
        if layers is None or not bool((state.start_positions == num_cached).all()):
            return super().forward(
                inputs,
                lengths,
                state,
                memories,
                need_weights=need_weights,
                layer_inputs=layer_inputs,
            )
        outputs, weights, next_caches = packed_step(layers, inputs.squeeze(1), kv_caches, memories)
        return TransformerStackOutput(
            self.apply_final_norm(outputs),
            weights.mean(dim=1) if need_weights else None,  # over the heads
            (),
            NO_AUXILIARY_LOSSES,
            _stack_state(next_caches, state.start_positions + lengths),
        )


def _stack_state(
    kv_caches: Iterable[KVCache | None], start_positions: Int[Tensor, "B"]
) -> TransformerStackState:
    layers = (TransformerLayerState(SelfAttentionCache(cache)) for cache in kv_caches)
    return TransformerStackState(tuple(layers), start_positions)


def can_share_caches(decoder: TransformerDecoder) -> bool:
    """Whether a decoder has standard layers and a softmax head."""
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
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        if not isinstance(state, BeamSharedState):
            return super().step(tokens, state)
        layers = self.stack.packed_layers(tokens)
        if layers is None:
            memories, kv_caches = state.per_row()
            stack_state = _stack_state(kv_caches or [None] * len(memories), state.start_positions)
            return super().step(tokens, TransformerDecoderState(stack_state, memories))
        state = state.regroup()
        visible = state.next_visible()
        outputs, weights, kv_caches = packed_step(
            layers,
            self.embedding(tokens.unsqueeze(1), state.start_positions).squeeze(1),
            state.kv_caches or [None] * len(layers),
            state.memories,
            visible,
        )
        weights = weights.mean(dim=1).view(len(tokens), 1, -1)  # over the heads
        features = self.stack.apply_final_norm(outputs)
        log_probs = self.output_head(features, weights)
        next_state = state._replace(
            kv_caches=kv_caches, visible=visible, start_positions=state.start_positions + 1
        )
        return StepOutput(log_probs.squeeze(1), next_state, weights.squeeze(1))


class Unpadding(NamedTuple):
    """Indices of the real positions of a padded batch."""

    mask: SourceMask
    indices: Int[Tensor, "N"]  # into the flattened batch

    @classmethod
    def from_mask(cls, mask: SourceMask) -> Self:
        """Find the real positions."""
        return cls(mask, mask.flatten().nonzero().squeeze(1))

    def unpad(self, padded: HiddenStates) -> TokenVectors:
        """Return the real positions."""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, tokens: TokenVectors) -> HiddenStates:
        """Put the real positions back among zeros."""
        padded = tokens.new_zeros(self.mask.numel(), tokens.size(1))
        return padded.index_copy_(0, self.indices, tokens).view(*self.mask.shape, -1)

    def project_to_heads(
        self, projection: nn.Linear, tokens: TokenVectors, num_heads: int
    ) -> Float[Tensor, "B H S K"]:
        """Project the real positions; return them padded, with one part for each head."""
        return self.pad(projection(tokens)).unflatten(-1, (num_heads, -1)).transpose(1, 2)


def encode_unpadded(
    layers: Iterable[TransformerLayer], inputs: HiddenStates, mask: SourceMask
) -> HiddenStates:
    """Run standard layers over whole sequences; only attention sees the padding."""
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(inputs)
    for layer in layers:
        connection = layer.self_attention_residual
        heads, temperature = multi_head_and_temperature(layer.self_attention.attention)
        projections = heads.query_projection, heads.key_projection, heads.value_projection
        sublayer_input = connection.sublayer_input(tokens)
        queries, keys, values = (
            unpadding.project_to_heads(projection, sublayer_input, heads.num_heads)
            for projection in projections
        )
        context = scaled_dot_product_attention(
            queries,
            heads.score.prepare_keys(keys),
            values,
            attn_mask=mask[:, None, None],  # a row without real keys has no real queries
            scale=1 / temperature,
        )
        context = unpadding.unpad(context.transpose(1, 2).flatten(2))
        tokens = connection.add_residual(tokens, heads.output_projection(context))
        feed_forward, connection = layer.feed_forward, layer.feed_forward_residual
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        hidden = feed_forward.input_projection(connection.sublayer_input(tokens))
        hidden = activate_inplace(feed_forward.activation, hidden)
        tokens = connection.add_residual(tokens, feed_forward.output_projection(hidden))
    return unpadding.pad(tokens)


def build_memories_unpadded(
    layers: Iterable[TransformerLayer], states: HiddenStates, mask: SourceMask
) -> Memories:
    """Build the memories of standard cross-attention without projecting padding."""
    unpadding = Unpadding.from_mask(mask)
    tokens = unpadding.unpad(states)
    memories = []
    for layer in layers:
        if layer.cross_attention is None:
            continue
        heads, _ = multi_head_and_temperature(layer.cross_attention.attention)
        values = unpadding.project_to_heads(heads.value_projection, tokens, heads.num_heads)
        keys = unpadding.project_to_heads(heads.key_projection, tokens, heads.num_heads)
        prepared = heads.score.prepare_keys(keys)
        memories.append(Memory(values.contiguous(), prepared.contiguous(), mask[:, None, None]))
    return tuple(memories)

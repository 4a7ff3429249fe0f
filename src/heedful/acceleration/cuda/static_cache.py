"""Decoding steps of standard Transformer layers on a GPU: few kernels, and caches in place.

Keys and values are written into a buffer with spare positions. Reordering a beam changes the rows
that a hypothesis reads, not the buffer; its memory stays that of its sentence. Invariants: a step
matches the plain decoder up to rounding; a state can be continued more than once, as a value can:
the buffer is copied if a later state that is still in use shares it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple, Self
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.cpu.transformer_stack import can_share_caches
from heedful.acceleration.cpu.transformer_step import multi_head_and_temperature
from heedful.attention.attention import Attention
from heedful.attention.memory import Memory
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.self_attention import KVCache, SelfAttentionCache
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.layers.transformer import (
    TransformerLayer,
    TransformerLayerState,
    TransformerStackState,
)
from heedful.models.base import EncoderOutput
from heedful.models.output_heads import log_softmax
from heedful.models.transformer import TransformerDecoder, TransformerDecoderState
from heedful.pytree import map_tensors, select_rows
from heedful.search import StepOutput
from heedful.shapes import Float, Int, StepTokens

STATIC_CACHE_DEVICE_TYPE = "cuda"
DTYPES = {torch.float32, torch.float16, torch.bfloat16}
RowVectors = Float[Tensor, "R D"]
Logits = Float[Tensor, "R N"]


class StaticCache:
    """Keys and values of all layers in a buffer with spare rows and positions."""

    def __init__(self, buffer: Float[Tensor, "L 2 N H C D"]) -> None:
        self.buffer = buffer
        self.states: WeakSet[StaticCacheState] = WeakSet()
        """The states that read it."""

    def prepare(self, num_rows: int, position: int) -> "StaticCache":
        """Return a cache in which these rows may write at this position: this one, or a copy."""
        is_shared = any(state.position > position for state in self.states)
        shape = list(self.buffer.shape)
        if shape[2] >= num_rows and shape[4] > position and not is_shared:
            return self
        shape[2] = max(shape[2], num_rows)
        shape[4] *= 2 if shape[4] <= position else 1
        buffer = self.buffer.new_empty(shape)
        buffer[:, :, : self.buffer.size(2), :, :position] = self.buffer[..., :position, :]
        return StaticCache(buffer)


@dataclass(frozen=True, eq=False)
class StaticCacheState:
    """Decoding state of hypotheses."""

    memories: tuple[Memory, ...]  # of all layers, with one row per sentence
    memory_rows: Int[Tensor, "R"]  # the sentence of each hypothesis
    position: int = 0
    cache: StaticCache | None = None  # None before the first step
    cache_rows: Int[Tensor, "R P"] | None = None
    """Row of the cache in which each position of a hypothesis is stored; None: its own."""

    def __post_init__(self) -> None:
        if self.cache is not None:
            self.cache.states.add(self)

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> "StaticCacheState":
        """Select rows; memories and caches stay as they are."""
        cache_rows = self.cache_rows
        if self.cache is not None:
            cache_rows = transform(self._all_cache_rows())
        memory_rows = transform(self.memory_rows)
        return replace(self, memory_rows=memory_rows, cache_rows=cache_rows)

    def compact(self) -> "StaticCacheState":
        """Return the state with a cache that has only the rows of its hypotheses."""
        if self.cache is None:
            return self
        buffer = self.cache.buffer
        rows = self._all_cache_rows()
        index = rows[None, None, :, None, :, None]
        index = index.expand(*buffer.shape[:2], -1, buffer.size(3), -1, buffer.size(5))
        compacted = buffer.new_empty(*buffer.shape[:2], len(rows), *buffer.shape[3:])
        compacted[..., : self.position, :] = buffer[..., : self.position, :].gather(2, index)
        return replace(self, cache=StaticCache(compacted), cache_rows=None)

    def next_cache(self, heads: "AttentionShape", inputs: RowVectors) -> StaticCache:
        """Return a cache in which the next position can be written."""
        if self.cache is not None:
            return self.cache.prepare(len(inputs), self.position)
        num_layers, num_heads, head_dim = heads
        capacity = tuning.STATIC_CACHE_CAPACITY
        shape = num_layers, 2, len(inputs), num_heads, capacity, head_dim
        return StaticCache(inputs.new_empty(shape))

    def advance(self, cache: StaticCache) -> "StaticCacheState":
        """Return the state after a step that wrote a position of each row."""
        cache_rows = self.cache_rows
        if cache_rows is not None:
            new_rows = torch.arange(len(cache_rows), device=cache_rows.device).unsqueeze(1)
            cache_rows = torch.cat([cache_rows, new_rows], dim=1)
        return replace(self, position=self.position + 1, cache=cache, cache_rows=cache_rows)

    def kv_caches(self) -> list[KVCache | None]:
        """Return the keys and values of each layer, with one row per hypothesis."""
        if self.cache is None:
            return [None] * len(self.memories)
        rows = self._all_cache_rows().long()
        positions = torch.arange(self.position, device=rows.device)
        layers = self.cache.buffer.transpose(3, 4)[:, :, rows, positions].transpose(3, 4)
        return [KVCache(values, keys) for keys, values in layers]  # (R, H, P, D) each

    def _all_cache_rows(self) -> Int[Tensor, "R P"]:
        if self.cache_rows is not None:
            return self.cache_rows
        rows = torch.arange(len(self.memory_rows), device=self.memory_rows.device)
        return rows.unsqueeze(1).expand(-1, self.position)


class AttentionShape(NamedTuple):
    """Sizes of the self-attention of a stack."""

    num_layers: int
    num_heads: int
    head_dim: int


class FusedConnection(NamedTuple):
    """A residual connection, and the norm that follows it: its own, or that of the next sublayer.

    With post-norm the residual stream is the normalized sum; with pre-norm it is the sum.
    """

    norm: nn.Module | None
    is_pre_norm: bool

    def __call__(
        self, stream: RowVectors, updates: RowVectors | None
    ) -> tuple[RowVectors, RowVectors]:
        """Add updates to the residual stream; return it and the input of the next sublayer."""
        from heedful.acceleration.triton.decoding_step import add_and_normalize

        if isinstance(self.norm, nn.LayerNorm | nn.RMSNorm):
            sums, outputs = add_and_normalize(stream, updates, self.norm)
        else:
            sums = stream if updates is None else stream + updates
            outputs = sums if self.norm is None else self.norm(sums)
        return (sums if self.is_pre_norm else outputs), outputs


class FusedAttention(NamedTuple):
    """Multi-head attention with one projection of its inputs."""

    weight: Float[Tensor, "N D"]  # of queries; in self-attention, of keys and values too
    bias: Float[Tensor, "N"] | None
    output_projection: nn.Linear
    scale: float
    key_scale: float  # of keys in the plain cache
    connection: FusedConnection

    @classmethod
    def from_attention(
        cls, attention: Attention, connection: FusedConnection, *, is_self_attention: bool
    ) -> Self:
        """Join the projections of a standard attention."""
        heads, temperature = multi_head_and_temperature(attention)
        projections = [heads.query_projection]
        head_dim, key_scale = heads.key_projection.out_features // heads.num_heads, 1.0
        if is_self_attention:
            projections += [heads.key_projection, heads.value_projection]
            # Keys of a dot-product score are prepared by a factor.
            key_scale = float(heads.score.prepare_keys(torch.ones(1, head_dim))[0, 0])
        weights: list[Tensor] = [projection.weight for projection in projections]
        biases: list[Tensor] = [linear.bias for linear in projections if linear.bias is not None]
        return cls(
            torch.cat(weights) if is_self_attention else weights[0],
            torch.cat(biases) if biases else None,
            heads.output_projection,
            key_scale / temperature,
            key_scale,
            connection,
        )

    def project(self, inputs: RowVectors) -> Float[Tensor, "R N"]:
        """Return queries; in self-attention, also keys and values behind them."""
        return functional.linear(inputs, self.weight, self.bias)


class FusedLayer(NamedTuple):
    """A Transformer layer with cross-attention."""

    self_attention: FusedAttention
    cross_attention: FusedAttention
    feed_forward: FeedForward
    feed_forward_connection: FusedConnection

    def apply_feed_forward(self, inputs: RowVectors) -> RowVectors:
        """Apply both projections; ReLU is part of the first product."""
        linear, activation = self.feed_forward.input_projection, self.feed_forward.activation
        if type(activation) is nn.ReLU and linear.bias is not None:
            hidden = torch._addmm_activation(linear.bias, inputs, linear.weight.t())
        else:
            hidden = activation(linear(inputs))
        return self.feed_forward.output_projection(hidden)


def fuse_layers(
    layers: Sequence[TransformerLayer], final_norm: nn.Module | None
) -> tuple[FusedConnection, list[FusedLayer]]:
    """Return the connection before the first layer, and the layers with their connections."""
    sublayers: list[SublayerConnection] = []
    for layer in layers:
        assert layer.cross_attention is not None
        sublayers += [
            layer.self_attention_residual,
            layer.cross_attention.residual,
            layer.feed_forward_residual,
        ]
    is_pre_norm = sublayers[0].norm_order == "pre"
    norms: list[nn.Module | None] = [sublayer.norm for sublayer in sublayers]
    first, *following = [*norms, final_norm] if is_pre_norm else [None, *norms]
    connections = iter(FusedConnection(norm, is_pre_norm) for norm in following)
    fused = []
    for layer in layers:
        assert layer.cross_attention is not None
        assert isinstance(layer.feed_forward, FeedForward)
        build, source = FusedAttention.from_attention, layer.cross_attention.attention
        attention = build(layer.self_attention.attention, next(connections), is_self_attention=True)
        cross_attention = build(source, next(connections), is_self_attention=False)
        parts = attention, cross_attention, layer.feed_forward, next(connections)
        fused.append(FusedLayer(*parts))
    return FusedConnection(first, is_pre_norm), fused


def can_use_static_cache(decoder: TransformerDecoder) -> bool:
    """Whether a decoder has standard layers with cross-attention, and Triton is installed."""
    return (
        find_spec("triton") is not None
        and can_share_caches(decoder)
        and all(layer.cross_attention is not None for layer in decoder.stack.layers)
    )


class StaticCacheDecoder(TransformerDecoder):
    """A decoder that decodes with static caches on a GPU."""

    _fused: tuple[FusedConnection, list[FusedLayer]] | None = None
    _hooks: Sequence[Mapping[int, Any]] | None = None
    _encodings: Float[Tensor, "P D"] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy joins its own parameters, and watches its own hooks.
        cached = ("_fused", "_hooks", "_encodings")
        return {key: value for key, value in vars(self).items() if key not in cached}

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        state = super().initial_state(encoder_output)
        num_rows, length = encoder_output.states.shape[:2]
        has_plain_masks = all(memory.mask.numel() == num_rows * length for memory in state.memories)
        if not has_plain_masks or not self._is_inference(encoder_output.states):
            return state
        rows = torch.arange(num_rows, device=encoder_output.states.device)
        return StaticCacheState(map_tensors(Tensor.contiguous, state.memories), rows)

    @override
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        if not isinstance(state, StaticCacheState):
            return super().step(tokens, state)
        if not self._is_inference(state.memories[0].values):
            return super().step(tokens, self._plain_state(state))
        logits, next_state, weights = self.compute_logits(tokens, state)
        return StepOutput(log_softmax(logits), next_state, weights)

    def compute_logits(
        self, tokens: StepTokens, state: StaticCacheState
    ) -> tuple[Logits, StaticCacheState, Float[Tensor, "R S"]]:
        """Run a step; return logits in place of log-probabilities, the next state and weights."""
        from heedful.acceleration.triton.decoding_step import attend_to_cache, attend_to_memory

        first, layers = self._fused_layers()
        stream, inputs = first(self._embed_at(tokens, state.position), None)
        cache = state.next_cache(self._attention_shape(), inputs)
        weights = None
        for index, layer in enumerate(layers):
            attention, (keys, values) = layer.self_attention, cache.buffer[index]
            projected = attention.project(inputs)
            context = attend_to_cache(
                projected, keys, values, state.cache_rows, state.position, attention.scale
            )
            stream, inputs = attention.connection(stream, attention.output_projection(context))
            attention, memory = layer.cross_attention, state.memories[index]
            context, weights = attend_to_memory(
                attention.project(inputs),
                memory.keys,
                memory.values,
                memory.mask.view(len(memory.values), -1),
                state.memory_rows,
                attention.scale,
                need_weights=index == len(layers) - 1,
            )
            stream, inputs = attention.connection(stream, attention.output_projection(context))
            updates = layer.apply_feed_forward(inputs)
            stream, inputs = layer.feed_forward_connection(stream, updates)
        assert weights is not None, "there are no layers"
        logits = self.output_head.projection(inputs)
        return logits, state.advance(cache), weights.mean(dim=1).to(inputs.dtype)  # over the heads

    def _fused_layers(self) -> tuple[FusedConnection, list[FusedLayer]]:
        if self._fused is None:
            self._fused = fuse_layers(self.stack.layers, self.stack.norm)
        return self._fused

    def _attention_shape(self) -> AttentionShape:
        heads, _ = multi_head_and_temperature(self.stack.layers[0].self_attention.attention)
        head_dim = heads.key_projection.out_features // heads.num_heads
        return AttentionShape(len(self.stack.layers), heads.num_heads, head_dim)

    def _is_inference(self, states: Tensor) -> bool:
        """Whether a GPU computes outputs that no gradient and no forward hook needs."""
        device_type = STATIC_CACHE_DEVICE_TYPE
        if (
            self.training
            or torch.is_grad_enabled()
            or states.device.type != device_type
            or states.dtype not in DTYPES
            or torch.is_autocast_enabled(device_type)
        ):
            return False
        if self._hooks is None:
            modules = list(self.modules())
            self._hooks = [module._forward_hooks for module in modules]
            self._hooks += [module._forward_pre_hooks for module in modules]
        return not any(self._hooks)

    def _embed_at(self, tokens: StepTokens, position: int) -> RowVectors:
        """Embed tokens at a position; encodings that are added come from a table."""
        embedding, combiner = self.embedding, self.embedding.position_combiner
        is_plain = (
            type(embedding) is TokenEmbedding
            and embedding.norm is embedding.segment_embedding is embedding.character_encoder is None
        )
        is_tabulated = position < tuning.NUM_DEVICE_POSITIONS
        if combiner is None or combiner.combine != "add" or not is_plain or not is_tabulated:
            return embedding(tokens.unsqueeze(1), position).squeeze(1)
        weight = embedding.embedding.weight
        if self._encodings is None:
            positions = torch.arange(tuning.NUM_DEVICE_POSITIONS, device=weight.device)
            self._encodings = combiner.encoding(positions, weight.dtype)
        vectors = functional.embedding(tokens, weight)
        return torch.add(self._encodings[position], vectors, alpha=embedding.scale)

    def _plain_state(self, state: StaticCacheState) -> TransformerDecoderState:
        """Return the state of the plain decoder."""
        _, layers = self._fused_layers()
        scales = [layer.self_attention.key_scale for layer in layers]
        caches = [
            cache and KVCache(cache.values, cache.keys * scale)
            for cache, scale in zip(state.kv_caches(), scales, strict=True)
        ]
        states = [TransformerLayerState(SelfAttentionCache(cache)) for cache in caches]
        start_positions = torch.full_like(state.memory_rows, state.position)
        memories = select_rows(state.memories, state.memory_rows)
        return TransformerDecoderState(
            TransformerStackState(tuple(states), start_positions), memories
        )

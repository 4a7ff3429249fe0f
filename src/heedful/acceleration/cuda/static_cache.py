"""Decoding steps of standard Transformer layers on a GPU: few kernels, and caches in place.

Keys and values are written into a buffer with spare positions. Reordering a beam changes the rows
that a hypothesis reads, not the buffer; its memory stays that of its sentence. Invariants: a step
matches the plain decoder up to rounding; a state can be continued more than once, as a value can:
the buffer is copied if a later state that is still in use shares it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.transformer_step import (
    InferenceModule,
    Projection,
    RowVectors,
    StepAttention,
    StepCaches,
    StepEngine,
    StepFeedForward,
    build_stack_state,
    can_share_caches,
    multi_head_and_temperature,
)
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.self_attention import KVCache
from heedful.layers.transformer import TransformerStack
from heedful.models.base import EncoderOutput
from heedful.models.output_heads import log_softmax
from heedful.models.transformer import TransformerDecoder, TransformerDecoderState
from heedful.pytree import map_tensors, select_rows
from heedful.search import StepOutput
from heedful.shapes import Float, Int, StepTokens

STATIC_CACHE_DEVICE_TYPE = "cuda"
DTYPES = {torch.float32, torch.float16, torch.bfloat16}
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

    def next_cache(self, sizes: tuple[int, int, int], inputs: RowVectors) -> StaticCache:
        """Return a cache in which the next position can be written."""
        if self.cache is not None:
            return self.cache.prepare(len(inputs), self.position)
        num_layers, num_heads, head_dim = sizes
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


class FusedEngine(StepEngine):
    """Layers in few kernels: a residual sum comes with its norm, ReLU with the product before."""

    def __init__(self, stack: TransformerStack) -> None:
        super().__init__(stack)
        heads, _ = multi_head_and_temperature(stack.layers[0].self_attention.attention)
        head_dim = heads.key_projection.out_features // heads.num_heads
        self.cache_sizes = len(stack.layers), heads.num_heads, head_dim

    @override
    def pack(self, linear: nn.Linear) -> nn.Linear:
        return linear

    @override
    def join_projections(
        self, heads: MultiHeadAttention, temperature: float, *, is_self_attention: bool
    ) -> tuple[Projection, float]:
        projections, scale = [heads.query_projection], 1 / temperature
        if is_self_attention:
            projections += [heads.key_projection, heads.value_projection]
            # Keys of a dot-product score are prepared by a factor; the cache holds them unprepared.
            head_dim = heads.key_projection.out_features // heads.num_heads
            scale *= float(heads.score.prepare_keys(torch.ones(1, head_dim))[0, 0])
        weights: list[Tensor] = [projection.weight for projection in projections]
        biases: list[Tensor] = [linear.bias for linear in projections if linear.bias is not None]
        weight = torch.cat(weights) if is_self_attention else weights[0]
        bias = torch.cat(biases) if biases else None
        return partial(functional.linear, weight=weight, bias=bias), scale

    @override
    def activate(self, feed_forward: StepFeedForward, inputs: RowVectors) -> RowVectors:
        linear, activation = feed_forward.input_projection, feed_forward.activation
        if type(activation) is nn.ReLU and linear.bias is not None:
            return torch._addmm_activation(linear.bias, inputs, linear.weight.t())
        hidden: Tensor = activation(linear(inputs))
        return hidden

    @override
    def connect(
        self, stream: RowVectors, projection: Any, hidden: RowVectors | None, norm: Any
    ) -> tuple[RowVectors, RowVectors]:
        from heedful.acceleration.triton.decoding_step import add_and_normalize

        updates = None if hidden is None else projection(hidden)
        if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
            return add_and_normalize(stream, updates, norm)
        sums = stream if updates is None else stream + updates
        return sums, sums if norm is None else norm(sums)


class BufferedCaches(StepCaches):
    """The memories of a state, and a cache in which the next position can be written."""

    def __init__(self, state: StaticCacheState, cache: StaticCache) -> None:
        self.state, self.cache = state, cache

    @override
    def attend_to_cache(
        self, index: int, attention: StepAttention, projected: RowVectors
    ) -> tuple[RowVectors, None]:
        from heedful.acceleration.triton.decoding_step import attend_to_cache

        (keys, values), state = self.cache.buffer[index], self.state
        rows, position = state.cache_rows, state.position
        return attend_to_cache(projected, keys, values, rows, position, attention.scale), None

    @override
    def attend_to_memory(
        self, index: int, attention: StepAttention, queries: RowVectors, *, need_weights: bool
    ) -> tuple[RowVectors, Float[Tensor, "R H S"] | None]:
        from heedful.acceleration.triton.decoding_step import attend_to_memory

        memory = self.state.memories[index]
        return attend_to_memory(
            queries,
            memory.keys,
            memory.values,
            memory.mask.view(len(memory.values), -1),
            self.state.memory_rows,
            attention.scale,
            need_weights=need_weights,
        )


def can_use_static_cache(decoder: TransformerDecoder) -> bool:
    """Whether a decoder has standard layers with cross-attention, and Triton is installed."""
    return (
        find_spec("triton") is not None
        and can_share_caches(decoder)
        and all(layer.cross_attention is not None for layer in decoder.stack.layers)
    )


class StaticCacheDecoder(InferenceModule, TransformerDecoder):
    """A decoder that decodes with static caches on a GPU."""

    derived = ("_engine", "_encodings")
    _engine: FusedEngine | None = None
    _encodings: Float[Tensor, "P D"] | None = None

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        state = super().initial_state(encoder_output)
        num_rows, length = encoder_output.states.shape[:2]
        has_plain_masks = all(memory.mask.numel() == num_rows * length for memory in state.memories)
        if not has_plain_masks or not self._can_step(encoder_output.states):
            return state
        rows = torch.arange(num_rows, device=encoder_output.states.device)
        return StaticCacheState(map_tensors(Tensor.contiguous, state.memories), rows)

    @override
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        if not isinstance(state, StaticCacheState):
            return super().step(tokens, state)
        if not self._can_step(state.memories[0].values):
            return super().step(tokens, self._plain_state(state))
        logits, next_state, weights = self.compute_logits(tokens, state)
        return StepOutput(log_softmax(logits), next_state, weights)

    def compute_logits(
        self, tokens: StepTokens, state: StaticCacheState
    ) -> tuple[Logits, StaticCacheState, Float[Tensor, "R S"]]:
        """Run a step; return logits in place of log-probabilities, the next state and weights."""
        engine, inputs = self._step_engine(), self._embed_at(tokens, state.position)
        cache = state.next_cache(engine.cache_sizes, inputs)
        outputs, weights = engine.run(inputs, BufferedCaches(state, cache))
        assert weights is not None
        logits = self.output_head.projection(outputs)
        return logits, state.advance(cache), weights.mean(dim=1).to(outputs.dtype)  # over the heads

    def _step_engine(self) -> FusedEngine:
        self._engine = self._engine or FusedEngine(self.stack)
        return self._engine

    def _can_step(self, states: Tensor) -> bool:
        """Whether a GPU computes outputs that no gradient and no forward hook needs."""
        device_type = STATIC_CACHE_DEVICE_TYPE
        is_supported = states.device.type == device_type and states.dtype in DTYPES
        return is_supported and self.is_inference(device_type)

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
        scores = [layer.self_attention.attention.score for layer in self.stack.layers]
        caches = [
            cache and KVCache(cache.values, score.prepare_keys(cache.keys))
            for cache, score in zip(state.kv_caches(), scores, strict=True)
        ]
        start_positions = torch.full_like(state.memory_rows, state.position)
        memories = select_rows(state.memories, state.memory_rows)
        return TransformerDecoderState(build_stack_state(caches, start_positions), memories)

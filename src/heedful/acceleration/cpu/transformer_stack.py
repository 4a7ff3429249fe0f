"""Decoding with standard Transformer layers on a CPU: packed weights, and caches that beams share.

The K hypotheses of each of F sentences may share one memory of its source and one cache, which
holds all positions that any of them has added; each product with it is one batched product over the
sentences. Each of the R = F * K rows has a mask over the cached positions; reordering the beam
changes masks and row indices, not the cache. Invariants: outputs, weights and states equal the
plain modules', up to rounding and padding; after any reordering, each row continues as if it were
the only one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.cpu.decoding_state import GrowingCache
from heedful.acceleration.cpu.packed_linear import PackedLinear, activate_inplace
from heedful.acceleration.cpu.unpadding import UnpaddedAttention, Unpadding
from heedful.acceleration.transformer_step import (
    InferenceModule,
    RowVectors,
    StepAttention,
    StepCaches,
    StepEngine,
    StepFeedForward,
    build_stack_state,
    multi_head_and_temperature,
)
from heedful.attention.alignments import mask_scores
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.masks import check_padding_mask
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.layers.self_attention import KVCache
from heedful.layers.transformer import (
    Memories,
    OutputsWithLosses,
    TransformerStack,
    TransformerStackOutput,
    TransformerStackState,
)
from heedful.models.base import EncoderOutput
from heedful.models.transformer import TransformerDecoder, TransformerDecoderState
from heedful.pytree import map_tensors, select_rows
from heedful.search import StepOutput
from heedful.shapes import AnyMask, Bool, Float, HiddenStates, Int, Lengths, StepTokens, Values

VisiblePositions = Bool[Tensor, "R P"]
"""The cached positions that belong to each row."""


class BeamSharedState(NamedTuple):
    """Decoding state of hypotheses that share memories and caches."""

    memories: tuple[Memory, ...]  # of all layers, with one row per sentence
    kv_caches: tuple[KVCache, ...] | None  # likewise; None before the first step
    sentence_index: Int[Tensor, "R"]  # the sentence of each row
    visible: VisiblePositions | None  # None if all positions belong to all rows
    start_positions: Int[Tensor, "R"]

    @classmethod
    def from_memories(
        cls,
        memories: tuple[Memory, ...],
        start_positions: Int[Tensor, "R"],
        kv_caches: tuple[KVCache, ...] | None = None,
    ) -> Self:
        """Return a state in which each row is a sentence of its own."""
        rows = torch.arange(len(start_positions), device=start_positions.device)
        return cls(memories, kv_caches, rows, None, start_positions)

    @property
    def num_sentences(self) -> int:
        """Rows of the memories and caches."""
        return len(self.memories[0].values)

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> Self:
        """Select rows; memories and caches stay as they are."""
        sentence_index, visible, start_positions = map_tensors(transform, self[2:])
        return type(self)(*self[:2], sentence_index, visible, start_positions)

    def regroup(self) -> Self:
        """Return the state with the rows of a sentence side by side, the same number for each.

        Sentences without rows are dropped. Where some have more rows than others, or more than can
        share a cache at little cost, each row becomes a sentence of its own.
        """
        rows = self.sentence_index.numpy()
        beam_size, rest = divmod(len(rows), self.num_sentences)
        is_small = 0 < beam_size <= tuning.MAX_SHARED_BEAM_SIZE and not rest
        if is_small and (rows == np.arange(self.num_sentences).repeat(beam_size)).all():
            return self
        sentences, counts = np.unique(rows, return_counts=True)
        is_even = (counts == counts[0]).all() and (rows == sentences.repeat(counts)).all()
        if not is_even or counts[0] > tuning.MAX_SHARED_BEAM_SIZE:
            memories, kv_caches = self.per_row()
            return self.from_memories(memories, self.start_positions, kv_caches)
        memories, kv_caches = select_rows(self[:2], torch.from_numpy(sentences))
        sentence_index = torch.from_numpy(np.arange(len(sentences)).repeat(counts))
        return type(self)(memories, kv_caches, sentence_index, *self[3:])

    def next_visible(self) -> VisiblePositions | None:
        """Return the mask after a step in which each row adds a position to its sentence."""
        num_rows = len(self.start_positions)
        beam_size = num_rows // self.num_sentences
        visible = self.visible
        if visible is None:
            if beam_size == 1:
                return None
            num_cached = 0 if self.kv_caches is None else self.kv_caches[0].values.size(-2)
            visible = torch.ones(num_rows, num_cached, dtype=torch.bool)
        added = torch.eye(beam_size, dtype=torch.bool).repeat(self.num_sentences, 1)
        return torch.cat([visible, added], dim=1)

    def per_row(self) -> tuple[tuple[Memory, ...], tuple[KVCache, ...] | None]:
        """Return memories and caches with one row for each hypothesis."""
        memories, kv_caches = select_rows(self[:2], self.sentence_index)
        if self.visible is not None:
            # All rows have the same number of visible positions.
            positions = self.visible.nonzero()[:, 1].view(len(self.start_positions), 1, -1, 1)
            kv_caches = map_tensors(lambda cache: cache.take_along_dim(positions, -2), kv_caches)
        return memories, kv_caches


class PackedEngine(StepEngine):
    """Layers with packed weights, in which a residual sum is part of a product."""

    def __init__(self, stack: TransformerStack) -> None:
        super().__init__(stack)
        sublayers = [layer.cross_attention for layer in stack.layers if layer.cross_attention]
        attentions = [multi_head_and_temperature(sublayer.attention)[0] for sublayer in sublayers]
        self.memory_projections = [
            (self._join_keys_and_values(heads), heads.num_heads) for heads in attentions
        ]

    @override
    def pack(self, linear: nn.Linear) -> PackedLinear:
        return PackedLinear.from_linear(linear)

    @override
    def pack_norm(self, norm: nn.Module) -> Callable[[Tensor], Tensor]:
        """Take the norm as a function; a layer norm without `nn.Module.__call__`."""
        if type(norm) is not nn.LayerNorm:
            return norm
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda inputs: torch.layer_norm(inputs, shape, weight, bias, eps)

    @override
    def join_projections(
        self, heads: MultiHeadAttention, temperature: float, *, is_self_attention: bool
    ) -> tuple[PackedLinear, float]:
        """Divide queries by the temperature and prepare keys: both are linear, so weights are."""
        query_projection = self.pack(heads.query_projection)
        projections = [query_projection.map_outputs(lambda outputs: outputs / temperature)]
        if is_self_attention:
            projections.append(self._join_keys_and_values(heads))
        return PackedLinear.concatenate(projections), 1.0

    def _join_keys_and_values(self, heads: MultiHeadAttention) -> PackedLinear:
        def prepare_keys(keys: Tensor) -> Tensor:
            return heads.score.prepare_keys(keys.unflatten(-1, (heads.num_heads, -1))).flatten(-2)

        key_projection = self.pack(heads.key_projection).map_outputs(prepare_keys)
        return PackedLinear.concatenate([key_projection, self.pack(heads.value_projection)])

    @override
    def activate(self, feed_forward: StepFeedForward, inputs: RowVectors) -> RowVectors:
        return activate_inplace(feed_forward.activation, feed_forward.input_projection(inputs))

    @override
    def connect(
        self, stream: RowVectors, projection: Any, hidden: RowVectors | None, norm: Any
    ) -> tuple[RowVectors, RowVectors]:
        sums = stream if hidden is None else projection.add_to(stream, hidden)
        return sums, sums if norm is None else norm(sums)


class SharedCaches(StepCaches):
    """Memories and caches with one row per sentence, for multiple rows of a step.

    `visible` tells for each row which of the P positions, its own included, belong to its
    hypothesis. `next_caches` are those after the step.
    """

    def __init__(
        self,
        num_sentences: int,
        memories: Sequence[Memory],
        kv_caches: Sequence[KVCache | None],
        visible: VisiblePositions | None = None,
    ) -> None:
        self.num_sentences, self.memories, self.kv_caches = num_sentences, memories, kv_caches
        self.visible = visible
        if visible is not None:
            self.visible = visible.view(num_sentences, 1, -1, visible.size(1))
        self.next_caches: list[KVCache] = []

    @override
    def attend_to_cache(
        self, index: int, attention: StepAttention, projected: RowVectors
    ) -> tuple[RowVectors, Float[Tensor, "F H K P"]]:
        head_size = projected.size(1) // (3 * attention.num_heads)
        split_heads = projected.view(self.num_sentences, -1, 3, attention.num_heads, head_size)
        queries, keys, values = split_heads.permute(2, 0, 3, 1, 4)  # (F, H, K, head size) each
        cache, earlier = GrowingCache(values, keys), self.kv_caches[index]
        if earlier is not None:
            owner = earlier if isinstance(earlier, GrowingCache) else GrowingCache(*earlier)
            cache = owner.append(cache)
        self.next_caches.append(cache)
        scores = _batched_product(queries, cache.keys.mT)
        if self.visible is not None:
            scores = mask_scores(scores, self.visible)
        weights = scores.softmax(dim=-1)
        return _read(weights, cache.values), weights

    @override
    def attend_to_memory(
        self, index: int, attention: StepAttention, queries: RowVectors, *, need_weights: bool
    ) -> tuple[RowVectors, Float[Tensor, "F H K S"]]:
        memory = self.memories[index]
        num_sentences, num_heads, _, size = memory.keys.shape
        head_queries = queries.view(num_sentences, -1, num_heads, size).transpose(1, 2)
        scores = mask_scores(_batched_product(head_queries, memory.keys.mT), memory.mask)
        weights = scores.softmax(dim=-1).mul_(memory.mask)
        return _read(weights, memory.values), weights


def _read(weights: Float[Tensor, "F H K S"], values: Float[Tensor, "F H S V"]) -> RowVectors:
    """Return the contexts of all rows, heads side by side."""
    contexts = _batched_product(weights, values).transpose(1, 2)  # (F, K, H, V)
    return contexts.reshape(-1, values.size(1) * values.size(3))


def _batched_product(
    rows: Float[Tensor, "F H K X"], matrices: Float[Tensor, "F H X N"]
) -> Float[Tensor, "F H K N"]:
    """Return rows @ matrices; `@` itself would expand and copy both."""
    products = torch.bmm(rows.flatten(0, 1), matrices.flatten(0, 1))
    return products.view(*rows.shape[:-1], matrices.size(-1))


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


class PackedTransformerStack(InferenceModule, ContiguousMemoryStack):
    """A stack of standard layers that skips padding and packs weights for single positions."""

    derived = ("_engine",)
    _engine: PackedEngine | None = None

    def step_engine(self, inputs: Tensor) -> PackedEngine | None:
        """Return the packed layers, or None where the plain ones must run."""
        if inputs.device.type != "cpu" or not self.is_inference("cpu"):
            return None
        self._engine = self._engine or PackedEngine(self)
        return self._engine

    @override
    def build_memory(
        self,
        states: Values,
        mask: AnyMask = None,
        keys: Values | None = None,
        layer_states: Sequence[Values] = (),
    ) -> Memories:
        has_positions_only = mask is None or mask.dim() == 2 or mask.size(1) == 1
        engine = self.step_engine(states) if keys is None and not layer_states else None
        if engine is None or not has_positions_only:
            return super().build_memory(states, mask, keys, layer_states)
        positions = mask if mask is None or mask.dim() == 2 else mask.squeeze(1)
        unpadding, buffer = Unpadding.from_mask(check_padding_mask(positions, states)), None
        tokens, memories = unpadding.unpad(states), []
        for projection, num_heads in engine.memory_projections:
            buffer = unpadding.pad(projection(tokens), buffer)
            split_heads = buffer.unflatten(-1, (2, num_heads, -1)).permute(2, 0, 3, 1, 4)
            keys, values = split_heads.clone(memory_format=torch.contiguous_format)
            memories.append(Memory(values, keys, unpadding.mask[:, None, None]))
        return tuple(memories)

    @override
    def forward_bidirectional(
        self, inputs: HiddenStates, lengths: Lengths, layer_inputs: list[Tensor] | None = None
    ) -> OutputsWithLosses:
        engine = self.step_engine(inputs) if layer_inputs is None else None
        is_bfloat16 = inputs.dtype == torch.bfloat16  # scores of a search differed by 0.052
        if engine is None or is_bfloat16 or engine.memory_projections:  # of causal layers
            return super().forward_bidirectional(inputs, lengths, layer_inputs)
        positions = torch.arange(inputs.size(1), device=inputs.device)
        unpadding = Unpadding.from_mask(positions < lengths.unsqueeze(1))
        outputs, _ = engine.run(unpadding.unpad(inputs), UnpaddedAttention(unpadding))
        return unpadding.pad(outputs), NO_AUXILIARY_LOSSES

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
        engine = self.step_engine(inputs) if is_step else None
        kv_caches = [layer.cache.kv_cache for layer in state.layers]
        num_cached = 0 if kv_caches[0] is None else kv_caches[0].values.size(-2)
        if engine is None or not bool((state.start_positions == num_cached).all()):
            return super().forward(
                inputs,
                lengths,
                state,
                memories,
                need_weights=need_weights,
                layer_inputs=layer_inputs,
            )
        caches = SharedCaches(len(inputs), memories, kv_caches)
        outputs, weights = engine.run(inputs.squeeze(1), caches)
        assert weights is not None
        return TransformerStackOutput(
            outputs.unsqueeze(1),
            weights.mean(dim=1) if need_weights else None,  # over the heads
            (),
            NO_AUXILIARY_LOSSES,
            build_stack_state(caches.next_caches, state.start_positions + lengths),
        )


class PackedTransformerDecoder(TransformerDecoder):
    """A decoder whose hypotheses share the caches of their sentence."""

    stack: PackedTransformerStack

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        state = super().initial_state(encoder_output)
        if self.stack.step_engine(encoder_output.states) is None:
            return state
        return BeamSharedState.from_memories(state.memories, state.stack_state.start_positions)

    @override
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        if not isinstance(state, BeamSharedState):
            return super().step(tokens, state)
        engine = self.stack.step_engine(tokens)
        if engine is None:
            memories, kv_caches = state.per_row()
            no_caches = [None] * len(memories)
            stack_state = build_stack_state(kv_caches or no_caches, state.start_positions)
            return super().step(tokens, TransformerDecoderState(stack_state, memories))
        state = state.regroup()
        if len(tokens) > tuning.MAX_ROWS_OF_PLAIN_KEYS * state.num_sentences:
            transposed = (
                part._replace(keys=part.keys.mT.contiguous().mT) for part in state.memories
            )
            state = state._replace(memories=tuple(transposed))
        visible = state.next_visible()
        earlier = state.kv_caches or (None,) * len(state.memories)
        caches = SharedCaches(state.num_sentences, state.memories, earlier, visible)
        embedded = self.embedding(tokens.unsqueeze(1), state.start_positions).squeeze(1)
        outputs, weights = engine.run(embedded, caches)
        assert weights is not None
        weights = weights.mean(dim=1).view(len(tokens), 1, -1)  # over the heads
        log_probs = self.output_head(outputs.unsqueeze(1), weights)
        next_state = state._replace(
            kv_caches=tuple(caches.next_caches),
            visible=visible,
            start_positions=state.start_positions + 1,
        )
        return StepOutput(log_probs.squeeze(1), next_state, weights.squeeze(1))

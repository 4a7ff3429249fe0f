""""""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.acceleration.dispatch import Sublayers
    from heedful.acceleration.transformer import PackedLayers

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from heedful.acceleration.packed_weights import cached_pack, can_pack
from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES, sum_losses
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.dot_product_scores import ScaledDotScoreConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.outputs import AlignmentOutput, AttentionState, Memory
from heedful.attention.positional_encoding import (
    PositionalEncodingConfig,
    SinusoidalEncodingConfig,
)
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.feed_forward import FeedForwardConfig, PositionwiseLayer
from heedful.layers.mixture_of_experts import MoEFeedForwardConfig
from heedful.layers.self_attention import (
    FullSelfAttentionConfig,
    SelfAttention,
    SelfAttentionCache,
    SelfAttentionConfig,
)
from heedful.pytree import map_tensors
from heedful.shapes import Bool, Float, Int

PositionwiseLayerConfig = Annotated[
    FeedForwardConfig | MoEFeedForwardConfig,
    Field(discriminator="type"),
    with_default_type("plain"),
]


# Residual sublayers: what goes past a change, and where it is normalised.
#
#     after    norm(x + change(x))   (Vaswani et al. 2017: "post-norm")
#     before   x + change(norm(x))   (Xiong et al. 2020: "pre-norm"; the last sum wants a norm too)
#
# A sublayer `enter`s, changes what it got, and `leave`s.

NormOrder = Literal["pre", "post"]
NormType = Literal["layer", "rms"]


def build_norm(norm_type: NormType, size: int, *, eps: float) -> nn.Module:
    """Make a norm: of mean and variance (Ba et al. 2016) or of the square alone (Zhang 2019)."""
    return nn.LayerNorm(size, eps=eps) if norm_type == "layer" else nn.RMSNorm(size, eps=eps)


class SublayerConnection(nn.Module):
    """A path past a change, with dropout on what is added.

    With `skipped` above zero a row goes past the change untouched that often in training, and
    what is added to the others counts for more, so that its mean stays (Huang et al. 2016,
    stochastic depth). Rows are drawn one by one: neighbours have no say.
    """

    def __init__(
        self, norm: nn.Module, *, norm_order: NormOrder, dropout: float, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = norm
        self.placement = norm_order
        self.dropout = nn.Dropout(dropout)
        self.drop_path = drop_path

    def sublayer_input(self, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Give what is to be changed."""
        return self.norm(inputs) if self.placement == "pre" else inputs

    def add_residual(
        self, inputs: Float[Tensor, "*B D"], update: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "*B D"]:
        """Add what came of it to what went past."""
        outputs = inputs + self._apply_drop_path(self.dropout(update))
        return self.norm(outputs) if self.placement == "post" else outputs

    def _apply_drop_path(self, update: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        if not (self.training and self.drop_path):
            return update
        is_kept = torch.rand(len(update), 1, 1, device=update.device) >= self.drop_path
        return update * is_kept / (1 - self.drop_path)


# Transformer layers: look at one another, look at a source, think; again and again.
#
# A stack of them reads whole sequences both ways (an encoder), or from left to right with a cache
# (a reader, and, where there is a source to look at, a decoder).


class CrossAttentionOutput(NamedTuple):
    """What places found in a source, and where."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None
    alignment: AlignmentOutput | None
    state: AttentionState | None


class CrossAttention(nn.Module):
    """The sublayer that looks at a source."""

    def __init__(self, attention: Attention, residual: SublayerConnection) -> None:
        super().__init__()
        self.attention = attention
        self.residual = residual

    def initial_state(self, memory: Memory) -> AttentionState | None:
        """Nothing has been asked of this source; None where that makes no difference."""
        return self.attention.initial_state(memory) if self.attention.needs_positions else None

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        memory: Memory,
        state: AttentionState | None,
        *,
        need_weights: bool,
    ) -> CrossAttentionOutput:
        """Look at the source from every place."""
        queries = self.residual.sublayer_input(inputs)
        needs_weights = need_weights or self.attention.has_auxiliary_losses
        attended = self.attention(queries, memory, state, need_weights=needs_weights)
        outputs = self.residual.add_residual(inputs, attended.context)
        return CrossAttentionOutput(outputs, attended.weights, attended.alignment, attended.state)


class TransformerLayerState(NamedTuple):
    """What one layer carries from one place to the next."""

    cache: SelfAttentionCache
    cross_attention_state: AttentionState | None = (
        None  # what has been asked of the source, where that counts
    )


class TransformerLayerOutput(NamedTuple):
    """What one layer made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where its last attention looked
    alignment: AlignmentOutput | None  # all that is known of where it looked in a source
    auxiliary_losses: Mapping[str, Float[Tensor, ""]]
    state: TransformerLayerState


class TransformerLayer(nn.Module):
    """Self-attention, attention to a source if there is one, and a feed-forward network."""

    def __init__(
        self,
        self_attention: SelfAttention,
        self_attention_residual: SublayerConnection,
        feed_forward: PositionwiseLayer,
        feed_forward_residual: SublayerConnection,
        cross_attention: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = self_attention_residual
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    @property
    def sublayers(self) -> Sublayers:
        """What this layer is made of."""
        from heedful.acceleration.dispatch import Sublayers

        source = self.cross_attention
        return Sublayers(
            self.self_attention,
            self.self_attention_residual,
            (source.attention, source.residual) if source else None,
            self.feed_forward,
            self.feed_forward_residual,
        )

    def forward_bidirectional(
        self,
        inputs: Float[Tensor, "B S D"],
        lengths: Int[Tensor, "B"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B S D"], Mapping[str, Float[Tensor, ""]]]:
        """Read whole sequences; give also what is added to the loss."""
        sublayer_inputs = self.self_attention_residual.sublayer_input(inputs)
        attended = self.self_attention.forward_bidirectional(sublayer_inputs, lengths)
        return self._feed_forward(self.self_attention_residual.add_residual(inputs, attended), mask)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        state: TransformerLayerState,
        positions: BatchPositions,
        memory: Memory | None = None,
        *,
        need_weights: bool = False,
    ) -> TransformerLayerOutput:
        """Read on from a state."""
        sublayer_inputs = self.self_attention_residual.sublayer_input(inputs)
        needs_self_weights = need_weights and memory is None
        attended = self.self_attention(
            sublayer_inputs,
            state.cache,
            positions.start_positions,
            positions.lengths,
            need_weights=needs_self_weights,
        )
        outputs = self.self_attention_residual.add_residual(inputs, attended.outputs)
        weights, aligned, past = attended.weights, None, None
        if self.cross_attention is not None and memory is not None:
            outputs, weights, aligned, past = self.cross_attention(
                outputs, memory, state.cross_attention_state, need_weights=need_weights
            )
        outputs, auxiliary_losses = self._feed_forward(outputs, positions.mask)
        return TransformerLayerOutput(
            outputs, weights, aligned, auxiliary_losses, TransformerLayerState(attended.cache, past)
        )

    def _feed_forward(
        self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], Mapping[str, Float[Tensor, ""]]]:
        feed_forward_output = self.feed_forward(
            self.feed_forward_residual.sublayer_input(inputs), mask
        )
        return self.feed_forward_residual.add_residual(
            inputs, feed_forward_output.outputs
        ), feed_forward_output.auxiliary_losses


class BatchPositions(NamedTuple):
    """Which places of their sequences the columns of a batch are."""

    start_positions: Int[Tensor, "B"]  # the number of each row's first
    lengths: Int[Tensor, "B"]  # how many of a row's are there
    mask: Bool[Tensor, "B T"]  # which of them are

    @classmethod
    def from_lengths(
        cls,
        inputs: Float[Tensor, "B T D"],
        start_positions: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
    ) -> BatchPositions:
        """Say which columns of these inputs are there."""
        columns = torch.arange(inputs.size(1), device=inputs.device)
        return cls(start_positions, lengths, columns < lengths.unsqueeze(1))


class TransformerStackState(NamedTuple):
    """What a stack carries from one place to the next."""

    layers: tuple[TransformerLayerState, ...]
    start_positions: Int[Tensor, "B"]  # the number of the next place


class TransformerStackOutput(NamedTuple):
    """What a stack made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where the top layer looked last
    attention_records: tuple[
        tuple[Attention, AlignmentOutput], ...
    ]  # where was looked in a source, as far as made
    auxiliary_losses: Mapping[str, Float[Tensor, ""]]
    state: TransformerStackState


class TransformerStack(nn.Module):
    """Layers on top of one another; where they are normalised before, the sum is at the end."""

    def __init__(self, layers: Sequence[TransformerLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    @property
    def _layers(self) -> Iterable[TransformerLayer]:
        return cast(Iterable[TransformerLayer], self.layers)

    @property
    def is_stateful(self) -> bool:
        """Whether where a place looks within depends on where those before it looked."""
        return any(layer.self_attention.attention.is_stateful for layer in self._layers)

    def build_memory(
        self,
        states: Float[Tensor, "B S V"],
        mask: Bool[Tensor, "B 1 S"],
        keys: Float[Tensor, "B S V"] | None = None,
    ) -> tuple[Memory, ...]:
        """Make a source ready to be looked at, by each layer."""
        from heedful.acceleration.transformer import build_memories_unpadded

        if keys is None and self._can_skip_padding(states):
            return build_memories_unpadded(self._sublayers, states, mask.squeeze(1))
        sublayers = [layer.cross_attention for layer in self._layers]
        attended = tuple(
            each.attention.build_memory(states, mask, keys=keys) for each in sublayers if each
        )
        # Products would copy what heads see, which lies apart, again at every step.
        return attended if self.training else map_tensors(Tensor.contiguous, attended)

    def initial_state(
        self, inputs: Float[Tensor, "B T D"], memories: Sequence[Memory] = ()
    ) -> TransformerStackState:
        """Make the state of having read nothing, for as many rows as these."""
        states = list[TransformerLayerState]()
        for number, layer in enumerate(self._layers):
            sought, cache = layer.cross_attention, layer.self_attention.initial_state(inputs)
            past = sought.initial_state(memories[number]) if sought and memories else None
            states.append(TransformerLayerState(cache, past))
        zero_positions = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return TransformerStackState(tuple(states), zero_positions)

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B S D"], Mapping[str, Float[Tensor, ""]]]:
        """Read whole sequences; give also what is added to the loss."""
        from heedful.acceleration.transformer import encode_unpadded

        mask = BatchPositions.from_lengths(inputs, torch.zeros_like(lengths), lengths).mask
        if self._can_skip_padding(inputs):
            return self.apply_final_norm(
                encode_unpadded(self._sublayers, inputs, mask)
            ), NO_AUXILIARY_LOSSES
        auxiliary_losses = list[Mapping[str, Tensor]]()
        for layer in self._layers:
            inputs, attended = layer.forward_bidirectional(inputs, lengths, mask)
            auxiliary_losses.append(attended)
        return self.apply_final_norm(inputs), sum_losses(*auxiliary_losses)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        lengths: Int[Tensor, "B"],
        state: TransformerStackState,
        memories: Sequence[Memory] = (),
        *,
        need_weights: bool = False,
    ) -> TransformerStackOutput:
        """Read on from a state, with the top layer's weights where they are needed."""
        packed = self.packed_layers(inputs) if inputs.size(1) == 1 else None
        if packed is not None and _continues_cache_everywhere(state):
            kv_cache = [layer.cache.kv_cache for layer in state.layers]
            read = packed.step(inputs.squeeze(1), kv_cache, memories, need_weights=need_weights)
            kept = tuple(TransformerLayerState(SelfAttentionCache(each)) for each in read.kv_caches)
            after = TransformerStackState(kept, state.start_positions + lengths)
            return TransformerStackOutput(
                self.apply_final_norm(read.outputs), read.weights, (), {}, after
            )
        places = BatchPositions.from_lengths(inputs, state.start_positions, lengths)
        layer_outputs, attention_records = (
            list[TransformerLayerOutput](),
            list[tuple[Attention, AlignmentOutput]](),
        )
        for number, layer in enumerate(self._layers):
            layer_outputs.append(
                layer(
                    layer_outputs[-1].outputs if layer_outputs else inputs,
                    state.layers[number],
                    places,
                    memories[number] if memories else None,
                    need_weights=need_weights and number == len(self.layers) - 1,
                )
            )
            if layer.cross_attention is not None and layer_outputs[-1].alignment is not None:
                attention_records.append(
                    (layer.cross_attention.attention, layer_outputs[-1].alignment)
                )
        return TransformerStackOutput(
            self.apply_final_norm(layer_outputs[-1].outputs),
            layer_outputs[-1].weights,
            tuple(attention_records),
            sum_losses(*(each.auxiliary_losses for each in layer_outputs)),
            TransformerStackState(
                tuple(each.state for each in layer_outputs), state.start_positions + lengths
            ),
        )

    def _can_skip_padding(self, inputs: Float[Tensor, "B S D"]) -> bool:
        """Whether nothing is to be learned from it; a GPU would wait to be told the real places."""
        from heedful.acceleration.dispatch import are_standard_layers, forward_hooks

        is_read = not torch.is_grad_enabled() and not self.training
        layers = self._sublayers
        return (
            is_read
            and inputs.device.type == "cpu"
            and are_standard_layers(layers)
            and not any(forward_hooks(layers))
        )

    def packed_layers(self, inputs: Tensor) -> PackedLayers | None:
        """The layers as they read one place of every row, where they have such a form."""
        from heedful.acceleration.transformer import pack_layers

        if self.training or not can_pack(inputs):
            return None
        layers = cached_pack(self, lambda: pack_layers(self._sublayers))
        return None if layers is None or layers.has_forward_hooks else layers

    @property
    def _sublayers(self) -> list[Sublayers]:
        return [layer.sublayers for layer in self._layers]

    def apply_final_norm(self, outputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """What is left to do on top of the layers."""
        return outputs if self.norm is None else self.norm(outputs)


def _continues_cache_everywhere(state: TransformerStackState) -> bool:
    """Whether the next place of each row is right behind what all rows hold."""
    kv_cache = state.layers[0].cache.kv_cache
    num_held = 0 if kv_cache is None else kv_cache.values.size(-2)
    return bool((state.start_positions == num_held).all())


# A stack of Transformer layers, as a configuration describes it.

Probability = Annotated[float, Field(ge=0, lt=1)]
DEFAULT_ATTENTION = AttentionConfig(
    score=ScaledDotScoreConfig(), multi_head=MultiHeadConfig(num_heads=8)
)


class TransformerConfigBase(BaseConfig):
    """Layers of self-attention and feed-forward networks (Vaswani et al. 2017)."""

    hidden_size: PositiveInt = 512
    """Width of a place, from the embedding to the last layer."""
    num_layers: PositiveInt = 6
    """Layers on top of one another."""
    attention: AttentionConfig = DEFAULT_ATTENTION
    """How places look at one another."""
    attention_types: tuple[SelfAttentionConfig, ...] = Field(
        default=(FullSelfAttentionConfig(),), min_length=1
    )
    """How far places see, layer by layer, and from the first again when the list is over."""
    feed_forward: tuple[PositionwiseLayerConfig, ...] = Field(
        default=(FeedForwardConfig(),), min_length=1
    )
    """What places make of themselves, layer by layer, and from the first again."""
    norm: NormType = "layer"
    """What is normalised: mean and variance (layer), or the mean square alone (rms)."""
    norm_order: NormOrder = "post"
    """Whether sublayers are normalised after (the paper) or before what they do."""
    norm_eps: PositiveFloat = 1e-5
    """What is added to a variance lest it be zero."""
    dropout: Probability = 0.1
    """Share of values dropped from embeddings, and from what each sublayer adds."""
    drop_path: Probability = 0.0
    """How often the top layer is skipped in training; lower ones less (Huang et al. 2016)."""

    def build_stack(
        self, *, config_path: str, make_cross_attention: Callable[[], Attention] | None = None
    ) -> TransformerStack:
        """Make the layers, each with attention to a source if it is said how that is made."""
        layers = [
            self._build_layer(number, config_path, make_cross_attention)
            for number in range(self.num_layers)
        ]
        return TransformerStack(layers, self._build_norm() if self.norm_order == "pre" else None)

    def _build_layer(
        self, number: int, config_path: str, make_cross_attention: Callable[[], Attention] | None
    ) -> TransformerLayer:
        span = self.attention_types[number % len(self.attention_types)]
        feed_forward = self.feed_forward[number % len(self.feed_forward)]
        return TransformerLayer(
            span.build(self._build_self_attention(config_path), size=self.hidden_size),
            self._build_sublayer_connection(number),
            feed_forward.build(size=self.hidden_size),
            self._build_sublayer_connection(number),
            make_cross_attention
            and CrossAttention(make_cross_attention(), self._build_sublayer_connection(number)),
        )

    def _build_self_attention(self, config_path: str) -> Attention:
        return build_self_attention(
            self.attention,
            query_size=self.hidden_size,
            memory_size=self.hidden_size,
            config_path=f"{config_path}.attention",
        )

    def _build_sublayer_connection(self, number: int) -> SublayerConnection:
        return SublayerConnection(
            self._build_norm(),
            norm_order=self.norm_order,
            dropout=self.dropout,
            drop_path=self.drop_path * (number + 1) / self.num_layers,
        )

    def _build_norm(self) -> nn.Module:
        return build_norm(self.norm, self.hidden_size, eps=self.norm_eps)


class EmbeddedTransformerConfigBase(TransformerConfigBase):
    """Transformer layers over words that are told their places."""

    positional_encoding: PositionalEncodingConfig | None = SinusoidalEncodingConfig()
    """How words are told their places; if not given, only a score that knows distances does."""
    scale_embeddings: bool = True
    """Whether words are multiplied by the root of the width (Vaswani et al. 2017), or not
    (Devlin et al. 2019)."""
    embedding_norm: bool = False
    """Whether embeddings are normalised before the first layer (Devlin et al. 2019)."""

    def build_embedding(self, vocab_size: int) -> TokenEmbedding:
        """Make the embedding, for a table that may be shared with an emission."""
        position_combiner = (
            self.positional_encoding.build(embedding_size=self.hidden_size)
            if self.positional_encoding
            else None
        )
        return TokenEmbedding(
            vocab_size,
            self.hidden_size,
            dropout=self.dropout,
            position_combiner=position_combiner,
            scale_embeddings=self.scale_embeddings,
            norm=self._build_norm() if self.embedding_norm else None,
        )

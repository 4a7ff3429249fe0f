"""Transformer layers and stacks, for encoders, decoders and language models.

A stack reads sequences bidirectionally, or causally with a cache, with cross-attention if it has
memories of a source. A sublayer is norm(x + f(x)) with `norm_order` "post" (Vaswani et al. 2017), x
+ f(norm(x)) with "pre", where the stack ends in a norm (Xiong et al. 2020). Invariant: a causal
stack gives the same outputs for a sequence read at once and chunk by chunk.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.alignments import AlignmentOutput
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.masks import check_padding_mask, padding_mask
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.positional_encoding import PositionalEncodingConfig, SinusoidalEncodingConfig
from heedful.attention.scores import ScaledDotScoreConfig
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.mixture_of_experts import MoEFeedForwardConfig
from heedful.layers.self_attention import (
    BatchPositions,
    FullSelfAttentionConfig,
    SelfAttention,
    SelfAttentionCache,
    SelfAttentionConfig,
)
from heedful.layers.sublayers import (
    CrossAttention,
    FeedForwardConfig,
    NormOrder,
    PositionwiseLayer,
    SublayerConnection,
)
from heedful.pytree import sum_losses
from heedful.shapes import AnyMask, Float, HiddenStates, Int, Lengths, Losses, TargetMask, Values

NormType = Literal["layer", "rms"]
Probability = Annotated[float, Field(ge=0, lt=1)]
Memories = tuple[Memory, ...]
"""The memory of each layer with cross-attention."""
OutputsWithLosses = tuple[HiddenStates, Losses]


class TransformerLayerState(NamedTuple):
    """State of a layer between positions."""

    cache: SelfAttentionCache
    cross_attention_state: AttentionState | None = None  # where attention depends on it


class TransformerLayerOutput(NamedTuple):
    """Output of a layer."""

    outputs: HiddenStates
    weights: Float[Tensor, "B T S"] | None  # of its last attention
    alignment: AlignmentOutput | None  # of cross-attention
    auxiliary_losses: Losses
    state: TransformerLayerState


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention if there is a source, and a feed-forward network."""

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

    def forward_bidirectional(
        self, inputs: HiddenStates, mask: AnyMask = None
    ) -> OutputsWithLosses:
        """Read whole sequences; return outputs and auxiliary losses. The mask is (B, T)."""
        mask = check_padding_mask(mask, inputs)
        queries = self.self_attention_residual.sublayer_input(inputs)
        attended = self.self_attention.forward_bidirectional(queries, mask)
        return self._feed_forward(self.self_attention_residual.add_residual(inputs, attended), mask)

    def forward(
        self,
        inputs: HiddenStates,
        state: TransformerLayerState,
        positions: BatchPositions,
        memory: Memory | None = None,
        *,
        need_weights: bool = False,
    ) -> TransformerLayerOutput:
        """Read the next positions causally."""
        queries = self.self_attention_residual.sublayer_input(inputs)
        need_self_weights = need_weights and memory is None
        attended, weights, cache = self.self_attention(
            queries, state.cache, positions, need_weights=need_self_weights
        )
        outputs = self.self_attention_residual.add_residual(inputs, attended)
        alignment = cross_attention_state = None
        if self.cross_attention is not None and memory is not None:
            outputs, attention_output = self.cross_attention(
                outputs, memory, state.cross_attention_state, need_weights=need_weights
            )
            _, weights, alignment, cross_attention_state = attention_output
        outputs, auxiliary_losses = self._feed_forward(outputs, positions.mask)
        next_state = TransformerLayerState(cache, cross_attention_state)
        return TransformerLayerOutput(outputs, weights, alignment, auxiliary_losses, next_state)

    def _feed_forward(self, inputs: HiddenStates, mask: TargetMask) -> OutputsWithLosses:
        residual = self.feed_forward_residual
        output = self.feed_forward(residual.sublayer_input(inputs), mask)
        return residual.add_residual(inputs, output.outputs), output.auxiliary_losses


class TransformerStackState(NamedTuple):
    """State of a stack between positions."""

    layers: tuple[TransformerLayerState, ...]
    start_positions: Int[Tensor, "B"]  # of the next positions


class TransformerStackOutput(NamedTuple):
    """Output of a stack."""

    outputs: HiddenStates
    weights: Float[Tensor, "B T S"] | None  # of the last attention of the top layer, or of another
    attention_records: tuple[tuple[Attention, AlignmentOutput], ...]
    """Alignments of cross-attention, for the layers that computed them."""
    auxiliary_losses: Losses
    state: TransformerStackState


class TransformerStack(nn.Module):
    """Transformer layers, and with pre-norm a norm of their output."""

    def __init__(
        self,
        layers: Sequence[TransformerLayer],
        norm: nn.Module | None,
        *,
        alignment_layer: int | None = None,
        num_alignment_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = cast(Sequence[TransformerLayer], nn.ModuleList(layers))
        self.norm = norm
        self.alignment_layer = alignment_layer  # index of the layer whose weights are returned
        self.num_alignment_heads = num_alignment_heads  # of which the weights are the mean

    @property
    def has_alignment_heads(self) -> bool:
        """Whether the weights come from other heads than all of the top layer."""
        return self.alignment_layer is not None or self.num_alignment_heads is not None

    @property
    def is_stateful(self) -> bool:
        """Whether self-attention depends on where earlier positions attended."""
        return any(layer.self_attention.attention.is_stateful for layer in self.layers)

    def build_memory(
        self,
        states: Values,
        mask: AnyMask = None,
        keys: Values | None = None,
        layer_states: Sequence[Values] = (),
    ) -> Memories:
        """Return the memory of a source for each layer with cross-attention.

        With `layer_states`, one per layer, each layer attends to its own instead of to `states`.
        """
        sublayers = [layer.cross_attention for layer in self.layers if layer.cross_attention]
        values = layer_states or [states] * len(sublayers)
        return tuple(
            sublayer.attention.build_memory(value, mask, keys=keys)
            for sublayer, value in zip(sublayers, values, strict=True)
        )

    def initial_state(
        self, inputs: HiddenStates, memories: Sequence[Memory] = ()
    ) -> TransformerStackState:
        """Return the state before the first position, for as many rows as the inputs have."""
        states: list[TransformerLayerState] = []
        for index, layer in enumerate(self.layers):
            cross_attention_state = None
            if layer.cross_attention and memories:
                cross_attention_state = layer.cross_attention.initial_state(memories[index])
            cache = layer.self_attention.initial_state(inputs)
            states.append(TransformerLayerState(cache, cross_attention_state))
        start_positions = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return TransformerStackState(tuple(states), start_positions)

    def forward_bidirectional(
        self, inputs: HiddenStates, lengths: Lengths, layer_inputs: list[Tensor] | None = None
    ) -> OutputsWithLosses:
        """Read whole sequences; return outputs and auxiliary losses.

        The input of each layer is appended to `layer_inputs`.
        """
        mask = padding_mask(lengths, inputs.size(1)).squeeze(1)
        layer_losses: list[Losses] = []
        for layer in self.layers:
            if layer_inputs is not None:
                layer_inputs.append(inputs)
            inputs, losses = layer.forward_bidirectional(inputs, mask)
            layer_losses.append(losses)
        return self.apply_final_norm(inputs), sum_losses(*layer_losses)

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
        """Read the next positions causally; `need_weights` asks for the weights of one layer.

        The input of each layer is appended to `layer_inputs`.
        """
        positions = BatchPositions.from_lengths(inputs, state.start_positions, lengths)
        layer_outputs: list[TransformerLayerOutput] = []
        records: list[tuple[Attention, AlignmentOutput]] = []
        top = len(self.layers) - 1
        alignment_layer = top if self.alignment_layer is None else self.alignment_layer
        for index, layer in enumerate(self.layers):
            layer_input = layer_outputs[-1].outputs if layer_outputs else inputs
            if layer_inputs is not None:
                layer_inputs.append(layer_input)
            output = layer(
                layer_input,
                state.layers[index],
                positions,
                memories[index] if memories else None,
                need_weights=need_weights and index == alignment_layer,
            )
            layer_outputs.append(output)
            if layer.cross_attention is not None and output.alignment is not None:
                records.append((layer.cross_attention.attention, output.alignment))
        layer_states = tuple(output.state for output in layer_outputs)
        aligned = layer_outputs[alignment_layer]
        weights = aligned.weights
        if self.num_alignment_heads and weights is not None and aligned.alignment is not None:
            weights = aligned.alignment.weights[:, : self.num_alignment_heads].mean(dim=1)
        return TransformerStackOutput(
            self.apply_final_norm(layer_outputs[-1].outputs),
            weights,
            tuple(records),
            sum_losses(*(output.auxiliary_losses for output in layer_outputs)),
            TransformerStackState(layer_states, state.start_positions + lengths),
        )

    def apply_final_norm(self, outputs: HiddenStates) -> HiddenStates:
        """Normalize the output of the top layer, with pre-norm."""
        return outputs if self.norm is None else self.norm(outputs)


PositionwiseLayerConfig = Annotated[
    FeedForwardConfig | MoEFeedForwardConfig,
    Field(discriminator="type"),
    with_default_type("plain"),
]
DEFAULT_ATTENTION = AttentionConfig(score=ScaledDotScoreConfig(), multi_head=MultiHeadConfig())


class TransformerConfigBase(BaseConfig):
    """Layers of self-attention and feed-forward networks (Vaswani et al. 2017)."""

    hidden_size: PositiveInt = 512
    """Size of embeddings and of the outputs of all layers."""
    num_layers: PositiveInt = Field(default=6, le=1000)
    """Number of layers."""
    attention: AttentionConfig = DEFAULT_ATTENTION
    """Self-attention of all layers."""
    attention_types: tuple[SelfAttentionConfig, ...] = Field(
        default=(FullSelfAttentionConfig(),), min_length=1
    )
    """Which positions self-attention sees, layer by layer; repeated if there are more layers."""
    feed_forward: tuple[PositionwiseLayerConfig, ...] = Field(
        default=(FeedForwardConfig(),), min_length=1
    )
    """Feed-forward sublayers, layer by layer; repeated if there are more layers."""
    norm: NormType = "layer"
    """LayerNorm (layer, Ba et al. 2016) or RMSNorm (rms, Zhang and Sennrich 2019)."""
    norm_order: NormOrder = "post"
    """Norm before each sublayer (pre) or after the residual sum (post, the paper's)."""
    norm_eps: PositiveFloat = 1e-5
    """Added to the variance in norms."""
    dropout: Probability = 0.1
    """Dropout probability of embeddings and of the output of each sublayer."""
    drop_path: Probability = 0.0
    """Probability of skipping the top layer in training; lower layers proportionally less (Huang et
    al. 2016)."""

    def build_stack(
        self,
        *,
        config_path: str,
        build_cross_attention: Callable[[], Attention] | None = None,
        alignment_layer: int | None = None,
        num_alignment_heads: int | None = None,
    ) -> TransformerStack:
        """Build the layers; with cross-attention if a function that builds it is given."""
        size, layers = self.hidden_size, []
        for index in range(self.num_layers):
            attention_type = self.attention_types[index % len(self.attention_types)]
            feed_forward = self.feed_forward[index % len(self.feed_forward)]
            attention = build_self_attention(self.attention, size, size, f"{config_path}.attention")
            layer = TransformerLayer(
                attention_type.build(attention, size=size),
                self._build_connection(index),
                feed_forward.build(size=size),
                self._build_connection(index),
                build_cross_attention
                and CrossAttention(build_cross_attention(), self._build_connection(index)),
            )
            layers.append(layer)
        return TransformerStack(
            layers,
            self._build_norm() if self.norm_order == "pre" else None,
            alignment_layer=alignment_layer,
            num_alignment_heads=num_alignment_heads,
        )

    def _build_connection(self, index: int) -> SublayerConnection:
        return SublayerConnection(
            self._build_norm(),
            norm_order=self.norm_order,
            dropout=self.dropout,
            drop_path=self.drop_path * (index + 1) / self.num_layers,
        )

    def _build_norm(self) -> nn.Module:
        norm_class = nn.LayerNorm if self.norm == "layer" else nn.RMSNorm
        return norm_class(self.hidden_size, eps=self.norm_eps)


class EmbeddedTransformerConfigBase(TransformerConfigBase):
    """Transformer layers with their token embedding."""

    positional_encoding: PositionalEncodingConfig | None = SinusoidalEncodingConfig()
    """Positional encoding of the tokens; null where the score of attention uses distances. Token
    embeddings have `hidden_size`, less the size of an encoding that is concatenated with them."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of their size (Vaswani et al. 2017), or do not (Devlin
    et al. 2019)."""
    embedding_norm: bool = False
    """Normalize embeddings before the first layer (Devlin et al. 2019)."""

    @model_validator(mode="after")
    def _check_concatenated_size(self) -> "EmbeddedTransformerConfigBase":
        encoding, size = self.positional_encoding, self.hidden_size
        if encoding is None or encoding.combine == "add":
            return self
        if encoding.size is None and size % 2:
            raise ValueError(
                f"a concatenated positional_encoding takes half of hidden_size, but {size} is odd: "
                f"set its size"
            )
        if encoding.token_size(size) < 1:
            raise ValueError(
                f"the size of a concatenated positional_encoding, {encoding.size}, must be smaller "
                f"than hidden_size {size}"
            )
        return self

    def build_embedding(self, vocab_size: int, *, num_segments: int = 0) -> TokenEmbedding:
        """Build the token embedding."""
        encoding = self.positional_encoding
        size = encoding.token_size(self.hidden_size) if encoding else self.hidden_size
        return TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=encoding.build(embedding_size=size) if encoding else None,
            scale_embeddings=self.scale_embeddings,
            norm=self._build_norm() if self.embedding_norm else None,
            num_segments=num_segments,
        )

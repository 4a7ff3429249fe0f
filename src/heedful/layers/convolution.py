"""Convolutional layers: gated ones for ConvS2S, dilated ones for ByteNet; batch norm of images.

(Gehring et al. 2017; Kalchbrenner et al. 2016; Ioffe and Szegedy 2015.) Invariant: padding has no
influence, and a causal layer gives the same outputs for a sequence read at once and in pieces, from
state to state.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.functional import conv1d, glu, linear, pad
from typing_extensions import override

from heedful.attention.masks import check_padding_mask
from heedful.attention.positional_encoding import (
    LearnedEncoding,
    LearnedEncodingConfig,
    PositionalEncodingConfig,
)
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.shapes import AnyMask, Float, LayerInputs, LayerOutputs

SQRT_HALF = math.sqrt(0.5)
"""Factor of every sum of two terms: it keeps their variance (Gehring et al. 2017, section 3.4)."""

EMBEDDING_STD = 0.1
"""Initial standard deviation of token and position embeddings (section 3.5)."""

TargetInputs = Float[Tensor, "B T E"]
TargetOutputs = Float[Tensor, "B T D"]
RecentInputs = Float[Tensor, "B R E"]
"""What a causal convolution reads before the first new position."""


class WeightNormConv1d(nn.Module):
    """W [x_i; ...; x_(i+k-1)] + b with weight norm, w = g v / |v| per row (Salimans & Kingma 2016).

    Weights are drawn from N(0, sqrt(p / n)) for n inputs of which dropout keeps a share p, or from
    N(0, sqrt(4 p / n)) before a gate, which passes about half (Gehring et al. 2017, section 3.5).
    Nothing is padded: T + k - 1 positions give T. This is no subclass of torch's layers, so that
    initialization schemes without weight norm leave it alone.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        kernel_size: int = 1,
        dropout: float = 0.0,
        is_gated: bool = False,
    ) -> None:
        super().__init__()
        variance = (4 if is_gated else 1) * (1 - dropout) / (kernel_size * input_size)
        weight = torch.randn(output_size, input_size, kernel_size) * math.sqrt(variance)
        self.direction = nn.Parameter(weight)
        self.gain = nn.Parameter(vector_norm(weight, dim=(1, 2)))
        self.bias = nn.Parameter(torch.zeros(output_size))

    @property
    def weight(self) -> Float[Tensor, "D E K"]:
        """The weights from gains and directions."""
        min_norm = torch.finfo(self.direction.dtype).tiny
        scales = self.gain / vector_norm(self.direction, dim=(1, 2)).clamp(min=min_norm)
        return self.direction * scales[:, None, None]

    @override
    def forward(self, inputs: RecentInputs) -> TargetOutputs:
        if self.direction.size(-1) == 1:
            return linear(inputs, self.weight.squeeze(-1), self.bias)
        return conv1d(inputs.transpose(1, 2), self.weight, self.bias).transpose(1, 2)


class GatedConvLayer(nn.Module):
    """(x_i + GLU(W [x_i and its neighbors] + b)) sqrt(0.5), GLU([A; B]) = A * sigmoid(B).

    (Gehring et al. 2017, sections 3.2 and 3.4.) Where the sizes differ, x is projected.
    """

    def __init__(self, input_size: int, size: int, *, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.input_size = input_size
        self.size = size
        self.kernel_size = kernel_size
        self.dropout = nn.Dropout(dropout)
        self.convolution = WeightNormConv1d(
            input_size, 2 * size, kernel_size=kernel_size, dropout=dropout, is_gated=True
        )
        self.residual_projection = (
            nn.Identity() if input_size == size else WeightNormConv1d(input_size, size)
        )

    def forward_bidirectional(self, inputs: LayerInputs, mask: AnyMask = None) -> LayerOutputs:
        """Run over whole sequences, with as many neighbors before as after a position."""
        visible = inputs.masked_fill(~check_padding_mask(mask, inputs).unsqueeze(-1), 0)
        side_padding = (self.kernel_size - 1) // 2
        padded = pad(visible, (0, 0, side_padding, side_padding))
        return self.add_residual(inputs, self.gated_convolution(padded))

    def initial_state(self, inputs: TargetOutputs) -> RecentInputs:
        """Return the inputs before the first position: zeros."""
        return inputs.new_zeros(len(inputs), self.kernel_size - 1, self.input_size)

    def forward_causal(
        self, inputs: TargetInputs, recent: RecentInputs
    ) -> tuple[TargetOutputs, RecentInputs]:
        """Return the gated convolution of each position and those before it, and the new state."""
        context = torch.cat([recent, inputs], dim=1)
        return self.gated_convolution(context), context[:, inputs.size(1) :]

    def gated_convolution(self, padded_inputs: RecentInputs) -> TargetOutputs:
        """Apply dropout, convolution and gate; k - 1 positions fewer come out."""
        return glu(self.convolution(self.dropout(padded_inputs)))

    def add_residual(self, inputs: TargetInputs, update: TargetOutputs) -> TargetOutputs:
        """Add the (projected) inputs, keeping the variance."""
        return scaled_sum(self.residual_projection(inputs), update)


def scaled_sum(one: Float[Tensor, "*B D"], other: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Return (one + other) sqrt(0.5), which has the variance of both terms."""
    return (one + other) * SQRT_HALF


def scale_gradient(values: Float[Tensor, "*B D"], factor: float) -> Float[Tensor, "*B D"]:
    """Return the values unchanged; their gradient is multiplied by `factor`."""
    scaled = values.view_as(values)
    if scaled.requires_grad:
        scaled.register_hook(lambda gradient: gradient * factor)
    return scaled


class ConvLayerGroupConfig(BaseConfig):
    """Consecutive layers of the same size."""

    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    hidden_size: PositiveInt = 256
    """Size of their outputs."""
    kernel_size: PositiveInt = 3
    """Positions that a convolution spans."""


class ConvolutionalConfigBase(BaseConfig):
    """Settings that encoder and decoder share (Gehring et al. 2017)."""

    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    layers: Annotated[tuple[ConvLayerGroupConfig, ...], Field(min_length=1)] = (
        ConvLayerGroupConfig(num_layers=4),
    )
    """The layers, bottom first."""
    positional_encoding: PositionalEncodingConfig | None = LearnedEncodingConfig()
    """Positional encoding of the embeddings; null for none."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings and layer inputs."""

    @property
    def first_size(self) -> int:
        """Input size of the first layer."""
        return self.layers[0].hidden_size

    def build_embedding(self, vocab_size: int) -> TokenEmbedding:
        """Build token and learned position embeddings, both drawn from N(0, 0.1)."""
        size, encoding = self.embedding_size, self.positional_encoding
        combiner = encoding.build(embedding_size=size) if encoding else None
        embedding = TokenEmbedding(
            vocab_size, size, dropout=self.dropout, position_combiner=combiner
        )
        positions = combiner.encoding if combiner else None
        # Sinusoids have amplitude 1, far above N(0, 0.1): with them, token embeddings stay long.
        if positions is None or isinstance(positions, LearnedEncoding):
            embedding.reset_vectors(std=EMBEDDING_STD)
        if isinstance(positions, LearnedEncoding):
            nn.init.normal_(positions.embedding.weight, std=EMBEDDING_STD)
        return embedding

    def build_layers(self) -> list[GatedConvLayer]:
        """Build the layers, bottom first."""
        layers = [group for group in self.layers for _ in range(group.num_layers)]
        sizes = pairwise([self.first_size, *(layer.hidden_size for layer in layers)])
        return [
            GatedConvLayer(input_size, size, kernel_size=layer.kernel_size, dropout=self.dropout)
            for layer, (input_size, size) in zip(layers, sizes, strict=True)
        ]


class DilatedBlock(nn.Module):
    """x + U a(V * a(W a(x))), a = ReLU(norm(.)), V a convolution with this dilation.

    (Kalchbrenner et al. 2016, section 3.6: the block with ReLUs, for translation.) W reduces 2 d
    values to d, and U restores them. Norms are over the values of a position.
    """

    def __init__(self, size: int, *, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.size = size
        self.left_context = (kernel_size - 1) * dilation
        reduction = nn.Linear(2 * size, size)
        self.reduce = nn.Sequential(
            nn.LayerNorm(2 * size), nn.ReLU(), reduction, nn.LayerNorm(size), nn.ReLU()
        )
        self.convolution = nn.Conv1d(size, size, kernel_size, dilation=dilation)
        self.expand = nn.Sequential(nn.LayerNorm(size), nn.ReLU(), nn.Linear(size, 2 * size))

    def forward_bidirectional(self, inputs: LayerOutputs, mask: AnyMask = None) -> LayerOutputs:
        """Run over whole sequences, with the same context on both sides; padding gives zeros."""
        is_padding = ~check_padding_mask(mask, inputs).unsqueeze(-1)
        # Norms map zeros to their bias, so padding is zeroed again before the convolution.
        reduced = self.reduce(inputs).masked_fill(is_padding, 0)
        side_padding = self.left_context // 2
        outputs = inputs + self._convolve(pad(reduced, (0, 0, side_padding, side_padding)))
        return outputs.masked_fill(is_padding, 0)

    def initial_state(self, inputs: LayerOutputs) -> RecentInputs:
        """Return the reduced inputs before the first position: zeros."""
        return inputs.new_zeros(len(inputs), self.left_context, self.size)

    @override
    def forward(
        self, inputs: TargetOutputs, recent: RecentInputs
    ) -> tuple[TargetOutputs, RecentInputs]:
        """Run causally from a state; return the outputs and the new state."""
        context = torch.cat([recent, self.reduce(inputs)], dim=1)
        return inputs + self._convolve(context), context[:, inputs.size(1) :]

    def _convolve(self, padded_inputs: RecentInputs) -> TargetOutputs:
        return self.expand(self.convolution(padded_inputs.transpose(1, 2)).transpose(1, 2))


DilatedState = tuple[Float[Tensor, "B _ E"], ...]


class DilatedStack(nn.Module):
    """Dilated blocks on top of one another; `size` is 2 d."""

    def __init__(self, blocks: Sequence[DilatedBlock]) -> None:
        super().__init__()
        self.blocks = cast(Sequence[DilatedBlock], nn.ModuleList(blocks))
        self.size = 2 * blocks[0].size

    def forward_bidirectional(self, inputs: LayerOutputs, mask: AnyMask = None) -> LayerOutputs:
        """Run over whole sequences."""
        for block in self.blocks:
            inputs = block.forward_bidirectional(inputs, mask)
        return inputs

    def initial_state(self, inputs: LayerOutputs) -> DilatedState:
        """Return the state before the first position."""
        return tuple(block.initial_state(inputs) for block in self.blocks)

    @override
    def forward(
        self, inputs: TargetOutputs, state: DilatedState
    ) -> tuple[TargetOutputs, DilatedState]:
        """Run causally from a state; return the outputs and the new state."""
        next_state: list[Tensor] = []
        for block, recent in zip(self.blocks, state, strict=True):
            inputs, next_recent = block(inputs, recent)
            next_state.append(next_recent)
        return inputs, tuple(next_state)


class DilatedConfigBase(BaseConfig):
    """Settings that encoder and decoder of ByteNet share (Kalchbrenner et al. 2016)."""

    hidden_size: PositiveInt = 256
    """Size inside a block (d); embeddings and states have twice as many values."""
    num_repeats: PositiveInt = Field(default=2, le=1000)
    """How often the list of dilations is repeated."""
    dilations: tuple[PositiveInt, ...] = Field(default=(1, 2, 4, 8, 16), min_length=1)
    """Dilation of each block, bottom first."""
    kernel_size: PositiveInt = 3
    """Positions that a convolution spans."""

    def build_embedding(self, vocab_size: int) -> TokenEmbedding:
        """Build token embeddings drawn from N(0, 1), the scale of what blocks add to them."""
        embedding = TokenEmbedding(vocab_size, 2 * self.hidden_size, dropout=0.0)
        embedding.reset_vectors(std=1.0)
        return embedding

    def build_stack(self) -> DilatedStack:
        """Build the blocks."""
        blocks = [
            DilatedBlock(self.hidden_size, kernel_size=self.kernel_size, dilation=dilation)
            for dilation in self.dilations * self.num_repeats
        ]
        return DilatedStack(blocks)


class ImageBatchNorm(nn.BatchNorm2d):
    """BatchNorm over images and cells, in training with at least two values per channel.

    The variance of a single value is zero, and running statistics would hide that.
    """

    @override
    def forward(self, input: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        num_values = input.numel() // input.size(1)
        message = (
            "BatchNorm needs two values per channel in training, but this batch has one image, "
            "which is a single cell here"
        )
        hint = (
            "raise training.batching.max_tokens or give more images; or choose the norm 'group', "
            "larger images, or less pooling"
        )
        check(num_values > 1 or not self.training, "model.encoder", message, hint)
        return super().forward(input)

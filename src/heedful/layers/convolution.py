"""Gated convolutions, as a configuration puts them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import conv1d, glu, linear, pad

from heedful.attention.positional_encoding import (
    LearnedEncoding,
    LearnedEncodingConfig,
    PositionalEncodingConfig,
)
from heedful.config import BaseConfig
from heedful.layers.embeddings import TokenEmbedding
from heedful.shapes import Bool, Float
from heedful.tokenization.vocabulary import PAD

# Convolutions: what does a place make of itself and its neighbours?
#
# Gated layers on top of one another (Gehring et al. 2017). Wherever two things are added, the sum is
# multiplied by sqrt(0.5), and first weights are drawn so that what goes through a layer keeps its
# variance: that of the sum of two unlike things is then the mean of theirs, however many layers
# there are. Law: padding has no influence, and what is read from left to right piece by piece is
# read as if it were whole.

SQRT_HALF = math.sqrt(0.5)
"""What a sum of two is multiplied by (Gehring et al. 2017, section 3.4)."""

EMBEDDING_STD = 0.1
"""Standard deviation of the first vectors of words and of places (section 3.5)."""


class WeightNormConv1d(nn.Module):
    """W [x_i; ...; x_(i+k-1)] + b, each row of W a gain times a direction: w = g v / |v|.

    (Salimans & Kingma 2016.) First weights are drawn from N(0, sqrt(p / n)), n being the number of
    inputs and p the share that dropout leaves of them, or from N(0, sqrt(4 p / n)) where a gate
    follows, which lets about half through (Gehring et al. 2017, section 3.5). Nothing is added at
    the ends: of T + k - 1 places T come out. It is a part of its own, not a layer of torch, so
    that ways of beginning which know no gains and directions leave it as it is.
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
        self.gain = nn.Parameter(_row_norms(weight))
        self.bias = nn.Parameter(torch.zeros(output_size))

    @property
    def weight(self) -> Float[Tensor, "D E K"]:
        """The weights that gains and directions make."""
        shortest = torch.finfo(self.direction.dtype).tiny
        scales = self.gain / _row_norms(self.direction).clamp(min=shortest)
        return self.direction * scales[:, None, None]

    def forward(self, inputs: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        """Put every k neighbours together."""
        if self.direction.size(-1) == 1:
            return linear(inputs, self.weight.squeeze(-1), self.bias)
        return conv1d(inputs.transpose(1, 2), self.weight, self.bias).transpose(1, 2)


def _row_norms(rows: Float[Tensor, "D E K"]) -> Float[Tensor, "D"]:
    return torch.linalg.vector_norm(rows, dim=(1, 2))


class GatedConvLayer(nn.Module):
    """(x_i + GLU(W [x of i and its neighbours] + b)) sqrt(0.5), GLU([A; B]) = A * sigmoid(B).

    (Gehring et al. 2017, sections 3.2 and 3.4.) Where the layer is wider or narrower than what it
    reads, x goes past through a matrix.
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

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S E"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences, as many neighbours before as after."""
        seen = inputs.masked_fill(~mask.unsqueeze(-1), 0)
        side_padding = (self.kernel_size - 1) // 2
        return self.add_residual(
            inputs, self.gated_convolution(pad(seen, (0, 0, side_padding, side_padding)))
        )

    def initial_state(self, inputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B R E"]:
        """Make what stands before the first place, for as many rows as these: zeros."""
        return inputs.new_zeros(len(inputs), self.kernel_size - 1, self.input_size)

    def forward_causal(
        self, inputs: Float[Tensor, "B T E"], recent: Float[Tensor, "B R E"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B R E"]]:
        """Let through what places see before them; give also what the next ones will see."""
        known = torch.cat([recent, inputs], dim=1)
        return self.gated_convolution(known), known[:, inputs.size(1) :]

    def gated_convolution(self, padded_inputs: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        """Let through what every k neighbours make, k - 1 places fewer."""
        return glu(self.convolution(self.dropout(padded_inputs)))

    def add_residual(
        self, inputs: Float[Tensor, "B T E"], update: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T D"]:
        """Add what was made of the inputs to what goes past."""
        return scaled_sum(self.residual_projection(inputs), update)


def scaled_sum(one: Float[Tensor, "*B D"], other: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Add two things of one variance, and keep it."""
    return (one + other) * SQRT_HALF


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, factor: float) -> Tensor:
        ctx.share = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.share, None


def scale_gradient(values: Float[Tensor, "*B D"], factor: float) -> Float[Tensor, "*B D"]:
    """Leave the values as they are, and let this share of their gradient back."""
    return cast(Tensor, _ScaledGradient.apply(values, factor))


class ConvLayerGroupConfig(BaseConfig):
    """Some layers of one width on top of one another."""

    num_layers: PositiveInt = 1
    """How many."""
    hidden_size: PositiveInt = 256
    """Their width."""
    kernel_size: PositiveInt = 3
    """Places that a layer puts together."""


class ConvolutionalConfigBase(BaseConfig):
    """What both sides of a convolutional system are made of (Gehring et al. 2017)."""

    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    layers: Annotated[tuple[ConvLayerGroupConfig, ...], Field(min_length=1)] = (
        ConvLayerGroupConfig(num_layers=4),
    )
    """The layers, bottom first."""
    positional_encoding: PositionalEncodingConfig | None = LearnedEncodingConfig()
    """How words are told their places; if not given, only a layer's neighbourhood is known."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and from what layers read."""

    @property
    def first_size(self) -> int:
        """Width of what the first layer reads."""
        return self.layers[0].hidden_size

    @property
    def last_size(self) -> int:
        """Width of what the last layer makes."""
        return self.layers[-1].hidden_size

    def build_embedding(self, vocab_size: int) -> TokenEmbedding:
        """Make the vectors of words and, if learned, of places: N(0, 0.1)."""
        size = self.embedding_size
        position_combiner = (
            self.positional_encoding.build(embedding_size=size)
            if self.positional_encoding
            else None
        )
        embedding = TokenEmbedding(
            vocab_size, size, dropout=self.dropout, position_combiner=position_combiner
        )
        tables = [embedding.embedding]
        if position_combiner is not None:
            if not isinstance(position_combiner.encoding, LearnedEncoding):
                return embedding  # waves are of height one: shorter words would drown in them
            tables.append(position_combiner.encoding.embedding)
        for table in tables:
            nn.init.normal_(table.weight, std=EMBEDDING_STD)
        nn.init.zeros_(embedding.embedding.weight[PAD].detach())
        return embedding

    def build_layers(self) -> list[GatedConvLayer]:
        """Make the layers, bottom first."""
        each = [group for group in self.layers for _ in range(group.num_layers)]
        sizes = pairwise([self.first_size, *(layer.hidden_size for layer in each)])
        return [
            GatedConvLayer(below, size, kernel_size=layer.kernel_size, dropout=self.dropout)
            for layer, (below, size) in zip(each, sizes, strict=True)
        ]


# Dilated convolutions: how does a place see far with few layers?
#
# A convolution whose places stand 1, 2, 4, 8 ... apart sees twice as far with every layer
# (Kalchbrenner et al. 2016). Law: padding has no influence, norms are over the numbers of one place,
# and what is read from left to right piece by piece is read as if it were whole.


class DilatedBlock(nn.Module):
    """x + U a(V * a(W a(x))), a = ReLU(norm(.)), V a convolution of places `dilation` apart.

    (Kalchbrenner et al. 2016, section 3.6: the block with ReLUs, for translation.) W halves the
    width, from 2 d to d, and U brings it back.
    """

    def __init__(self, size: int, *, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.size = size
        self.left_context = (kernel_size - 1) * dilation
        self.reduce = nn.Sequential(
            nn.LayerNorm(2 * size),
            nn.ReLU(),
            nn.Linear(2 * size, size),
            nn.LayerNorm(size),
            nn.ReLU(),
        )
        self.convolution = nn.Conv1d(size, size, kernel_size, dilation=dilation)
        self.expand = nn.Sequential(nn.LayerNorm(size), nn.ReLU(), nn.Linear(size, 2 * size))

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences, as far before as after; zeros come out past the end."""
        hidden = ~mask.unsqueeze(-1)
        # Norms make something of nothing: what they make past the end is not there either.
        narrow = self.reduce(inputs).masked_fill(hidden, 0)
        side_padding = self.left_context // 2
        outputs = inputs + self._convolve(pad(narrow, (0, 0, side_padding, side_padding)))
        return outputs.masked_fill(hidden, 0)

    def initial_state(self, inputs: Float[Tensor, "B S D"]) -> Float[Tensor, "B R E"]:
        """Make what stands before the first place, for as many rows as these: zeros."""
        return inputs.new_zeros(len(inputs), self.left_context, self.size)

    def forward(
        self, inputs: Float[Tensor, "B T D"], recent: Float[Tensor, "B R E"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B R E"]]:
        """Read on, seeing nothing of the future; give also what the next places will see."""
        known = torch.cat([recent, self.reduce(inputs)], dim=1)
        return inputs + self._convolve(known), known[:, inputs.size(1) :]

    def _convolve(self, padded_inputs: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        return self.expand(self.convolution(padded_inputs.transpose(1, 2)).transpose(1, 2))


class DilatedStack(nn.Module):
    """Blocks on top of one another, of width 2 d = `size`."""

    def __init__(self, blocks: Sequence[DilatedBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.size = 2 * blocks[0].size

    @property
    def _blocks(self) -> Iterable[DilatedBlock]:
        return cast(Iterable[DilatedBlock], self.blocks)

    @property
    def receptive_field(self) -> int:
        """How many places have a say in one: 1 + (k - 1) times the sum of the dilations."""
        return 1 + sum(block.left_context for block in self._blocks)

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences."""
        for block in self._blocks:
            inputs = block.forward_bidirectional(inputs, mask)
        return inputs

    def initial_state(self, inputs: Float[Tensor, "B S D"]) -> tuple[Float[Tensor, "B _ E"], ...]:
        """Make the state of having read nothing, for as many rows as these."""
        return tuple(block.initial_state(inputs) for block in self._blocks)

    def forward(
        self, inputs: Float[Tensor, "B T D"], state: tuple[Float[Tensor, "B _ E"], ...]
    ) -> tuple[Float[Tensor, "B T D"], tuple[Float[Tensor, "B _ E"], ...]]:
        """Read on from a state, seeing nothing of the future."""
        after = list[Tensor]()
        for block, recent in zip(self._blocks, state, strict=True):
            inputs, kept = block(inputs, recent)
            after.append(kept)
        return inputs, tuple(after)


class DilatedConfigBase(BaseConfig):
    """What both sides of a dilated system are made of (Kalchbrenner et al. 2016)."""

    hidden_size: PositiveInt = 256
    """Width inside a block; embeddings and states are twice as wide."""
    num_repeats: PositiveInt = 2
    """Sets of blocks on top of one another."""
    dilations: tuple[PositiveInt, ...] = Field(default=(1, 2, 4, 8, 16), min_length=1)
    """How far apart the places stand that each block of a set puts together, bottom first."""
    kernel_size: PositiveInt = 3
    """How many places a block puts together."""

    def build_embedding(self, vocab_size: int) -> TokenEmbedding:
        """Make the vectors of words, as tall as what norms make of them."""
        # Shorter ones would drown in what blocks add to them, and where the two sides meet, what
        # the source says would drown what the target does.
        embedding = TokenEmbedding(vocab_size, 2 * self.hidden_size, dropout=0.0)
        nn.init.normal_(embedding.embedding.weight)
        nn.init.zeros_(embedding.embedding.weight[PAD].detach())
        return embedding

    def build_stack(self) -> DilatedStack:
        """Make the blocks."""
        dilations = self.dilations * self.num_repeats
        return DilatedStack(
            [
                DilatedBlock(self.hidden_size, kernel_size=self.kernel_size, dilation=each)
                for each in dilations
            ]
        )

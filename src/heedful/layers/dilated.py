"""Dilated convolutions: how does a place see far with few layers?

A convolution whose places stand 1, 2, 4, 8 ... apart sees twice as far with every layer
(Kalchbrenner et al. 2016). Law: padding has no influence, norms are over the numbers of one place,
and what is read from left to right piece by piece is read as if it were whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.config import Choice
from heedful.layers.embeddings import Embedding
from heedful.shapes import Bool, Float
from heedful.text.vocabulary import PAD


class DilatedBlock(nn.Module):
    """x + U a(V * a(W a(x))), a = ReLU(norm(.)), V a convolution of places `dilation` apart.

    (Kalchbrenner et al. 2016, section 3.6: the block with ReLUs, for translation.) W halves the
    width, from 2 d to d, and U brings it back.
    """

    def __init__(self, size: int, *, kernel: int, dilation: int) -> None:
        super().__init__()
        self.size = size
        self.reach = (kernel - 1) * dilation
        self.narrow = nn.Sequential(
            nn.LayerNorm(2 * size),
            nn.ReLU(),
            nn.Linear(2 * size, size),
            nn.LayerNorm(size),
            nn.ReLU(),
        )
        self.convolution = nn.Conv1d(size, size, kernel, dilation=dilation)
        self.widen = nn.Sequential(nn.LayerNorm(size), nn.ReLU(), nn.Linear(size, 2 * size))

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences, as far before as after; zeros come out past the end."""
        hidden = ~mask.unsqueeze(-1)
        # Norms make something of nothing: what they make past the end is not there either.
        narrow = self.narrow(inputs).masked_fill(hidden, 0)
        aside = self.reach // 2
        outputs = inputs + self._convolve(pad(narrow, (0, 0, aside, aside)))
        return outputs.masked_fill(hidden, 0)

    def begin(self, inputs: Float[Tensor, "B S D"]) -> Float[Tensor, "B R E"]:
        """Make what stands before the first place, for as many rows as these: zeros."""
        return inputs.new_zeros(len(inputs), self.reach, self.size)

    def forward(
        self, inputs: Float[Tensor, "B T D"], recent: Float[Tensor, "B R E"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B R E"]]:
        """Read on, seeing nothing of the future; give also what the next places will see."""
        known = torch.cat([recent, self.narrow(inputs)], dim=1)
        return inputs + self._convolve(known), known[:, inputs.size(1) :]

    def _convolve(self, known: Float[Tensor, "B R E"]) -> Float[Tensor, "B T D"]:
        return self.widen(self.convolution(known.transpose(1, 2)).transpose(1, 2))


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
        return 1 + sum(block.reach for block in self._blocks)

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Read whole sequences."""
        for block in self._blocks:
            inputs = block.both_ways(inputs, mask)
        return inputs

    def begin(self, inputs: Float[Tensor, "B S D"]) -> tuple[Float[Tensor, "B _ E"], ...]:
        """Make the state of having read nothing, for as many rows as these."""
        return tuple(block.begin(inputs) for block in self._blocks)

    def forward(
        self, inputs: Float[Tensor, "B T D"], state: tuple[Float[Tensor, "B _ E"], ...]
    ) -> tuple[Float[Tensor, "B T D"], tuple[Float[Tensor, "B _ E"], ...]]:
        """Read on from a state, seeing nothing of the future."""
        after = list[Tensor]()
        for block, recent in zip(self._blocks, state, strict=True):
            inputs, kept = block(inputs, recent)
            after.append(kept)
        return inputs, tuple(after)


class DilatedParts(Choice):
    """What both sides of a dilated system are made of (Kalchbrenner et al. 2016)."""

    hidden_size: PositiveInt = 256
    """Width inside a block; embeddings and states are twice as wide."""
    num_sets: PositiveInt = 2
    """Sets of blocks on top of one another."""
    dilations: tuple[PositiveInt, ...] = Field(default=(1, 2, 4, 8, 16), min_length=1)
    """How far apart the places stand that each block of a set puts together, bottom first."""
    kernel: PositiveInt = 3
    """How many places a block puts together."""

    def build_embedding(self, vocabulary_size: int) -> Embedding:
        """Make the vectors of words, as tall as what norms make of them."""
        # Shorter ones would drown in what blocks add to them, and where the two sides meet, what
        # the source says would drown what the target does.
        embedding = Embedding(vocabulary_size, 2 * self.hidden_size, dropout=0.0)
        nn.init.normal_(embedding.table.weight)
        nn.init.zeros_(embedding.table.weight[PAD].detach())
        return embedding

    def build_stack(self) -> DilatedStack:
        """Make the blocks."""
        dilations = self.dilations * self.num_sets
        return DilatedStack(
            [
                DilatedBlock(self.hidden_size, kernel=self.kernel, dilation=each)
                for each in dilations
            ]
        )

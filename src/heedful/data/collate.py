"""Collation: from rows of a store to the tensors a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.batching import Shape
from heedful.data.order import Integers
from heedful.data.store import Pairs, Ragged
from heedful.shapes import Int
from heedful.text.vocabulary import BOS, EOS, PAD


class Sources(NamedTuple):
    """Texts to be read: each ends in the end symbol, then padding."""

    tokens: Int[Tensor, "B S"]
    lengths: Int[Tensor, "B"]


class Batch(NamedTuple):
    """Texts to be read, and what should be said of them."""

    sources: Sources
    inputs: Int[Tensor, "B T"]  # begin symbol, then the target
    targets: Int[Tensor, "B T"]  # the target, then the end symbol

    @property
    def num_targets(self) -> int:
        """Real target tokens, end symbols counted, padding not."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Real tokens of both sides."""
        return int(self.sources.lengths.sum()) + self.num_targets


def collate(store: Pairs, shape: Shape) -> Batch:
    """Make the tensors of one batch."""
    source, target = store.take(shape.rows)
    rows = np.arange(len(shape.rows))
    begins = np.full((len(rows), 1), BOS)
    said = target.padded(rows, shape.target_width - 1, fill=PAD)
    return Batch(
        sources=Sources(
            torch.from_numpy(_ended(source, rows, shape.source_width)),
            torch.from_numpy(source.lengths + 1),
        ),
        inputs=torch.from_numpy(np.concatenate([begins, said], axis=1)),
        targets=torch.from_numpy(_ended(target, rows, shape.target_width)),
    )


def collate_sources(sequences: Sequence[Sequence[int]]) -> Sources:
    """Make the tensors of texts that are only to be read."""
    side = Ragged.pack(sequences)
    rows = np.arange(len(side))
    lengths = side.lengths + 1
    tokens = _ended(side, rows, int(lengths.max()))
    return Sources(torch.from_numpy(tokens), torch.from_numpy(lengths))


def _ended(side: Ragged, rows: Integers, width: int) -> Integers:
    padded = side.padded(rows, width, fill=PAD)
    padded[np.arange(len(rows)), side.lengths_of(rows)] = EOS
    return padded

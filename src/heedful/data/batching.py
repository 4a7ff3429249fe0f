"""Batches of an epoch: bucketing by length, and collation into tensors.

Each bucket of examples is sorted by length, cut into batches of at most `max_tokens` and its
batches are shuffled. Lengths are rounded up to a few values, so that batch shapes recur.
Invariant: an epoch contains every example exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Integers, PairDataset, RaggedArray
from heedful.data.permutation import permute_indices
from heedful.shapes import Int, Lengths, TokenIds
from heedful.tokenization.vocabulary import BOS, EOS, PAD

Item = TypeVar("Item")


class BatchingConfig(BaseConfig):
    """How examples are grouped into batches."""

    max_tokens: PositiveInt = 4096
    """Maximum number of tokens in a batch: both sides, with padding."""
    bucket_size: PositiveInt = 16384
    """Number of examples that are sorted by length together."""


class BatchSpec(NamedTuple):
    """The rows of a batch and its padded lengths."""

    rows: Integers
    source_length: int
    target_length: int

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, with padding."""
        return len(self.rows) * (self.source_length + self.target_length)


class IndexedBatchSpec(NamedTuple):
    """A batch and its position in the epoch."""

    spec: BatchSpec
    bucket: int
    batch_index: int  # within the bucket


def padded_lengths(max_length: int) -> Integers:
    """Return the lengths that are rounded up to: steps of 2 at first, then of about an eighth."""
    steps = [2]
    while steps[-1] < max_length:
        steps.append(steps[-1] + max(2, 2 ** (steps[-1].bit_length() - 4)))
    return np.array(steps)


def epoch_batches(
    dataset: PairDataset, config: BatchingConfig, *, seed: int, epoch: int, bucket: int = 0
) -> Iterator[IndexedBatchSpec]:
    """Yield the batches of an epoch, from this bucket on."""
    dataset = dataset.for_epoch(epoch)
    size = len(dataset)
    for index in range(bucket, -(-size // config.bucket_size)):
        start = index * config.bucket_size
        positions = np.arange(start, min(start + config.bucket_size, size))
        rows = permute_indices(positions, size, seed=seed, epoch=epoch)
        # Each side has one more token: the source EOS, the target BOS or EOS.
        source_lengths, target_lengths = (lengths + 1 for lengths in dataset.sequence_lengths(rows))
        specs = list(make_batches(rows, source_lengths, target_lengths, config.max_tokens))
        order = permute_indices(
            np.arange(len(specs)), len(specs), seed=seed, epoch=epoch + (index << 32)
        )
        for batch_index, chosen in enumerate(order):
            yield IndexedBatchSpec(specs[chosen], index, batch_index)


def make_batches(
    rows: Integers, source_lengths: Integers, target_lengths: Integers, max_tokens: int
) -> Iterator[BatchSpec]:
    """Sort examples by length and cut them into batches of at most `max_tokens`."""
    if not len(rows):
        return
    allowed = padded_lengths(int(max(source_lengths.max(), target_lengths.max())))
    padded_sources = allowed[np.searchsorted(allowed, source_lengths)]
    target_steps = np.searchsorted(allowed, target_lengths)
    padded_targets = allowed[target_steps]
    # Alternate the direction of the source order, so that it does not jump between target steps.
    alternating = np.where(target_steps % 2 == 0, source_lengths, -source_lengths)
    order = np.lexsort((alternating, target_steps))
    sides = zip(padded_sources[order].tolist(), padded_targets[order].tolist(), strict=True)
    start, source_length, target_length = 0, 0, 0
    for end, (source, target) in enumerate(sides):
        longest = max(source_length, source), max(target_length, target)
        if end > start and (end - start + 1) * sum(longest) > max_tokens:
            yield BatchSpec(rows[order[start:end]], source_length, target_length)
            start, longest = end, (source, target)
        source_length, target_length = longest
    yield BatchSpec(rows[order[start:]], source_length, target_length)


def with_last_flag(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Yield each item with whether it is the last."""
    previous: list[Item] = []
    for item in items:
        for earlier in previous:
            yield earlier, False
        previous = [item]
    for last in previous:
        yield last, True


# ----- collation


class SourceBatch(NamedTuple):
    """Source sequences: tokens, EOS, padding."""

    tokens: Int[Tensor, "B S"]
    lengths: Lengths


class Batch(NamedTuple):
    """Source sequences with decoder inputs and targets."""

    sources: SourceBatch
    decoder_inputs: TokenIds  # BOS, then the target
    targets: TokenIds  # the target, then EOS

    @property
    def num_targets(self) -> int:
        """Target tokens with EOS, without padding."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, without padding."""
        return int(self.sources.lengths.sum()) + self.num_targets


def collate(dataset: PairDataset, spec: BatchSpec) -> Batch:
    """Return the tensors of a batch."""
    source, target = dataset.select(spec.rows)
    rows = np.arange(len(spec.rows))
    bos = np.full((len(rows), 1), BOS)
    padded_targets = target.padded(rows, spec.target_length - 1, fill=PAD)
    return Batch(
        sources=SourceBatch(
            torch.from_numpy(_pad_with_eos(source, rows, spec.source_length)),
            torch.from_numpy(source.lengths + 1),
        ),
        decoder_inputs=torch.from_numpy(np.concatenate([bos, padded_targets], axis=1)),
        targets=torch.from_numpy(_pad_with_eos(target, rows, spec.target_length)),
    )


def collate_sources(sequences: Sequence[Sequence[int]]) -> SourceBatch:
    """Return the tensors of sources without targets."""
    side = RaggedArray.from_sequences(sequences)
    lengths = side.lengths + 1
    tokens = _pad_with_eos(side, np.arange(len(side)), int(lengths.max()))
    return SourceBatch(torch.from_numpy(tokens), torch.from_numpy(lengths))


def _pad_with_eos(side: RaggedArray, rows: Integers, width: int) -> Integers:
    padded = side.padded(rows, width, fill=PAD)
    padded[np.arange(len(rows)), side.lengths_at(rows)] = EOS
    return padded

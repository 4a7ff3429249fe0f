"""Batching: which examples are learned from together?

Examples are drawn in the epoch's order, a window at a time; a window is sorted by length, cut
into batches that fit a budget of padded tokens, and its batches are shuffled. Lengths are
rounded up to a few widths, so that shapes recur and what was made for a shape serves again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.pair_dataset import Integers, PairDataset, RaggedArray
from heedful.shapes import Int
from heedful.tokenization.vocabulary import BOS, EOS, PAD

# Order: in which order are the examples of an epoch seen?
#
# The order is a function of (seed, epoch): a keyed permutation that gives the example at any
# position without a table of all of them. Where training stands is therefore one integer.

Member = TypeVar("Member")


_UInt64s = NDArray[np.uint64]


_NUM_ROUNDS = 6


_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: splitmix64's increment


def permute_indices(indices: Integers, size: int, *, seed: int, epoch: int) -> Integers:
    """Say which of `size` examples stands at each position in this epoch.

    A Feistel network over the smallest even number of bits that holds `size`; what falls outside
    is sent through again until it falls inside, which keeps it a permutation.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    values = _feistel(indices.astype(np.uint64), half_bits, keys)
    while (outside := values >= size).any():
        values[outside] = _feistel(values[outside], half_bits, keys)
    return values.astype(np.int64)


def with_last_flag(members: Iterable[Member]) -> Iterator[tuple[Member, bool]]:
    """Give members on, and with each whether it is the last: an epoch must know its end."""
    held = list[Member]()
    for member in members:
        for earlier in held:
            yield earlier, False
        held = [member]
    for last in held:
        yield last, True


def _round_keys(seed: int, epoch: int) -> _UInt64s:
    start = np.array([seed % 2**64], dtype=np.uint64)
    base = _mix_bits(_mix_bits(start) + np.uint64(epoch % 2**64))
    return _mix_bits(base + np.arange(_NUM_ROUNDS, dtype=np.uint64) * np.uint64(_GOLDEN))


def _feistel(values: _UInt64s, half_bits: int, keys: _UInt64s) -> _UInt64s:
    bits = np.uint64(half_bits)
    mask = np.uint64(2**half_bits - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        left, right = right, left ^ (_mix_bits(right + key) & mask)
    return (left << bits) | right


def _mix_bits(values: _UInt64s) -> _UInt64s:
    """The finaliser of splitmix64 (Steele et al. 2014): every bit in moves every bit out."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class BatchingConfig(BaseConfig):
    """How examples are grouped into batches."""

    max_tokens: PositiveInt = 4096
    """Most tokens in a batch, both sides and padding counted."""
    bucket_size: PositiveInt = 16384
    """How many examples are sorted by length together."""


class BatchSpec(NamedTuple):
    """A batch to be: which examples, and how wide each side is."""

    rows: Integers
    source_length: int
    target_length: int

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, padding counted."""
        return len(self.rows) * (self.source_length + self.target_length)


def padded_lengths(max_length: int) -> Integers:
    """The widths that lengths are rounded up to: steps of 2 at first, then of about an eighth."""
    steps = [2]
    while steps[-1] < max_length:
        steps.append(steps[-1] + max(2, 2 ** (steps[-1].bit_length() - 4)))
    return np.array(steps)


class IndexedBatchSpec(NamedTuple):
    """A batch to be, and where in its epoch it stands."""

    spec: BatchSpec
    bucket: int  # which it is of
    batch_index: int  # among the batches of its window


def epoch_batches(
    dataset: PairDataset, config: BatchingConfig, *, seed: int, epoch: int, bucket: int = 0
) -> Iterator[IndexedBatchSpec]:
    """Give the batches of one epoch, from this window on."""
    dataset = dataset.for_epoch(epoch)
    size = len(dataset)
    for number in range(bucket, -(-size // config.bucket_size)):
        start = number * config.bucket_size
        positions = np.arange(start, min(start + config.bucket_size, size))
        rows = permute_indices(positions, size, seed=seed, epoch=epoch)
        # Each side has one symbol more: the source its end, the target its begin or its end.
        source_lengths, target_lengths = (lengths + 1 for lengths in dataset.sequence_lengths(rows))
        cuts = list(make_batches(rows, source_lengths, target_lengths, config.max_tokens))
        numbers = np.arange(len(cuts))
        order = permute_indices(numbers, len(cuts), seed=seed, epoch=epoch + (number << 32))
        for place, chosen in enumerate(order):
            yield IndexedBatchSpec(cuts[chosen], number, place)


def make_batches(
    rows: Integers, source_lengths: Integers, target_lengths: Integers, max_tokens: int
) -> Iterator[BatchSpec]:
    """Sort examples by length and cut them into batches of at most `max_tokens`."""
    if not len(rows):
        return
    allowed = padded_lengths(int(max(source_lengths.max(), target_lengths.max())))
    source_widths = allowed[np.searchsorted(allowed, source_lengths)]
    target_steps = np.searchsorted(allowed, target_lengths)
    target_widths = allowed[target_steps]
    # Back and forth like an ox at the plough: where the target grows a step, the source stays.
    turning = np.where(target_steps % 2 == 0, source_lengths, -source_lengths)
    order = np.lexsort((turning, target_steps))
    sides = zip(source_widths[order].tolist(), target_widths[order].tolist(), strict=True)
    start, source_length, target_length = 0, 0, 0
    for end, (source, target) in enumerate(sides):
        wider = max(source_length, source), max(target_length, target)
        if end > start and (end - start + 1) * sum(wider) > max_tokens:
            yield BatchSpec(rows[order[start:end]], source_length, target_length)
            start, wider = end, (source, target)
        source_length, target_length = wider
    yield BatchSpec(rows[order[start:]], source_length, target_length)


# Collation: from rows of a store to the tensors a model reads.


class SourceBatch(NamedTuple):
    """Texts to be read: each ends in the end symbol, then padding."""

    tokens: Int[Tensor, "B S"]
    lengths: Int[Tensor, "B"]


class Batch(NamedTuple):
    """Texts to be read, and what should be said of them."""

    sources: SourceBatch
    decoder_inputs: Int[Tensor, "B T"]  # begin symbol, then the target
    targets: Int[Tensor, "B T"]  # the target, then the end symbol

    @property
    def num_targets(self) -> int:
        """Real target tokens, end symbols counted, padding not."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Real tokens of both sides."""
        return int(self.sources.lengths.sum()) + self.num_targets


def collate(dataset: PairDataset, spec: BatchSpec) -> Batch:
    """Make the tensors of one batch."""
    source, target = dataset.select(spec.rows)
    rows = np.arange(len(spec.rows))
    begins = np.full((len(rows), 1), BOS)
    padded_targets = target.padded(rows, spec.target_length - 1, fill=PAD)
    return Batch(
        sources=SourceBatch(
            torch.from_numpy(_pad_with_eos(source, rows, spec.source_length)),
            torch.from_numpy(source.lengths + 1),
        ),
        decoder_inputs=torch.from_numpy(np.concatenate([begins, padded_targets], axis=1)),
        targets=torch.from_numpy(_pad_with_eos(target, rows, spec.target_length)),
    )


def collate_sources(sequences: Sequence[Sequence[int]]) -> SourceBatch:
    """Make the tensors of texts that are only to be read."""
    side = RaggedArray.from_sequences(sequences)
    rows = np.arange(len(side))
    lengths = side.lengths + 1
    tokens = _pad_with_eos(side, rows, int(lengths.max()))
    return SourceBatch(torch.from_numpy(tokens), torch.from_numpy(lengths))


def _pad_with_eos(side: RaggedArray, rows: Integers, width: int) -> Integers:
    padded = side.padded(rows, width, fill=PAD)
    padded[np.arange(len(rows)), side.lengths_at(rows)] = EOS
    return padded

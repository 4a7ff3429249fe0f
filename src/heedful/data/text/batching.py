"""Batches of a parallel corpus: bucketing by length, collation, and an endless resumable stream.

Lengths are rounded up to a few values, so that batch shapes recur. Invariants: an epoch contains
each example once; a stream started from the cursor of another continues it exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor, permute_indices, with_last_flag
from heedful.data.text.pair_dataset import CachedDataset, InMemoryPairDataset, PairDataset
from heedful.shapes import Int, Lengths, SourceInputs, TokenIds
from heedful.tokenization.ragged_array import Integers, RaggedArray
from heedful.tokenization.vocabulary import BOS, EOS, PAD

Item = TypeVar("Item")


class BatchingConfig(BaseConfig):
    """How examples are grouped into batches."""

    max_tokens: PositiveInt = 4096
    """Maximum number of tokens in a batch: both sides, with padding."""
    bucket_size: PositiveInt | None = None
    """Number of examples that are sorted by length together; four for each of `max_tokens` if null,
    at least 16,384, so that large batches have little padding, too."""

    @property
    def num_sorted(self) -> int:
        """Number of examples that are sorted by length together."""
        return self.bucket_size or max(16384, 4 * self.max_tokens)


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


def epoch_batches(
    dataset: PairDataset,
    config: BatchingConfig,
    *,
    seed: int,
    epoch: int,
    bucket: int = 0,
    min_rows: Literal[1, 2] = 1,
) -> Iterator[IndexedBatchSpec]:
    """Yield the batches of an epoch from this bucket on; those of a bucket are shuffled.

    With `min_rows=2` no batch has a single row, unless two rows exceed `max_tokens`.
    """
    dataset = dataset.for_epoch(epoch)
    size, bucket_size = len(dataset), config.num_sorted
    starts = list(range(0, size, bucket_size))
    if len(starts) > 1 and size - starts[-1] < min_rows:
        starts.pop()  # the last bucket would be a single row
    for index in range(bucket, len(starts)):
        is_last = index == len(starts) - 1
        positions = np.arange(starts[index], size if is_last else starts[index + 1])
        rows = permute_indices(positions, size, seed=seed, epoch=epoch)
        # Each side has one more token: the source EOS, the target BOS or EOS.
        source_lengths, target_lengths = (lengths + 1 for lengths in dataset.sequence_lengths(rows))
        specs = list(_make_batches(rows, source_lengths, target_lengths, config.max_tokens))
        if min_rows == 2:
            specs[-2:] = _without_single_row(specs[-2:], config.max_tokens)
        numbers = np.arange(len(specs))
        order = permute_indices(numbers, len(specs), seed=seed, epoch=epoch + (index << 32))
        for batch_index, chosen in enumerate(order):
            yield IndexedBatchSpec(specs[chosen], index, batch_index)


def _make_batches(
    rows: Integers, source_lengths: Integers, target_lengths: Integers, max_tokens: int
) -> Iterator[BatchSpec]:
    """Sort examples by length and cut them into batches of at most `max_tokens`."""
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


def _without_single_row(specs: Sequence[BatchSpec], max_tokens: int) -> Sequence[BatchSpec]:
    """Move a row to the last batch if it has only one, and the one before it more than two."""
    if len(specs) < 2 or len(specs[1].rows) > 1 or len(specs[0].rows) < 3:
        return specs
    first, last = specs
    rows = np.concatenate([first.rows[-1:], last.rows])
    last = BatchSpec(rows, *(max(pair) for pair in zip(first[1:], last[1:], strict=True)))
    return specs if last.num_tokens > max_tokens else [first._replace(rows=first.rows[:-1]), last]


def padded_lengths(max_length: int) -> Integers:
    """Return the lengths that are rounded up to: steps of 2 at first, then of about an eighth."""
    steps = [2]
    while steps[-1] < max_length:
        steps.append(steps[-1] + max(2, 2 ** (steps[-1].bit_length() - 4)))
    return np.array(steps)


class SourceBatch(NamedTuple):
    """Sources: texts as tokens, EOS, padding; or images as pixels or features of grid cells."""

    tokens: SourceInputs
    lengths: Lengths  # tokens with EOS, or cells of the grid


class Batch(NamedTuple):
    """Source sequences with decoder inputs and targets."""

    sources: SourceBatch
    decoder_inputs: TokenIds  # BOS, then the target
    targets: TokenIds  # the target, then EOS
    reference_ids: Int[Tensor, "B"] | None = None
    """The example of each row, where several rows are references of one: captions of an image."""

    @property
    def num_targets(self) -> int:
        """Target tokens with EOS, without padding."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, without padding."""
        return int(self.sources.lengths.sum()) + self.num_targets

    @property
    def num_positions(self) -> int:
        """Tokens of both sides, with padding; of images, the cells of their grids."""
        tokens, lengths = self.sources
        num_sources = tokens.numel() if tokens.dim() == 2 else int(lengths.max()) * len(lengths)
        return num_sources + self.targets.numel()


def collate(dataset: PairDataset, spec: BatchSpec) -> Batch:
    """Return the tensors of a batch."""
    source, target = dataset.select(spec.rows)
    bos = np.full((len(target), 1), BOS)
    decoder_inputs = np.concatenate([bos, target.padded(spec.target_length - 1, fill=PAD)], axis=1)
    return Batch(
        _pad_with_eos(source, spec.source_length),
        torch.from_numpy(decoder_inputs),
        _pad_with_eos(target, spec.target_length).tokens,
    )


def collate_sources(sequences: Sequence[Sequence[int]]) -> SourceBatch:
    """Return the tensors of sources without targets."""
    side = RaggedArray.from_sequences(sequences)
    return _pad_with_eos(side, int(side.lengths.max()) + 1)


def collate_pairs(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
    """Return the tensors of pairs of token ids; a `collate_fn` for `DataLoader`."""
    source, target = (RaggedArray.from_sequences(side) for side in zip(*pairs, strict=True))
    lengths = (int(side.lengths.max()) + 1 for side in (source, target))
    return collate(InMemoryPairDataset(source, target), BatchSpec(np.arange(len(pairs)), *lengths))


def _pad_with_eos(side: RaggedArray, width: int) -> SourceBatch:
    padded = side.padded(width, fill=PAD)
    padded[np.arange(len(side)), side.lengths] = EOS
    return SourceBatch(torch.from_numpy(padded), torch.from_numpy(side.lengths + 1))


@dataclass
class BatchStream:
    """Batches of one epoch after another; `cursor` is where to resume."""

    dataset: PairDataset
    config: BatchingConfig
    seed: int
    cursor: DataCursor
    min_rows: ClassVar[Literal[1, 2]] = 1

    def __iter__(self) -> Iterator[Batch]:
        while True:
            epoch, num_used, bucket, start = self.cursor
            dataset = CachedDataset(self.dataset.for_epoch(epoch))
            specs = epoch_batches(
                dataset,
                self.config,
                seed=self.seed,
                epoch=epoch,
                bucket=bucket,
                min_rows=self.min_rows,
            )
            remaining = islice(enumerate(specs, start), num_used - start, None)
            for (index, (spec, bucket, batch_index)), is_last in with_last_flag(remaining):
                cursor = DataCursor(epoch, index + 1, bucket, index - batch_index)
                self.cursor = DataCursor(epoch + 1, 0) if is_last else cursor
                yield collate(dataset, spec)
            self.cursor = DataCursor(epoch + 1, 0)  # an epoch of a mixture may have no rows

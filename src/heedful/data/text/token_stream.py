"""Running text as one row of token ids, and the windows that language models read.

Each line ends with EOS, and one EOS precedes the first line, so a line end is predicted and
generated like any other token; a tokenizer with a token for line breaks has that instead.
Invariants: in an epoch no token is predicted twice; a position in the data is an epoch and a number
of batches.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor, permute_indices, with_last_flag
from heedful.data.text.example_formats import CHUNK_SIZE, encode_lines
from heedful.data.text.sharded_dataset import ShardedTokenStream
from heedful.shapes import Bool, Lengths, TokenIds
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS, PAD

Tokens = NDArray[np.int32]
TokenStream = Tokens | ShardedTokenStream
"""Running text, in memory or in files."""
Item = TypeVar("Item")


class LMBatchingConfig(BaseConfig):
    """How running text is split into batches: parallel streams, one window of each at a time."""

    batch_size: PositiveInt = 32
    """Number of streams, the rows of a batch."""
    context_length: int = Field(default=256, ge=2)
    """Tokens of a window; the model sees no further back, in training and in use."""


class LMBatch(NamedTuple):
    """Windows of text and their targets."""

    inputs: TokenIds  # padded on the right
    targets: TokenIds  # PAD where nothing is predicted
    segments: TokenIds | None = None  # of sentence pairs: 0 or 1
    is_next: Bool[Tensor, "B"] | None = None  # whether segment 1 follows segment 0 in the text
    target_positions: TokenIds | None = None  # of the targets, if not all positions have one

    @property
    def lengths(self) -> Lengths:
        """Tokens of each window."""
        return (self.inputs != PAD).sum(dim=1)

    @property
    def num_targets(self) -> int:
        """Tokens that are predicted."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Input tokens, without padding."""
        return int(self.lengths.sum())

    @property
    def num_positions(self) -> int:
        """Input tokens, with padding."""
        return self.inputs.numel()


def concatenate_lines(lines: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """Encode lines as one row of tokens."""
    parts = [np.array([EOS], dtype=np.int32)]
    for some_lines in _batched(lines, CHUNK_SIZE):
        parts += [np.array(ids, dtype=np.int32) for ids in encode_lines(some_lines, tokenizer)]
    return np.concatenate(parts)


def encode_prompt(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode the beginning of a text, whose last line may be continued.

    A tokenizer with line breaks is one of a pretrained model, which reads a prompt as it is.
    """
    if tokenizer.has_line_breaks:
        return tokenizer.encode(text) or [EOS]
    lines = tokenizer.encode_batch(text.split("\n"))
    return [token for line in lines for token in (EOS, *line)]


def tokens_fingerprint(tokens: Tokens) -> str:
    """Return a hash of all tokens."""
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest()


@dataclass
class LMBatchStream:
    """Windows of one epoch after another; `cursor` is where to resume.

    The text is split into `batch_size` streams, and a batch holds the next window of each. The
    first stream starts at a random offset in each epoch, so that windows differ. `transform`
    may replace a batch, given its position.
    """

    tokens: TokenStream
    config: LMBatchingConfig
    seed: int
    cursor: DataCursor
    transform: Callable[[LMBatch, DataCursor], LMBatch] | None = None

    def __iter__(self) -> Iterator[LMBatch]:
        while True:
            epoch, num_used = self.cursor.epoch, self.cursor.batch
            batches = epoch_windows(self.tokens, self.config, seed=self.seed, epoch=epoch)
            for batch, is_last in with_last_flag(islice(batches, num_used, None)):
                cursor = DataCursor(epoch, num_used)
                num_used += 1
                self.cursor = DataCursor(epoch + 1, 0) if is_last else DataCursor(epoch, num_used)
                yield self.transform(batch, cursor) if self.transform else batch


def epoch_windows(
    tokens: TokenStream, config: LMBatchingConfig, *, seed: int, epoch: int
) -> Iterator[LMBatch]:
    """Yield the batches of an epoch."""
    max_offset = min(config.context_length, len(tokens) - 1)
    offset = int(permute_indices(np.zeros(1, np.int64), max_offset, seed=seed, epoch=epoch)[0])
    num_predicted = len(tokens) - 1 - offset
    num_rows = max(1, min(config.batch_size, num_predicted // config.context_length))
    length = num_predicted // num_rows
    starts = offset + length * np.arange(num_rows)
    for begin in range(0, length, config.context_length):
        width = min(config.context_length, length - begin)
        positions = (starts + begin)[:, None] + np.arange(width)  # each token predicts the next
        windows = (tokens[positions + shift].astype(np.int64) for shift in (0, 1))
        yield LMBatch(*map(torch.from_numpy, windows))


def overlapping_windows(tokens: Tokens, config: LMBatchingConfig) -> Iterator[LMBatch]:
    """Yield windows, half a context apart, that predict each token but the first once.

    After the first window, only the second half is predicted: with half a context or more.
    """
    stride, num_predicted = config.context_length // 2, len(tokens) - 1
    overlap = config.context_length - stride
    starts = range(0, max(1, num_predicted - overlap), stride)
    for rows in _batched(starts, config.batch_size):
        ends = [min(start + config.context_length, num_predicted) for start in rows]
        inputs = np.full((len(rows), max(np.subtract(ends, rows))), PAD)
        targets = inputs.copy()
        for row, (start, end) in enumerate(zip(rows, ends, strict=True)):
            inputs[row, : end - start] = tokens[start:end]
            first_target = overlap if start else 0
            targets[row, first_target : end - start] = tokens[start + first_target + 1 : end + 1]
        yield LMBatch(torch.from_numpy(inputs), torch.from_numpy(targets))


def disjoint_windows(tokens: Tokens, config: LMBatchingConfig) -> Iterator[LMBatch]:
    """Yield consecutive windows that contain each token once, as inputs and as targets."""
    starts = range(0, len(tokens), config.context_length)
    for rows in _batched(starts, config.batch_size):
        inputs = np.full((len(rows), config.context_length), PAD, dtype=np.int64)
        for row, start in enumerate(rows):
            window = tokens[start : start + config.context_length]
            inputs[row, : len(window)] = window
        yield LMBatch(torch.from_numpy(inputs), torch.from_numpy(inputs))


def _batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

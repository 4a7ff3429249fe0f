"""Running text: one long row of tokens, and the pieces of it that are read together.

Every line ends in `EOS`, and one stands before the first, so that a line end is a token like any
other: it is predicted, it is generated, and it is printed as a line end again. Laws: in an epoch
no token is predicted twice; and where training stands is an epoch and a number of batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.data.batch_stream import HELD_OUT_DIVISOR, DataCursor
from heedful.data.batching import permute_indices, with_last_flag
from heedful.data.pair_dataset import Integers
from heedful.data.sharded_dataset import ShardedTokenStream
from heedful.errors import DataError
from heedful.shapes import Int
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS, PAD

MAX_HELD_OUT_LINES = 5000
_LINES_PER_BATCH = 10_000  # lists of ids take many times the memory of the array they become

Tokens = NDArray[np.int32]
TokenStream = Tokens | ShardedTokenStream
"""Running text, in memory or in files."""
Item = TypeVar("Item")


class LMBatchingConfig(BaseConfig):
    """How running text is read: at several places of it side by side, a piece at a time."""

    batch_size: PositiveInt = 32
    """Places of the text that are read side by side."""
    context_length: int = Field(default=256, ge=2)
    """Tokens that are read at once: no further back is looked, in training and in use."""


class LMBatch(NamedTuple):
    """Pieces of text, and what should be said at each of their places."""

    inputs: Int[Tensor, "B T"]  # padding, if any, at the right
    targets: Int[Tensor, "B T"]  # padding where nothing is asked

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """How many tokens each piece has."""
        return (self.inputs != PAD).sum(dim=1)

    @property
    def num_targets(self) -> int:
        """Tokens that are asked for."""
        return int((self.targets != PAD).sum())

    @property
    def num_tokens(self) -> int:
        """Tokens that are read."""
        return int((self.inputs != PAD).sum())


def choose_held_out_lines(count: int, *, location: str) -> range:
    """Choose the few of so many lines, at their end, that are validated on."""
    if count < 2:
        raise DataError(
            location,
            "one line is too few: some are needed to learn from and some to validate on",
            "give a text of more lines, or one to validate on: --dev-text FILE",
        )
    return range(count - max(1, min(MAX_HELD_OUT_LINES, count // HELD_OUT_DIVISOR)), count)


def split_held_out_tail(lines: Sequence[str], *, location: str) -> tuple[list[str], list[str]]:
    """Part lines into those to learn from and a few at the end to validate on."""
    first = choose_held_out_lines(len(lines), location=location).start
    return list(lines[:first]), list(lines[first:])


def concatenate_lines(lines: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """Turn lines into one row of tokens."""
    parts = [np.array([EOS], dtype=np.int32)]
    for some in _batched(lines, _LINES_PER_BATCH):
        parts += [np.array([*ids, EOS], dtype=np.int32) for ids in tokenizer.encode_batch(some)]
    return np.concatenate(parts)


def encode_prompt(text: str, tokenizer: Tokenizer) -> list[int]:
    """Turn the beginning of a text into tokens; what follows it may go on in its last line."""
    lines = tokenizer.encode_batch(text.split("\n"))
    return [token for line in lines for token in (EOS, *line)]


def tokens_fingerprint(tokens: Tokens) -> str:
    """Tell one text from another."""
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest()


class LMBatchStream:
    """Pieces of text without end, epoch after epoch; `cursor` says where to go on.

    The text is cut into as many stretches as there are streams, and a batch holds the next piece
    of each. Where the first stretch begins is drawn anew in every epoch, so that pieces do not
    always begin at the same places. `transform` may make something else of a batch, from its place.
    """

    def __init__(
        self,
        tokens: TokenStream,
        config: LMBatchingConfig,
        *,
        seed: int,
        cursor: DataCursor,
        transform: Callable[[LMBatch, DataCursor], LMBatch] | None = None,
    ) -> None:
        self.tokens = tokens
        self.config = config
        self.seed = seed
        self.cursor = cursor
        self.transform = transform

    def __iter__(self) -> Iterator[LMBatch]:
        while True:
            epoch, seen = self.cursor.epoch, self.cursor.batch
            batches = epoch_windows(self.tokens, self.config, seed=self.seed, epoch=epoch)
            for batch, is_last in with_last_flag(islice(batches, seen, None)):
                cursor = DataCursor(epoch, seen)
                seen += 1
                self.cursor = DataCursor(epoch + 1, 0) if is_last else DataCursor(epoch, seen)
                yield self.transform(batch, cursor) if self.transform else batch


def epoch_windows(
    tokens: TokenStream, config: LMBatchingConfig, *, seed: int, epoch: int
) -> Iterator[LMBatch]:
    """The batches of an epoch."""
    latest = min(config.context_length, len(tokens) - 1)
    first = int(permute_indices(np.zeros(1, np.int64), latest, seed=seed, epoch=epoch)[0])
    predicted = len(tokens) - 1 - first
    num_rows = max(1, min(config.batch_size, predicted // config.context_length))
    length = predicted // num_rows
    starts = first + length * np.arange(num_rows)
    for begin in range(0, length, config.context_length):
        yield make_windows(tokens, starts + begin, min(config.context_length, length - begin))


def make_windows(tokens: TokenStream, starts: Integers, width: int) -> LMBatch:
    """Cut pieces of equal length out of a text; each token is to say the next."""
    positions = starts[:, None] + np.arange(width)
    inputs, targets = (
        torch.from_numpy(tokens[each].astype(np.int64)) for each in (positions, positions + 1)
    )
    return LMBatch(inputs, targets)


def overlapping_windows(tokens: Tokens, config: LMBatchingConfig) -> Iterator[LMBatch]:
    """Ask for every token of a text but the first, once, seen with at least half a context.

    Pieces begin half a context apart, and a piece is asked for what no piece before it could be:
    all of the first, the latter half of every other. Only the first half context has less to go by.
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
    """Give every token of a text once, in pieces that follow one another."""
    starts = range(0, len(tokens), config.context_length)
    for rows in _batched(starts, config.batch_size):
        inputs = np.full((len(rows), config.context_length), PAD, dtype=np.int64)
        for row, start in enumerate(rows):
            piece = tokens[start : start + config.context_length]
            inputs[row, : len(piece)] = piece
        yield LMBatch(torch.from_numpy(inputs), torch.from_numpy(inputs))


def _batched(members: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(members), size):
        yield members[first : first + size]

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

from heedful.config import Choice
from heedful.data.order import Integers, marking_last, permute
from heedful.data.prepare import HELD_OUT_SHARE, Position
from heedful.data.shards import ShardedRow
from heedful.errors import DataError
from heedful.shapes import Int
from heedful.text.tokenizers import Tokenizer
from heedful.text.vocabulary import EOS, PAD

MAX_HELD_OUT_LINES = 5000
_LINES_AT_ONCE = 10_000  # lists of ids take many times the memory of the array they become

Tokens = NDArray[np.int32]
Row = Tokens | ShardedRow
"""Running text, in memory or in files."""
Member = TypeVar("Member")


class StreamsConfig(Choice):
    """How running text is read: at several places of it side by side, a piece at a time."""

    count: PositiveInt = 32
    """Places of the text that are read side by side."""
    context: int = Field(default=256, ge=2)
    """Tokens that are read at once: no further back is looked, in training and in use."""


class TextBatch(NamedTuple):
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


def held_out_lines(count: int, *, at: str) -> range:
    """Choose the few of so many lines, at their end, that are validated on."""
    if count < 2:
        raise DataError(
            at,
            "one line is too few: some are needed to learn from and some to validate on",
            "give a text of more lines, or one to validate on: --dev-text FILE",
        )
    return range(count - max(1, min(MAX_HELD_OUT_LINES, count // HELD_OUT_SHARE)), count)


def hold_out_end(lines: Sequence[str], *, at: str) -> tuple[list[str], list[str]]:
    """Part lines into those to learn from and a few at the end to validate on."""
    first = held_out_lines(len(lines), at=at).start
    return list(lines[:first]), list(lines[first:])


def run_together(lines: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """Turn lines into one row of tokens."""
    parts = [np.array([EOS], dtype=np.int32)]
    for some in _groups(lines, _LINES_AT_ONCE):
        parts += [np.array([*ids, EOS], dtype=np.int32) for ids in tokenizer.encode_all(some)]
    return np.concatenate(parts)


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """Turn the beginning of a text into tokens; what follows it may go on in its last line."""
    lines = tokenizer.encode_all(text.split("\n"))
    return [token for line in lines for token in (EOS, *line)]


def fingerprint_of(tokens: Tokens) -> str:
    """Tell one text from another."""
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest()


class TextStream:
    """Pieces of text without end, epoch after epoch; `position` says where to go on.

    The text is cut into as many stretches as there are streams, and a batch holds the next piece
    of each. Where the first stretch begins is drawn anew in every epoch, so that pieces do not
    always begin at the same places. `change` may make something else of a batch, from its place.
    """

    def __init__(
        self,
        tokens: Row,
        config: StreamsConfig,
        *,
        seed: int,
        position: Position,
        change: Callable[[TextBatch, Position], TextBatch] | None = None,
    ) -> None:
        self.tokens = tokens
        self.config = config
        self.seed = seed
        self.position = position
        self.change = change

    def __iter__(self) -> Iterator[TextBatch]:
        while True:
            epoch, seen = self.position.epoch, self.position.batch
            batches = epoch_pieces(self.tokens, self.config, seed=self.seed, epoch=epoch)
            for batch, is_last in marking_last(islice(batches, seen, None)):
                place = Position(epoch, seen)
                seen += 1
                self.position = Position(epoch + 1, 0) if is_last else Position(epoch, seen)
                yield self.change(batch, place) if self.change else batch


def epoch_pieces(
    tokens: Row, config: StreamsConfig, *, seed: int, epoch: int
) -> Iterator[TextBatch]:
    """The batches of an epoch."""
    latest = min(config.context, len(tokens) - 1)
    first = int(permute(np.zeros(1, np.int64), latest, seed=seed, epoch=epoch)[0])
    predicted = len(tokens) - 1 - first
    num_rows = max(1, min(config.count, predicted // config.context))
    length = predicted // num_rows
    starts = first + length * np.arange(num_rows)
    for begin in range(0, length, config.context):
        yield pieces(tokens, starts + begin, min(config.context, length - begin))


def pieces(tokens: Row, starts: Integers, width: int) -> TextBatch:
    """Cut pieces of equal length out of a text; each token is to say the next."""
    places = starts[:, None] + np.arange(width)
    inputs, targets = (
        torch.from_numpy(tokens[each].astype(np.int64)) for each in (places, places + 1)
    )
    return TextBatch(inputs, targets)


def overlapping(tokens: Tokens, config: StreamsConfig) -> Iterator[TextBatch]:
    """Ask for every token of a text but the first, once, seen with at least half a context.

    Pieces begin half a context apart, and a piece is asked for what no piece before it could be:
    all of the first, the latter half of every other. Only the first half context has less to go by.
    """
    stride, num_predicted = config.context // 2, len(tokens) - 1
    overlap = config.context - stride
    starts = range(0, max(1, num_predicted - overlap), stride)
    for rows in _groups(starts, config.count):
        ends = [min(start + config.context, num_predicted) for start in rows]
        inputs = np.full((len(rows), max(np.subtract(ends, rows))), PAD)
        targets = inputs.copy()
        for row, (start, end) in enumerate(zip(rows, ends, strict=True)):
            inputs[row, : end - start] = tokens[start:end]
            asked = overlap if start else 0
            targets[row, asked : end - start] = tokens[start + asked + 1 : end + 1]
        yield TextBatch(torch.from_numpy(inputs), torch.from_numpy(targets))


def apart(tokens: Tokens, config: StreamsConfig) -> Iterator[TextBatch]:
    """Give every token of a text once, in pieces that follow one another."""
    starts = range(0, len(tokens), config.context)
    for rows in _groups(starts, config.count):
        inputs = np.full((len(rows), config.context), PAD, dtype=np.int64)
        for row, start in enumerate(rows):
            piece = tokens[start : start + config.context]
            inputs[row, : len(piece)] = piece
        yield TextBatch(torch.from_numpy(inputs), torch.from_numpy(inputs))


def _groups(members: Sequence[Member], size: int) -> Iterator[Sequence[Member]]:
    for first in range(0, len(members), size):
        yield members[first : first + size]

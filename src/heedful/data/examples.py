"""The two formats of examples, pairs of texts and lines of running text, and their tokenization.

A task names its format; reading, splitting, tokenizing and saving depend on nothing else.
Invariant: the tokens of a chunk of examples depend only on the chunk and the settings, so the
tokens of a corpus do not depend on how it was divided among chunks and workers.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.filtering import (
    ChunkFilter,
    FilterConfig,
    FilterReason,
    FilterReport,
    check_not_empty,
    compute_filter_reasons,
    make_report,
    merge_reports,
)
from heedful.data.pair_dataset import InMemoryPairDataset, Pair, deinterleave, permute_indices
from heedful.errors import DataError, check
from heedful.tokenization.ragged_array import Integers, RaggedArray
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import EOS, UNK

MAX_HELD_OUT_PAIRS = 1000
MAX_HELD_OUT_LINES = 5000
HELD_OUT_DIVISOR = 20  # at most one example in 20 is held out
CHUNK_SIZE = 10_000
"""Examples tokenized at once: lists of ids take many times the memory of the array they become."""

ExampleFormatName = Literal["pairs", "lines"]


class TokenizedChunk(NamedTuple):
    """The tokens of consecutive texts, concatenated."""

    values: NDArray[np.integer[Any]]
    lengths: Integers  # of each text; of a pair, the source before the target
    metadata: dict[str, Any]  # counts to be reported


class ExampleFormat(ABC):
    """What one example of a corpus is."""

    name: ClassVar[ExampleFormatName]
    """Also the word for a number of them."""
    description: ClassVar[str]
    prefix_tokens: ClassVar[Sequence[int]] = ()
    """Tokens before the first text of a corpus."""
    supports_filtering: ClassVar[bool]
    """Whether single examples can be dropped."""

    @abstractmethod
    def choose_held_out(self, count: int, *, seed: int, location: str) -> Sequence[int]:
        """Return the sorted rows that become the dev set if the recipe names none."""

    @abstractmethod
    def tokenizer_texts(self, examples: Sequence[Any]) -> tuple[Sequence[str], Sequence[str]]:
        """Return the texts that the source and the target tokenizer are trained on."""

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """Return the example that was saved as this JSON value."""

    @abstractmethod
    def tokenize(
        self, examples: Sequence[Any], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        """Tokenize the examples of a chunk that the filter keeps."""


class PairFormat(ExampleFormat):
    """Pairs of a source and a target text, in any order."""

    name = "pairs"
    description = "pairs of texts"
    supports_filtering = True

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> list[int]:
        message = "one pair is not enough: one is needed to train on and one to validate on"
        hint = "give more lines, or files to validate on: --dev-source FILE --dev-target FILE"
        check(count >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_PAIRS, count // HELD_OUT_DIVISOR))
        rows = permute_indices(np.arange(num_held_out), count, seed=seed, epoch=-1)
        return sorted(rows.tolist())

    @override
    def tokenizer_texts(self, examples: Sequence[Pair]) -> tuple[list[str], list[str]]:
        return [pair.source for pair in examples], [pair.target for pair in examples]

    @override
    def from_json(self, value: Any) -> Pair:
        return Pair(*value)

    @override
    def tokenize(
        self, examples: Sequence[Pair], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        sources = tokenizers.source.encode_batch([pair.source for pair in examples])
        targets = tokenizers.target.encode_batch([pair.target for pair in examples])
        reasons = compute_filter_reasons(examples, sources, targets, filtering)
        kept = np.flatnonzero(reasons == FilterReason.KEPT).tolist()
        interleaved = RaggedArray.from_sequences(
            chain.from_iterable((sources[row], targets[row]) for row in kept)
        )
        report = make_report(reasons, examples, filtering)
        return TokenizedChunk(interleaved.values, interleaved.lengths, report.to_metadata())


class LineFormat(ExampleFormat):
    """Lines of running text, in the order of the text; the dev set is its end."""

    name = "lines"
    description = "running text"
    supports_filtering = False
    prefix_tokens = (EOS,)

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> range:
        message = "one line is not enough: some are needed to train on and some to validate on"
        hint = "give a text of more lines, or one to validate on: --dev-text FILE"
        check(count >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_LINES, count // HELD_OUT_DIVISOR))
        return range(count - num_held_out, count)

    @override
    def tokenizer_texts(self, examples: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        return examples, []

    @override
    def from_json(self, value: Any) -> str:
        return value

    @override
    def tokenize(
        self, examples: Sequence[str], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        encoded = tokenizers.target.encode_batch(examples)
        lines = RaggedArray.from_sequences([*ids, EOS] for ids in encoded)
        counts = {"lines": len(examples), "unknown": int((lines.values == UNK).sum())}
        return TokenizedChunk(lines.values, lines.lengths, counts)


PAIRS, LINES = PairFormat(), LineFormat()
EXAMPLE_FORMATS: dict[str, ExampleFormat] = {PAIRS.name: PAIRS, LINES.name: LINES}


def tokenize_corpora(
    corpora: Sequence[Sequence[Pair]],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
) -> tuple[list[InMemoryPairDataset], FilterReport]:
    """Tokenize multiple parallel corpora in memory; their pairs are numbered consecutively."""
    seen: set[int] = set()  # hashes of pairs
    first_row = 1
    datasets: list[InMemoryPairDataset] = []
    reports: list[FilterReport] = []
    for pairs in corpora:
        chunks: list[TokenizedChunk] = []
        for start in range(0, max(1, len(pairs)), CHUNK_SIZE):
            filtering = ChunkFilter(config, location, first_row + start, seen=seen)
            chunk = PAIRS.tokenize(pairs[start : start + CHUNK_SIZE], tokenizers, filtering)
            chunks.append(chunk)
            reports.append(FilterReport(config, **chunk.metadata))
        first_row += len(pairs)
        values = np.concatenate([chunk.values for chunk in chunks])
        datasets.append(deinterleave(values, np.concatenate([chunk.lengths for chunk in chunks])))
    merged = merge_reports(reports)
    check_not_empty(merged, location=location)
    return datasets, merged


class TextChunk(NamedTuple):
    """Consecutive examples of a corpus."""

    texts: bytes  # a JSON list of texts, or of pairs of texts
    first_row: int = 0  # number of training examples before it
    held_out: Sequence[int] = ()
    duplicates: Sequence[int] = ()


class TokenizationJob(BaseConfig):
    """How the chunks of a corpus are tokenized: all that a worker needs."""

    tokenizers: TokenizersConfig
    """The tokenizers."""
    folder: Path
    """Where they are saved."""
    example_format: ExampleFormatName = "pairs"
    """Pairs of texts or lines of running text."""
    filtering: FilterConfig | None
    """Which pairs are filtered out."""
    data_name: str
    """Name of the data in errors."""

    def setup(self, *, is_shared: bool) -> Callable[[TextChunk], TokenizedChunk]:
        """Load the tokenizers, in each worker process (see `heedful.parallel.WorkerJob`)."""
        del is_shared
        return partial(self._tokenize, self.tokenizers.load(self.folder))

    def _tokenize(self, tokenizers: TokenizerPair, chunk: TextChunk) -> TokenizedChunk:
        """Tokenize the examples of a chunk that are not held out."""
        example_format = EXAMPLE_FORMATS[self.example_format]
        held_out, duplicates = set(chunk.held_out), set(chunk.duplicates)
        values = json.loads(chunk.texts)
        rows = [row for row in range(len(values)) if row not in held_out]
        known_duplicates = [index for index, row in enumerate(rows) if row in duplicates]
        filtering = ChunkFilter(
            self.filtering or FilterConfig(), self.data_name, chunk.first_row + 1, known_duplicates
        )
        examples = [example_format.from_json(values[row]) for row in rows]
        tokenized = example_format.tokenize(examples, tokenizers, filtering)
        dtype = np.uint16 if max(map(len, tokenizers)) <= 2**16 else np.uint32  # the smallest
        return tokenized._replace(values=tokenized.values.astype(dtype))

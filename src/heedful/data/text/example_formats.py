"""The formats of examples, such as pairs of texts, lines and captioned images, as tokens.

A task names its format; reading, splitting, tokenizing and saving depend on nothing else.
Invariant: the tokens of a chunk of examples depend only on the chunk and the settings, so the
tokens of a corpus do not depend on how it was divided among chunks and workers.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.data.sources import SourceConfig
from heedful.data.text.filtering import (
    ChunkFilter,
    FilterConfig,
    FilterReport,
    check_not_empty,
    compute_filter_reasons,
    kept_rows,
    make_report,
    merge_reports,
)
from heedful.data.text.held_out import (
    HELD_OUT_DIVISOR,
    MAX_HELD_OUT_LINES,
    MAX_HELD_OUT_PAIRS,
    DevSplit,
    choose_pairs,
)
from heedful.data.text.pair_dataset import (
    InMemoryPairDataset,
    Pair,
    TextHashes,
    deinterleave,
    hash_texts,
)
from heedful.errors import ConfigError, DataError, check, format_count
from heedful.tokenization.ragged_array import Integers, RaggedArray
from heedful.tokenization.standalone import split_spaces
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import EOS, UNK

CHUNK_SIZE = 10_000
"""Examples tokenized at once: lists of ids take many times the memory of the array they become."""

Rows = Sequence[Sequence[int]]


class ExampleSource(NamedTuple):
    """Examples of a source in memory."""

    examples: Sequence[Any]
    locate: Callable[[int], str]  # where an example was read


class TokenizedChunk(NamedTuple):
    """The tokens of consecutive texts, concatenated."""

    values: NDArray[np.integer[Any]]
    lengths: Integers  # of each text; of a pair, the source before the target
    metadata: dict[str, Any]  # counts to be reported


class ExampleFormat(ABC):
    """Interface of the formats of examples."""

    name: ClassVar[str]
    """Also the word for a number of them."""
    description: ClassVar[str]
    prefix_tokens: ClassVar[Sequence[int]] = ()
    """Tokens before the first text of a corpus."""
    supports_filtering: ClassVar[bool]
    """Whether single examples can be dropped."""
    has_tokens: ClassVar[bool] = True
    """Whether examples are texts; if not, their tokens can be neither prepared nor cached."""

    def noun(self, count: int) -> str:
        """Return the word for a number of them: "pair" or "pairs", but always "series"."""
        return self.name if count != 1 or self.name == "series" else self.name.removesuffix("s")

    def no_tokens_error(self) -> ConfigError:
        """Return the error that tokens of these examples are requested."""
        hint = "train on the files; if there are too many, raise data.max_in_memory_examples"
        return ConfigError("data.train", f"{self.name} have no tokens to prepare", hint)

    def hash(self, examples: Sequence[Any]) -> TextHashes:
        """Return the hashes that `choose_held_out` needs: none where only their number counts."""
        return np.empty((len(examples), 0), dtype=np.uint64)

    @abstractmethod
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        """Choose the rows that become the dev set if the recipe names none."""

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

    def to_arrays(self, dataset: Any) -> dict[str, NDArray[Any]]:
        """Return tokens in memory as arrays to be saved: by default they are one row."""
        return {"text": _narrow(dataset)}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Return the tokens that were saved as these arrays."""
        return arrays["text"].astype(np.int32)

    def fits(self, examples: Sequence[Any]) -> bool:
        """Return whether pairs of texts, or lines, can be examples of this format."""
        return True


def _narrow(ids: NDArray[Any]) -> NDArray[Any]:
    return ids.astype(np.uint16) if ids.max(initial=0) < 2**16 else ids


class PairFormat(ExampleFormat):
    """Pairs of a source and a target text, in any order."""

    name = "pairs"
    description = "pairs of texts"
    supports_filtering = True
    dev_options: ClassVar[str] = "--dev-source FILE --dev-target FILE"
    num_disjoint_sides: ClassVar[int] = 2
    """Whose texts dev and training pairs do not share: 1 for the source, 2 for both."""

    @override
    def hash(self, examples: Sequence[Pair]) -> TextHashes:
        return hash_texts(examples)

    @override
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        message = "one pair is not enough: one is needed to train on and one to validate on"
        hint = f"give more lines, or files to validate on: {self.dev_options}"
        check(len(hashes) >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_PAIRS, len(hashes) // HELD_OUT_DIVISOR))
        return choose_pairs(hashes, num_held_out, seed=seed, sides=self.num_disjoint_sides)

    @override
    def tokenizer_texts(self, examples: Sequence[Pair]) -> tuple[list[str], list[str]]:
        return [pair.source for pair in examples], [pair.target for pair in examples]

    @override
    def from_json(self, value: Any) -> Pair:
        return Pair(*value)

    @override
    def to_arrays(self, dataset: InMemoryPairDataset) -> dict[str, NDArray[Any]]:
        sides = dataset._asdict().items()
        values = {f"{name}.values": _narrow(side.values) for name, side in sides}
        return values | {f"{name}.offsets": side.offsets for name, side in sides}

    @override
    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> InMemoryPairDataset:
        names = InMemoryPairDataset._fields
        values = (arrays[f"{name}.values"].astype(np.int32) for name in names)
        offsets = (arrays[f"{name}.offsets"] for name in names)
        return InMemoryPairDataset(*map(RaggedArray, values, offsets))

    def filtered(self, sources: Rows, targets: Rows) -> tuple[Rows, Rows]:
        """Return the rows whose lengths are filtered."""
        return sources, targets

    def encode(self, examples: Sequence[Pair], tokenizers: TokenizerPair) -> tuple[Rows, Rows]:
        """Return the ids of both sides."""
        return tokenizers.encode_pairs(
            [pair.source for pair in examples], [pair.target for pair in examples]
        )

    @override
    def tokenize(
        self, examples: Sequence[Pair], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        sources, targets = self.encode(examples, tokenizers)
        reasons = compute_filter_reasons(examples, *self.filtered(sources, targets), filtering)
        kept = kept_rows(reasons, filtering.config)
        interleaved = RaggedArray.from_sequences(
            chain.from_iterable((sources[row], targets[row]) for row in kept)
        )
        report = make_report(reasons, filtering)
        return TokenizedChunk(interleaved.values, interleaved.lengths, report.to_metadata())


class LabeledTextFormat(PairFormat):
    """Pairs of a text and its label; many texts have the same label."""

    name = "texts"
    description = "labeled texts"
    dev_options = "--dev-labeled FILE"
    num_disjoint_sides = 1

    @override
    def fits(self, examples: Sequence[Pair]) -> bool:
        return len({pair.target for pair in examples}) <= len(examples) // 2


class TaggedTextFormat(LabeledTextFormat):
    """Pairs of a text of words and a text of their tags; its length is the number of words."""

    name = "sentences"
    description = "tagged sentences"
    dev_options = "--dev-conll FILE"

    @override
    def filtered(self, sources: Rows, targets: Rows) -> tuple[Rows, Rows]:
        return targets, targets

    @override
    def tokenize(
        self, examples: Sequence[Pair], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        hint = "give one tag for each word; words and tags are separated by single spaces"
        for row, pair in enumerate(examples):
            num_words, num_tags = self._count(pair)
            if num_words != num_tags:
                message = f"the sentence has {format_count(num_words, 'word')}, but "
                message += format_count(num_tags, "tag")
                raise DataError(filtering.locate(row), message, hint)
        return super().tokenize(examples, tokenizers, filtering)

    @override
    def fits(self, examples: Sequence[Pair]) -> bool:
        return all(words == tags for words, tags in map(self._count, examples))

    @staticmethod
    def _count(pair: Pair) -> tuple[int, int]:
        """Return the numbers of words and tags."""
        return len(split_spaces(pair.source)), len(split_spaces(pair.target))


def encode_lines(lines: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Encode lines with their ends: EOS, or the line break of the tokenizer."""
    if tokenizer.has_line_breaks:
        return tokenizer.encode_batch([line + "\n" for line in lines])
    return [[*ids, EOS] for ids in tokenizer.encode_batch(lines)]


class LineFormat(ExampleFormat):
    """Lines of running text, in the order of the text; the dev set is its end."""

    name = "lines"
    description = "running text"
    supports_filtering = False
    prefix_tokens = (EOS,)

    @override
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        count = len(hashes)
        message = "one line is not enough: some are needed to train on and some to validate on"
        hint = "give a text of more lines, or one to validate on: --dev-text FILE"
        check(count >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_LINES, count // HELD_OUT_DIVISOR))
        return DevSplit(range(count - num_held_out, count))

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
        lines = RaggedArray.from_sequences(encode_lines(examples, tokenizers.target))
        counts = {"lines": len(examples), "unknown": int((lines.values == UNK).sum())}
        return TokenizedChunk(lines.values, lines.lengths, counts)


class SeriesFormat(ExampleFormat):
    """Time series, all of which are trained on and validated on, each with its own part."""

    name = "series"
    description = "time series"
    supports_filtering = False
    has_tokens = False

    @override
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        return DevSplit(range(len(hashes)), is_shared=True)

    @override
    def tokenizer_texts(self, examples: Sequence[Any]) -> tuple[Sequence[str], Sequence[str]]:
        return [], []

    @override
    def from_json(self, value: Any) -> Any:
        raise self.no_tokens_error()

    @override
    def tokenize(
        self, examples: Sequence[Any], tokenizers: TokenizerPair, filtering: ChunkFilter
    ) -> TokenizedChunk:
        raise self.no_tokens_error()


PAIRS, LINES, SERIES = PairFormat(), LineFormat(), SeriesFormat()
LABELED_TEXTS, TAGGED_TEXTS = LabeledTextFormat(), TaggedTextFormat()


def tokenize_corpora(
    corpora: Sequence[ExampleSource],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
    example_format: ExampleFormat = PAIRS,
) -> tuple[list[InMemoryPairDataset], FilterReport]:
    """Tokenize multiple parallel corpora in memory; their pairs are numbered consecutively."""
    seen: set[int] = set()  # hashes of pairs
    first_row = 1
    datasets: list[InMemoryPairDataset] = []
    reports: list[FilterReport] = []
    for pairs, locate in corpora:
        chunks: list[TokenizedChunk] = []
        for start in range(0, max(1, len(pairs)), CHUNK_SIZE):
            filtering = ChunkFilter(config, _after(start, locate), first_row + start, seen=seen)
            chunk = example_format.tokenize(
                pairs[start : start + CHUNK_SIZE], tokenizers, filtering
            )
            chunks.append(chunk)
            reports.append(FilterReport(config, **chunk.metadata))
        first_row += len(pairs)
        values = np.concatenate([chunk.values for chunk in chunks])
        datasets.append(deinterleave(values, np.concatenate([chunk.lengths for chunk in chunks])))
    merged = merge_reports(reports)
    check_not_empty(merged, location=location)
    return datasets, merged


def _after(start: int, locate: Callable[[int], str]) -> Callable[[int], str]:
    return lambda index: locate(start + index)


class TextChunk(NamedTuple):
    """Consecutive examples of a corpus."""

    texts: bytes  # a JSON list of texts, or of pairs of texts
    source_index: int = 0
    source_row: int = 0  # row of its first example in the source
    first_row: int = 0  # number of training examples before it
    left_out: Sequence[int] = ()
    duplicates: Sequence[int] = ()


@dataclass(frozen=True)
class TokenizationJob:
    """How the chunks of a corpus are tokenized: all that a worker needs."""

    tokenizers: TokenizersConfig
    folder: Path  # where they are saved
    example_format: ExampleFormat
    filtering: FilterConfig | None  # which pairs are filtered out
    sources: Sequence[SourceConfig]

    def setup(self, *, is_shared: bool) -> Callable[[TextChunk], TokenizedChunk]:
        """Load the tokenizers, in each worker process (see `heedful.parallel.WorkerJob`)."""
        del is_shared
        return partial(self._tokenize, self.tokenizers.load(self.folder))

    def _tokenize(self, tokenizers: TokenizerPair, chunk: TextChunk) -> TokenizedChunk:
        """Tokenize the examples of a chunk that are not left out."""
        example_format = self.example_format
        left_out, duplicates = set(chunk.left_out), set(chunk.duplicates)
        values = json.loads(chunk.texts)
        rows = [row for row in range(len(values)) if row not in left_out]
        known_duplicates = [index for index, row in enumerate(rows) if row in duplicates]
        source, source_row = self.sources[chunk.source_index], chunk.source_row
        filtering = ChunkFilter(
            self.filtering or FilterConfig(),
            lambda index: source.locate(source_row + rows[index]),
            chunk.first_row + 1,
            known_duplicates,
        )
        examples = [example_format.from_json(values[row]) for row in rows]
        tokenized = example_format.tokenize(examples, tokenizers, filtering)
        id_bound = max(side.id_bound for side in tokenizers)
        has_small_ids = id_bound <= 2**16 and not tokenizers.target.is_open
        dtype = np.uint16 if has_small_ids else np.uint32  # the smallest
        return tokenized._replace(values=tokenized.values.astype(dtype))

"""The two formats of examples, pairs of texts and lines of running text, and their tokenization.

A task names its format; reading, splitting, tokenizing and saving depend on nothing else.
Invariant: a chunk of examples is tokenized without knowledge of others, so the tokens of a
corpus do not depend on how it was divided into chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.data.filtering import (
    FilterConfig,
    FilterReason,
    FilterReport,
    SeenPairs,
    check_not_empty,
    compute_filter_reasons,
    make_report,
    merge_reports,
)
from heedful.data.pair_dataset import (
    InMemoryPairDataset,
    Integers,
    Pair,
    RaggedArray,
    deinterleave,
)
from heedful.data.permutation import permute_indices
from heedful.errors import DataError, check
from heedful.tokenization.tokenizer_pair import TokenizerPair
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
        self,
        examples: Sequence[Any],
        tokenizers: TokenizerPair,
        filtering: FilterConfig | None,
        *,
        location: str,
        first_row: int,
        duplicates: Collection[int],
    ) -> TokenizedChunk:
        """Tokenize a chunk without its `duplicates`; errors count from `first_row`."""

    def check_reports(
        self, reports: Sequence[dict[str, Any]], filtering: FilterConfig | None, *, location: str
    ) -> None:
        """Raise DataError if nothing is left of a corpus with this metadata of its chunks."""
        del reports, filtering, location


class PairFormat(ExampleFormat):
    """Pairs of a source and a target text, in any order."""

    name = "pairs"
    description = "pairs of texts"
    supports_filtering = True

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> list[int]:
        check(
            count >= 2,
            location,
            "one pair is not enough: one is needed to train on and one to validate on",
            "give more lines, or files to validate on: --dev-source FILE --dev-target FILE",
            DataError,
        )
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
        self,
        examples: Sequence[Pair],
        tokenizers: TokenizerPair,
        filtering: FilterConfig | None,
        *,
        location: str,
        first_row: int,
        duplicates: Collection[int],
    ) -> TokenizedChunk:
        chunk, report = tokenize_pairs(
            examples,
            tokenizers,
            filtering or FilterConfig(),
            location=location,
            first_row=first_row,
            duplicates=duplicates,
        )
        return chunk._replace(metadata=report.to_metadata())

    @override
    def check_reports(
        self, reports: Sequence[dict[str, Any]], filtering: FilterConfig | None, *, location: str
    ) -> None:
        config = filtering or FilterConfig()
        report = merge_reports(FilterReport(config, **metadata) for metadata in reports)
        check_not_empty(report, location=location)


class LineFormat(ExampleFormat):
    """Lines of running text, in the order of the text; the dev set is its end."""

    name = "lines"
    description = "running text"
    supports_filtering = False
    prefix_tokens = (EOS,)

    @override
    def choose_held_out(self, count: int, *, seed: int, location: str) -> range:
        check(
            count >= 2,
            location,
            "one line is not enough: some are needed to train on and some to validate on",
            "give a text of more lines, or one to validate on: --dev-text FILE",
            DataError,
        )
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
        self,
        examples: Sequence[str],
        tokenizers: TokenizerPair,
        filtering: FilterConfig | None,
        *,
        location: str,
        first_row: int,
        duplicates: Collection[int],
    ) -> TokenizedChunk:
        encoded = tokenizers.target.encode_batch(examples)
        lines = RaggedArray.from_sequences([*ids, EOS] for ids in encoded)
        counts = {"lines": len(examples), "unknown": int((lines.values == UNK).sum())}
        return TokenizedChunk(lines.values, lines.lengths, counts)


PAIRS, LINES = PairFormat(), LineFormat()
EXAMPLE_FORMATS: dict[str, ExampleFormat] = {PAIRS.name: PAIRS, LINES.name: LINES}


def tokenize_pairs(
    pairs: Sequence[Pair],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
    first_row: int = 1,
    duplicates: Collection[int] = (),
    seen_pairs: SeenPairs | None = None,
) -> tuple[TokenizedChunk, FilterReport]:
    """Tokenize and filter consecutive pairs, of which the first has the number `first_row`.

    Duplicates of earlier pairs are either known (`duplicates`) or found with `seen_pairs`.
    """
    sources = tokenizers.source.encode_batch([pair.source for pair in pairs])
    targets = tokenizers.target.encode_batch([pair.target for pair in pairs])
    reasons = compute_filter_reasons(
        pairs,
        config,
        source_ids=sources,
        target_ids=targets,
        location=location,
        first_row=first_row,
        seen_pairs=seen_pairs,
    )
    for row in duplicates:
        if reasons[row] == FilterReason.KEPT:
            reasons[row] = FilterReason.DUPLICATE
    kept = np.flatnonzero(reasons == FilterReason.KEPT).tolist()
    interleaved = RaggedArray.from_sequences(
        chain.from_iterable((sources[row], targets[row]) for row in kept)
    )
    report = make_report(reasons, pairs, config, first_row=first_row)
    return TokenizedChunk(interleaved.values, interleaved.lengths, {}), report


def tokenize_corpora(
    corpora: Sequence[Sequence[Pair]],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
) -> tuple[list[InMemoryPairDataset], FilterReport]:
    """Tokenize several parallel corpora in memory; their pairs are numbered consecutively."""
    seen_pairs, first_row = SeenPairs(), 1
    datasets: list[InMemoryPairDataset] = []
    reports: list[FilterReport] = []
    for pairs in corpora:
        chunks: list[TokenizedChunk] = []
        for start in range(0, max(1, len(pairs)), CHUNK_SIZE):
            some_pairs = pairs[start : start + CHUNK_SIZE]
            chunk, report = tokenize_pairs(
                some_pairs,
                tokenizers,
                config,
                location=location,
                first_row=first_row,
                seen_pairs=seen_pairs,
            )
            chunks.append(chunk)
            reports.append(report)
            first_row += len(some_pairs)
        values = np.concatenate([chunk.values for chunk in chunks])
        datasets.append(deinterleave(values, np.concatenate([chunk.lengths for chunk in chunks])))
    merged = merge_reports(reports)
    check_not_empty(merged, location=location)
    return datasets, merged

"""Cutting: what do some texts become that follow one another in a corpus?

A chunk is cut without knowing of any other, so chunks may be cut by several workers; what comes
of a corpus does not depend on how many there were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.config import BaseConfig
from heedful.data.filtering import (
    FilterConfig,
    FilterReason,
    FilterReport,
    SeenPairs,
    compute_filter_reasons,
    make_report,
)
from heedful.data.pair_dataset import (
    InMemoryPairDataset,
    Integers,
    Pair,
    RaggedArray,
    offsets_from_lengths,
    range_indices,
)
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import EOS, UNK

CHUNK_SIZE = 10_000
"""Texts cut at once: lists of ids take many times the memory of the array they become."""


class TextChunk(NamedTuple):
    """Texts that follow one another, and which of them are not learned from."""

    texts: bytes  # a list of texts, or of pairs of them, as JSON
    first_row: int = 0  # how many texts that are learned from come before it
    held_out: Sequence[int] = ()
    duplicates: Sequence[int] = ()


class TokenizedChunk(NamedTuple):
    """What a chunk became: the tokens of its texts one after the other."""

    values: NDArray[np.integer[Any]]
    lengths: Integers  # of each text; of a pair, the source's before the target's
    metadata: dict[str, Any]  # what is to be reported


class TokenizationJob(BaseConfig):
    """How the texts of a corpus are cut."""

    tokenizers: TokenizersConfig
    """The tokenizers,"""
    folder: Path
    """and where they are saved."""
    filtering: FilterConfig | None
    """Which pairs are left out; None where the texts are lines and not pairs."""
    data_name: str
    """How the data is called in errors."""


class ChunkTokenizer:
    """Cuts chunks as a job says."""

    def __init__(self, job: TokenizationJob) -> None:
        self.job = job
        self.tokenizers = job.tokenizers.load(job.folder)
        self.type = token_dtype(self.tokenizers)

    def __call__(self, chunk: TextChunk) -> TokenizedChunk:
        """Cut a chunk."""
        held_out, repeated = set(chunk.held_out), set(chunk.duplicates)
        texts = list(enumerate(json.loads(chunk.texts)))
        learned = [(row, text) for row, text in texts if row not in held_out]
        if self.job.filtering is None:
            return tokenize_lines([text for _, text in learned], self.tokenizers.target, self.type)
        pairs = [Pair(*text) for _, text in learned]
        again = np.array([row in repeated for row, _ in learned], dtype=np.bool_)
        cut, report = tokenize_pairs(
            pairs,
            self.tokenizers,
            self.job.filtering,
            location=self.job.data_name,
            first_row=chunk.first_row + 1,
            duplicates=again,
        )
        return TokenizedChunk(cut.values.astype(self.type), cut.lengths, report_to_dict(report))


def token_dtype(tokenizers: TokenizerPair) -> np.dtype[Any]:
    """The smallest type that holds every token."""
    return np.dtype(np.uint16 if max(map(len, tokenizers)) <= 2**16 else np.uint32)


def tokenize_pairs(
    pairs: Sequence[Pair],
    tokenizers: TokenizerPair,
    config: FilterConfig,
    *,
    location: str,
    first_row: int = 1,
    duplicates: NDArray[np.bool_] | None = None,
    seen_pairs: SeenPairs | None = None,
) -> tuple[TokenizedChunk, FilterReport]:
    """Cut the pairs that are fit to learn from; the first of them has the number `first`.

    Which pairs have come before is either known (`duplicates`) or found out (`seen`).
    """
    sources = tokenizers.source.encode_batch([pair.source for pair in pairs])
    targets = tokenizers.target.encode_batch([pair.target for pair in pairs])
    found = compute_filter_reasons(
        pairs,
        config,
        source_ids=sources,
        target_ids=targets,
        location=location,
        first_row=first_row,
        seen_pairs=seen_pairs,
    )
    if duplicates is not None:
        found[duplicates & (found == FilterReason.KEPT)] = FilterReason.DUPLICATE
    kept = np.flatnonzero(found == FilterReason.KEPT).tolist()
    woven = RaggedArray.from_sequences(
        chain.from_iterable((sources[row], targets[row]) for row in kept)
    )
    return TokenizedChunk(woven.values, woven.lengths, {}), make_report(
        found, pairs, config, first_row=first_row
    )


def tokenize_lines(
    lines: Sequence[str], tokenizer: Tokenizer, dtype: np.dtype[Any]
) -> TokenizedChunk:
    """Cut lines of running text, each with its end."""
    packed = RaggedArray.from_sequences([*ids, EOS] for ids in tokenizer.encode_batch(lines))
    facts = {"lines": len(lines), "unknown": int((packed.values == UNK).sum())}
    return TokenizedChunk(packed.values.astype(dtype), packed.lengths, facts)


def deinterleave(values: NDArray[np.integer[Any]], lengths: Integers) -> InMemoryPairDataset:
    """Part sources and targets that stand by turns in one array."""
    offsets = offsets_from_lengths(lengths)
    sides = (
        RaggedArray(
            values[range_indices(offsets[side:-1:2], lengths[side::2])].astype(
                np.int32, copy=False
            ),
            offsets_from_lengths(lengths[side::2]),
        )
        for side in (0, 1)
    )
    return InMemoryPairDataset(*sides)


def report_to_dict(report: FilterReport) -> dict[str, Any]:
    """A report as JSON can hold it; its settings are known to whoever reads it."""
    facts = report._asdict()
    del facts["config"]
    return facts


def report_from_dict(metadata: dict[str, Any], config: FilterConfig) -> FilterReport:
    """The report that facts were made of."""
    return FilterReport(config, **metadata)

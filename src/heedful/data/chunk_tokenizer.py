"""Tokenization of one chunk of a corpus, in this process or in a worker.

A `TokenizationJob` is all that a worker needs and can be sent as JSON. Invariant: the tokens of
a chunk depend on the job and the chunk alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.config import BaseConfig
from heedful.data.examples import EXAMPLE_FORMATS, ExampleFormatName, TokenizedChunk
from heedful.data.filtering import FilterConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig


class TextChunk(NamedTuple):
    """Consecutive examples of a corpus."""

    texts: bytes  # a JSON list of texts, or of pairs of texts
    first_row: int = 0  # number of training examples before it
    held_out: Sequence[int] = ()
    duplicates: Sequence[int] = ()


class TokenizationJob(BaseConfig):
    """How the chunks of a corpus are tokenized."""

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

    def setup(self, *, is_shared: bool) -> ChunkTokenizer:
        """Load the tokenizers, in each worker process (see `heedful.parallel.WorkerJob`)."""
        del is_shared
        return ChunkTokenizer(self)


class ChunkTokenizer:
    """Tokenizes chunks as a job specifies."""

    def __init__(self, job: TokenizationJob) -> None:
        self.job = job
        self.format = EXAMPLE_FORMATS[job.example_format]
        self.tokenizers = job.tokenizers.load(job.folder)
        self.dtype = token_dtype(self.tokenizers)

    def __call__(self, chunk: TextChunk) -> TokenizedChunk:
        """Tokenize the examples of a chunk that are not held out."""
        held_out, duplicates = set(chunk.held_out), set(chunk.duplicates)
        rows = [
            (row, value) for row, value in enumerate(json.loads(chunk.texts)) if row not in held_out
        ]
        tokenized = self.format.tokenize(
            [self.format.from_json(value) for _, value in rows],
            self.tokenizers,
            self.job.filtering,
            location=self.job.data_name,
            first_row=chunk.first_row + 1,
            duplicates=[index for index, (row, _) in enumerate(rows) if row in duplicates],
        )
        return tokenized._replace(values=tokenized.values.astype(self.dtype))


def token_dtype(tokenizers: TokenizerPair) -> np.dtype[Any]:
    """Return the smallest type that holds every token id."""
    return np.dtype(np.uint16 if max(map(len, tokenizers)) <= 2**16 else np.uint32)

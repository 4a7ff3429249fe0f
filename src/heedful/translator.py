"""The translator: a trained model with its text, asked for outputs.

What comes out of a text does not depend on what is translated beside it: texts are sorted and
batched for speed, and come back in the order they went in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.data.collate import Sources, collate_sources
from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.report import snippet
from heedful.search import Hypothesis, LengthPenalty
from heedful.tasks.model import Model
from heedful.text.config import TextPair

END_LABEL = "(end)"
_WINDOW = 1024  # texts that are sorted by length together when streaming


class DecodingConfig(Choice):
    """How outputs are searched for."""

    beam: PositiveInt = 5
    """Hypotheses kept side by side; 1 is greedy."""
    length_penalty: float = Field(default=0.6, ge=0)
    """The exponent of Wu et al. 2016; 0 leaves scores as they are."""
    max_source_tokens: PositiveInt = 1000
    """The longest source that is accepted."""
    max_output_ratio: float = Field(default=2.0, gt=0)
    """The longest output, in tokens per source token, beside `max_output_extra`."""
    max_output_extra: PositiveInt = 20
    """Tokens allowed on top of that."""
    max_batch_tokens: PositiveInt = 4096
    """Most source tokens that are decoded together, hypotheses and padding counted."""


class Translation(NamedTuple):
    """An output, its worth, and where each of its tokens looked."""

    source: str
    text: str
    score: float  # log-probability after the length penalty
    source_tokens: list[str]  # as shown; the last stands for the end of the source
    tokens: list[str]  # as shown
    weights: NDArray[np.float32]  # (tokens, source tokens); each row sums to one

    @property
    def attention_map(self) -> AttentionMap:
        """Where each token looked, ready to be drawn."""
        return AttentionMap(self.source_tokens, self.tokens, self.weights, title=self.source)

    def _repr_html_(self) -> str:
        return snippet(self.attention_map)


class Translator:
    """A trained model with its text."""

    def __init__(
        self,
        model: Model,
        text: TextPair,
        decoding: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.eval().to(device)
        self.text = text
        self.decoding = decoding
        self.device = device

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[Translation]:
        """Translate texts; an empty text gives an empty output."""
        return list(self.stream(texts, beam=beam))

    def stream(
        self, texts: Iterable[str], *, beam: int | None = None, origin: str = "text"
    ) -> Iterator[Translation]:
        """Translate texts as they come, in order, a bounded number at a time."""
        stream, done = iter(texts), 0
        while window := list(islice(stream, _WINDOW)):
            yield from self._translate(window, beam or self.decoding.beam, origin, first=done + 1)
            done += len(window)

    def _translate(
        self, texts: list[str], beam: int, origin: str, *, first: int
    ) -> list[Translation]:
        sequences = self.text.source.encode_all(texts)
        for number, sequence in enumerate(sequences, start=first):
            self._refuse_too_long(len(sequence), f"{origin}:{number}")
        found: dict[int, Hypothesis] = {}
        for rows in self._batches(sequences, beam):
            hypotheses = self._search([sequences[row] for row in rows], beam)
            found.update(zip(rows, hypotheses, strict=True))
        return [
            self._result(text, sequence, found.get(row))
            for row, (text, sequence) in enumerate(zip(texts, sequences, strict=True))
        ]

    def _refuse_too_long(self, length: int, at: str) -> None:
        limit = self.decoding.max_source_tokens
        if length > limit:
            raise DataError(
                at,
                f"the text has {length} tokens, and this model takes at most {limit}",
                "split the text into sentences, or raise the limit with "
                "--set decoding.max_source_tokens=N",
            )

    def _batches(self, sequences: list[list[int]], beam: int) -> Iterator[list[int]]:
        """Group texts of like length; texts without tokens are not asked about."""
        rows = [row for row, sequence in enumerate(sequences) if sequence]
        rows.sort(key=lambda row: len(sequences[row]), reverse=True)
        while rows:
            widest = len(sequences[rows[0]]) + 1
            count = max(1, self.decoding.max_batch_tokens // (widest * beam))
            yield rows[:count]
            rows = rows[count:]

    def _search(self, sequences: list[list[int]], beam: int) -> list[Hypothesis]:
        sources = collate_sources(sequences)
        limits = sources.lengths * self.decoding.max_output_ratio + self.decoding.max_output_extra
        found = self.model.search(
            Sources(*(part.to(self.device) for part in sources)),
            width=beam,
            max_lengths=limits.long().to(self.device),
            penalty=LengthPenalty(self.decoding.length_penalty),
        )
        return [hypotheses[0] for hypotheses in found]

    def _result(self, text: str, sequence: list[int], best: Hypothesis | None) -> Translation:
        shown = [*self.text.source.pieces(sequence), END_LABEL]
        if best is None:
            return Translation(text, "", 0.0, shown, [], np.zeros((0, len(shown)), np.float32))
        return Translation(
            source=text,
            text=self.text.target.decode(best.tokens),
            score=best.score,
            source_tokens=shown,
            tokens=self.text.target.pieces(best.tokens),
            weights=best.weights[:, : len(shown)],
        )

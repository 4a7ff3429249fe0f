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

from heedful.config import Choice
from heedful.data.order import Integers
from heedful.data.records import Pair
from heedful.data.selection import (
    Reason,
    Seen,
    SelectionConfig,
    SelectionReport,
    reasons,
    report_on,
)
from heedful.data.store import PairStore, Ragged, offsets_of, places
from heedful.text.config import TextConfig, TextPair
from heedful.text.tokenizers import Tokenizer
from heedful.text.vocabulary import EOS, UNK

CHUNK = 10_000
"""Texts cut at once: lists of ids take many times the memory of the array they become."""


class Chunk(NamedTuple):
    """Texts that follow one another, and which of them are not learned from."""

    texts: bytes  # a list of texts, or of pairs of them, as JSON
    first: int = 0  # how many texts that are learned from come before it
    held_out: Sequence[int] = ()
    repeated: Sequence[int] = ()


class Cut(NamedTuple):
    """What a chunk became: the tokens of its texts one after the other."""

    values: NDArray[np.integer[Any]]
    lengths: Integers  # of each text; of a pair, the source's before the target's
    facts: dict[str, Any]  # what is to be reported


class Job(Choice):
    """How the texts of a corpus are cut."""

    text: TextConfig
    """The tokenizers,"""
    folder: Path
    """and where they are saved."""
    selection: SelectionConfig | None
    """Which pairs are left out; None where the texts are lines and not pairs."""
    at: str
    """How the data is called in errors."""


class Cutter:
    """Cuts chunks as a job says."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.text = job.text.load(job.folder)
        self.type = token_type(self.text)

    def __call__(self, chunk: Chunk) -> Cut:
        """Cut a chunk."""
        held_out, repeated = set(chunk.held_out), set(chunk.repeated)
        texts = list(enumerate(json.loads(chunk.texts)))
        learned = [(row, text) for row, text in texts if row not in held_out]
        if self.job.selection is None:
            return cut_lines([text for _, text in learned], self.text.target, self.type)
        pairs = [Pair(*text) for _, text in learned]
        again = np.array([row in repeated for row, _ in learned], dtype=np.bool_)
        cut, report = cut_pairs(
            pairs,
            self.text,
            self.job.selection,
            at=self.job.at,
            first=chunk.first + 1,
            repeated=again,
        )
        return Cut(cut.values.astype(self.type), cut.lengths, report_facts(report))


def token_type(text: TextPair) -> np.dtype[Any]:
    """The smallest type that holds every token."""
    return np.dtype(np.uint16 if max(map(len, text)) <= 2**16 else np.uint32)


def cut_pairs(
    pairs: Sequence[Pair],
    text: TextPair,
    config: SelectionConfig,
    *,
    at: str,
    first: int = 1,
    repeated: NDArray[np.bool_] | None = None,
    seen: Seen | None = None,
) -> tuple[Cut, SelectionReport]:
    """Cut the pairs that are fit to learn from; the first of them has the number `first`.

    Which pairs have come before is either known (`repeated`) or found out (`seen`).
    """
    sources = text.source.encode_all([pair.source for pair in pairs])
    targets = text.target.encode_all([pair.target for pair in pairs])
    found = reasons(
        pairs, config, source_ids=sources, target_ids=targets, at=at, first=first, seen=seen
    )
    if repeated is not None:
        found[repeated & (found == Reason.KEPT)] = Reason.REPEATED
    kept = np.flatnonzero(found == Reason.KEPT).tolist()
    woven = Ragged.pack(chain.from_iterable((sources[row], targets[row]) for row in kept))
    return Cut(woven.values, woven.lengths, {}), report_on(found, pairs, config, first=first)


def cut_lines(lines: Sequence[str], tokenizer: Tokenizer, kind: np.dtype[Any]) -> Cut:
    """Cut lines of running text, each with its end."""
    packed = Ragged.pack([*ids, EOS] for ids in tokenizer.encode_all(lines))
    facts = {"lines": len(lines), "unknown": int((packed.values == UNK).sum())}
    return Cut(packed.values.astype(kind), packed.lengths, facts)


def unweave(values: NDArray[np.integer[Any]], lengths: Integers) -> PairStore:
    """Part sources and targets that stand by turns in one array."""
    offsets = offsets_of(lengths)
    sides = (
        Ragged(
            values[places(offsets[side:-1:2], lengths[side::2])].astype(np.int32, copy=False),
            offsets_of(lengths[side::2]),
        )
        for side in (0, 1)
    )
    return PairStore(*sides)


def report_facts(report: SelectionReport) -> dict[str, Any]:
    """A report as JSON can hold it; its settings are known to whoever reads it."""
    facts = report._asdict()
    del facts["config"]
    return facts


def report_of(facts: dict[str, Any], config: SelectionConfig) -> SelectionReport:
    """The report that facts were made of."""
    return SelectionReport(config, **facts)

"""Answering: what does each run make of the same texts, and how fast?

Runs take turns, a piece of the test set at a time, and another begins in every round: whatever else
the machine does meanwhile hits all alike. Before that each has translated a few texts that are not
counted, since the first ones pay for what is set up once. Law: what comes out does not depend on
the pieces (`translator`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from heedful.translator import Translator

PIECE = 128  # texts to a turn: several batches
WARM_UP = 16  # texts

Pieces = Sequence[Sequence[str]]
Watch = Callable[[Pieces], Iterable[Sequence[str]]]
"""Gives pieces on, and may show how many there have been."""


class Answers(NamedTuple):
    """What a run said, and what that took."""

    outputs: list[str]
    seconds: float
    num_tokens: int  # of outputs, as this run cuts them


def answer(
    translators: Sequence[Translator],
    sources: Sequence[str],
    *,
    beam: int | None = None,
    watch: Watch = iter,
) -> list[Answers]:
    """Let all translators answer all sources, by turns."""
    for translator in translators:
        translator.translate(sources[:WARM_UP], beam=beam)
    found = [Answers([], 0.0, 0) for _ in translators]
    pieces = [sources[first : first + PIECE] for first in range(0, len(sources), PIECE)]
    for round_number, piece in enumerate(watch(pieces)):
        for turn in range(len(translators)):
            place = (round_number + turn) % len(translators)
            found[place] = _add(found[place], translators[place], piece, beam)
    return found


def _add(
    answers: Answers, translator: Translator, piece: Sequence[str], beam: int | None
) -> Answers:
    began = time.perf_counter()
    results = translator.translate(piece, beam=beam)
    seconds = time.perf_counter() - began
    return Answers(
        [*answers.outputs, *(result.text for result in results)],
        answers.seconds + seconds,
        answers.num_tokens + sum(len(result.tokens) for result in results),
    )

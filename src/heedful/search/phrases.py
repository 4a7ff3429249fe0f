"""Phrases: what must be in an output?

A `Must` is met when one of its phrases has been said, token after token, wherever and however:
phrases may overlap, and what must be said twice over is said once. How far an output is with all
it must say follows from its tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Phrase = tuple[int, ...]


class Must(NamedTuple):
    """One of these phrases must be said."""

    phrases: tuple[Phrase, ...]

    @property
    def shortest(self) -> int:
        """The fewest tokens it takes."""
        return min(len(phrase) for phrase in self.phrases)


def must_say(*phrases: Sequence[int]) -> Must:
    """Require a phrase, or one of several."""
    return Must(tuple(tuple(phrase) for phrase in phrases))


class Progress(NamedTuple):
    """How far an output is: for each `Must`, None if it is met, else what was said of each phrase.

    What was said of a phrase is the longest beginning of it that the output ends with.
    """

    said: tuple[tuple[int, ...] | None, ...]


class Duties:
    """All that one output must say, and the fewest tokens that takes."""

    def __init__(self, musts: Sequence[Must]) -> None:
        self.musts = tuple(dict.fromkeys(musts))
        self._falls = [[_falls(phrase) for phrase in must.phrases] for must in self.musts]

    def begin(self) -> Progress:
        """Nothing has been said."""
        return Progress(tuple((0,) * len(must.phrases) for must in self.musts))

    def advance(self, progress: Progress, token: int) -> Progress:
        """Say a token."""
        return Progress(
            tuple(
                None if said is None else self._say(number, said, token)
                for number, said in enumerate(progress.said)
            )
        )

    def missing(self, progress: Progress) -> int:
        """A number of tokens that is enough to say the rest; 0 if and only if all is said.

        It goes on with one phrase that has been begun and says the others from their beginnings;
        where phrases overlap, fewer might do.
        """
        parts = [
            (must, said)
            for must, said in zip(self.musts, progress.said, strict=True)
            if said is not None
        ]
        spared = [
            must.shortest - (len(phrase) - count)
            for must, said in parts
            for phrase, count in zip(must.phrases, said, strict=True)
        ]
        return sum(must.shortest for must, _ in parts) - max([0, *spared])

    def next_tokens(self, progress: Progress) -> set[int]:
        """What goes on with a phrase; one of these leaves one token fewer missing."""
        return {
            phrase[count]
            for must, said in zip(self.musts, progress.said, strict=True)
            if said is not None
            for phrase, count in zip(must.phrases, said, strict=True)
        }

    def _say(self, number: int, said: tuple[int, ...], token: int) -> tuple[int, ...] | None:
        phrases, falls = self.musts[number].phrases, self._falls[number]
        counts = tuple(
            _next_count(phrase, fall, count, token)
            for phrase, fall, count in zip(phrases, falls, said, strict=True)
        )
        is_met = any(count == len(phrase) for count, phrase in zip(counts, phrases, strict=True))
        return None if is_met else counts


def _falls(phrase: Phrase) -> list[int]:
    """For each beginning, its longest shorter one that it also ends with (Knuth et al. 1977)."""
    falls, length = [0, 0], 0
    for token in phrase[1:]:
        while length and phrase[length] != token:
            length = falls[length]
        length += phrase[length] == token
        falls.append(length)
    return falls


def _next_count(phrase: Phrase, falls: list[int], count: int, token: int) -> int:
    while count and phrase[count] != token:
        count = falls[count]
    return count + (phrase[count] == token)

"""Sequences: letters to be copied, reversed or sorted.

The smallest tasks that need attention: one to `MAX_LENGTH` letters of the alphabet with spaces
between them, repeats allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from string import ascii_lowercase

from heedful.data.records import Pair
from heedful.data.synthetic.corpus import Corpus

MAX_LENGTH = 20


class SequenceCorpus(Corpus):
    """Random letters, and the same letters rearranged."""

    def __init__(
        self, name: str, description: str, *, rearrange: Callable[[Sequence[str]], Sequence[str]]
    ) -> None:
        self.name = name
        self.description = description
        self._rearrange = rearrange

    def draw(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sequences, every length equally often."""
        while True:
            letters = random.choices(ascii_lowercase, k=random.randint(1, MAX_LENGTH))
            yield Pair(" ".join(letters), " ".join(self._rearrange(letters)))


def copied(letters: Sequence[str]) -> Sequence[str]:
    """Leave them as they are."""
    return letters


def backwards(letters: Sequence[str]) -> Sequence[str]:
    """Put the last first."""
    return letters[::-1]

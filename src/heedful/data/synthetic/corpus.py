"""Corpora: where do examples come from when there are no files?

A corpus draws pairs without end. The same name, split and seed give the same pairs on every
machine. A pair belongs to one split, decided by a hash of its text, so nothing that is trained
on is ever tested on, whatever the seeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from random import Random

from heedful.data.pair_dataset import Pair
from heedful.errors import DataError, choices_hint, did_you_mean

_HELD_OUT = {0: "test", 1: "dev"}  # of fifty parts
_NUM_BUCKETS = 50
_MAX_CONSECUTIVE_DUPLICATES = 10_000  # repeats in a row after which a split counts as used up


class Corpus(ABC):
    """An endless supply of pairs, deterministic by seed."""

    name: str
    description: str
    splits: tuple[str, ...] = ("train", "dev", "test")

    def pairs(self, split: str, *, seed: int = 0) -> Iterator[Pair]:
        """Give the pairs of a split without end.

        Training pairs may repeat; those of the other splits do not, until a split is used up.
        """
        if split not in self.splits:
            problem = f"no split is called {split!r}{did_you_mean(split, self.splits)}"
            raise DataError(self.name, problem, choices_hint(self.splits))
        drawn = self.generate(split, Random(_hash_bucket(f"{self.name}/{split}/{seed}")))
        kept = (pair for pair in drawn if self.is_in_split(pair, split))
        return kept if split == "train" else _deduplicate(kept)

    @abstractmethod
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw pairs without end, among them those of the split."""

    def is_in_split(self, pair: Pair, split: str) -> bool:
        """Say whether a pair is of the split."""
        return assign_split(pair.source) == split


def assign_split(text: str) -> str:
    """Assign a text to train (96 in 100), dev (2) or test (2), for ever."""
    return _HELD_OUT.get(_hash_bucket(text) % _NUM_BUCKETS, "train")


def _hash_bucket(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _deduplicate(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Leave out repeats; begin anew once nothing but repeats has come for long."""
    seen: set[str] = set()
    repeats = 0
    for pair in pairs:
        repeats = repeats + 1 if pair.source in seen else 0
        if repeats >= _MAX_CONSECUTIVE_DUPLICATES:
            seen.clear()
            repeats = 0
        if pair.source not in seen:
            seen.add(pair.source)
            yield pair

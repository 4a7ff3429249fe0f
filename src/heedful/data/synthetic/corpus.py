"""Base class of generated corpora.

A corpus generates pairs without end. Invariants: the same name, split and seed give the same
pairs on every machine; a pair belongs to one split, determined by a hash of its text, so no
training pair is ever a test pair, whatever the seeds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from random import Random

from heedful.data.text.pair_dataset import Pair
from heedful.errors import DataError, check_choice

_HELD_OUT_BUCKETS = {0: "test", 1: "dev"}
_NUM_BUCKETS = 50
_MAX_CONSECUTIVE_DUPLICATES = 10_000  # after which a split counts as exhausted


class Corpus(ABC):
    """An endless stream of pairs, deterministic by seed."""

    name: str
    description: str
    splits: tuple[str, ...] = ("train", "dev", "test")

    def pairs(self, split: str, *, seed: int = 0) -> Iterator[Pair]:
        """Generate pairs without end; only training pairs repeat before a split is exhausted."""
        check_choice(split, self.splits, "split", location=self.name, error=DataError)
        generated = self.generate(split, Random(hash_text(f"{self.name}/{split}/{seed}")))
        pairs = (pair for pair in generated if self.is_in_split(pair, split))
        return pairs if split == "train" else _deduplicate(pairs)

    @abstractmethod
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Generate pairs without end, among them those of the split."""

    def is_in_split(self, pair: Pair, split: str) -> bool:
        """Whether a pair belongs to the split."""
        return assign_split(pair.source) == split


def assign_split(text: str) -> str:
    """Return the split of a text, fixed for ever: train (96 %), dev (2 %) or test (2 %)."""
    return _HELD_OUT_BUCKETS.get(hash_text(text) % _NUM_BUCKETS, "train")


def hash_text(text: str) -> int:
    """Return 64 bits of a hash that is the same on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _deduplicate(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Skip repeated sources; start over once a split is exhausted."""
    seen: set[str] = set()
    num_repeats = 0
    for pair in pairs:
        num_repeats = num_repeats + 1 if pair.source in seen else 0
        if num_repeats >= _MAX_CONSECUTIVE_DUPLICATES:
            seen.clear()
            num_repeats = 0
        if pair.source not in seen:
            seen.add(pair.source)
            yield pair

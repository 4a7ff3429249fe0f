"""Base classes of generated corpora, and toy corpora: arithmetic in words, dates, letters.

A corpus generates pairs without end. Invariants: the same name, split and seed give the same
pairs on every machine; a pair belongs to one split, determined by a hash of its text, so no
training pair is ever a test pair, whatever the seeds; a source determines its target.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import blake2b
from itertools import chain
from random import Random
from string import ascii_lowercase
from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from heedful.data.images.image_files import Pixels
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


# ----- toy corpora

MAX_NUMBER = 9999
OPERATORS = ("plus", "minus", "times")
_NUM_OPERATORS, _TERMS, _FACTORS = (1, 3), (0, 99), (0, 20)  # smallest and largest
_LONGER, _LARGER, _NUMBERS = "longer", "larger", "numbers"
_MORE_OPERATORS, _LARGER_TERMS, _LARGER_FACTORS = (4, 6), (100, 999), (21, 99)
RESERVED_NUMBERS = (27, 34, 48, 56, 61, 73, 89, 92)  # made of words that other numbers have, too
ARITHMETIC_SPLITS = ("train", "dev", "test", _LONGER, _LARGER)

# fmt: off
_BELOW_TWENTY = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)
# fmt: on
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@dataclass(frozen=True)
class ArithmeticCorpus(Corpus):
    """Sums in words: two times three times three equals -> eighteen.

    Further splits are beyond the training data: `longer` has four to six operators instead of one
    to three, `larger` operands above all of training, `numbers` the reserved numbers, which are
    operands in no other split.
    """

    name: str = "arithmetic"
    description: str = "sums in English words, and their results"
    splits: tuple[str, ...] = ARITHMETIC_SPLITS
    reserved_numbers: tuple[int, ...] = ()

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        is_larger = split == _LARGER
        terms, factors = (_LARGER_TERMS, _LARGER_FACTORS) if is_larger else (_TERMS, _FACTORS)
        num_operators = _MORE_OPERATORS if split == _LONGER else _NUM_OPERATORS
        while True:
            operators = random.choices(OPERATORS, k=random.randint(*num_operators))
            neighbors = zip(["", *operators], [*operators, ""], strict=True)
            numbers = [random.randint(*(factors if "times" in p else terms)) for p in neighbors]
            result = evaluate_expression(numbers, operators)
            if 0 <= result <= MAX_NUMBER:
                words = [number_to_words(number) for number in numbers]
                parts = zip(words, [*operators, "equals"], strict=True)
                yield Pair(" ".join(chain.from_iterable(parts)), number_to_words(result))

    @override
    def is_in_split(self, pair: Pair, split: str) -> bool:
        words = pair.source.split()
        has_reserved = any(number_to_words(number) in words for number in self.reserved_numbers)
        if has_reserved or split == _NUMBERS:
            return has_reserved and split == _NUMBERS
        return split in (_LONGER, _LARGER) or super().is_in_split(pair, split)


def evaluate_expression(numbers: Sequence[int], operators: Sequence[str]) -> int:
    """Evaluate products first, then sums from left to right."""
    terms = [numbers[0]]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "times":
            terms[-1] *= number
        else:
            terms.append(number if operator == "plus" else -number)
    return sum(terms)


def number_to_words(number: int) -> str:
    """Spell a number from 0 to `MAX_NUMBER` in English, without "and"."""
    assert 0 <= number <= MAX_NUMBER, f"no words for {number}"
    if number < 20:
        return _BELOW_TWENTY[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{_TENS[tens - 2]}-{_BELOW_TWENTY[ones]}" if ones else _TENS[tens - 2]
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    words = f"{_BELOW_TWENTY[count]} {name}"
    return f"{words} {number_to_words(rest)}" if rest else words


FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
_NUM_DAYS = (LAST_DAY - FIRST_DAY).days + 1

# fmt: off
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)
_ONES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_ORDINALS = (
    *_ONES, "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
    "seventeenth", "eighteenth", "nineteenth", "twentieth",
    *(f"twenty-{ordinal}" for ordinal in _ONES), "thirtieth", "thirty-first",
)
# fmt: on

# Every style distinguishes day from month and writes the whole year: each text is one day.
STYLES = (
    "{day} {month} {year}",
    "{month} {day}, {year}",
    "{numbered} {month} {year}",
    "{month} {numbered}, {year}",
    "the {ordinal} of {month} {year}",
    "{month} the {ordinal}, {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday}, {month} {numbered}, {year}",
    "{weekday:.3} {day} {month:.3} {year}",
    "{day:02}-{month:.3}-{year}",
    "{month:.3} {day}, {year}",
    "{year}, {month} {day}",
)


def format_date(day: date, style: str) -> str:
    """Write a date in one of the styles."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return style.format(
        day=day.day,
        numbered=f"{day.day}{'th' if day.day in (11, 12, 13) else ending}",
        ordinal=_ORDINALS[day.day - 1],
        weekday=_WEEKDAYS[day.weekday()],
        month=_MONTHS[day.month - 1],
        year=day.year,
    )


class DatesCorpus(Corpus):
    """Written dates of 1900 to 2099 and their ISO 8601 form."""

    name = "dates"
    description = "dates in a dozen styles, and their ISO 8601 form"

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        while True:
            day = FIRST_DAY + timedelta(days=random.randrange(_NUM_DAYS))
            yield Pair(format_date(day, random.choice(STYLES)), day.isoformat())


MAX_LENGTH = 20
_LONGER_LENGTHS = (MAX_LENGTH + 1, MAX_LENGTH + 5)


@dataclass(frozen=True)
class SequenceCorpus(Corpus):
    """Random letters and the same letters transformed; the smallest tasks that need attention.

    The split `longer` has 21 to 25 letters, more than any other split.
    """

    name: str
    description: str
    transform: Callable[[list[str]], list[str]]
    splits: tuple[str, ...] = ("train", "dev", "test", _LONGER)

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        lengths = _LONGER_LENGTHS if split == _LONGER else (1, MAX_LENGTH)
        while True:
            letters = random.choices(ascii_lowercase, k=random.randint(*lengths))
            yield Pair(" ".join(letters), " ".join(self.transform(letters)))

    @override
    def is_in_split(self, pair: Pair, split: str) -> bool:
        return split == _LONGER or super().is_in_split(pair, split)


class ArgsortCorpus(Corpus):
    """Different letters and their positions, from 1, in alphabetical order: c a b -> 2 3 1."""

    name = "argsort"
    description = "different letters, and their positions in alphabetical order"

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        while True:
            letters = random.sample(ascii_lowercase, k=random.randint(1, MAX_LENGTH))
            positions = (str(letters.index(letter) + 1) for letter in sorted(letters))
            yield Pair(" ".join(letters), " ".join(positions))


# ----- images


class GeneratedImage(NamedTuple):
    """An image and its caption."""

    pixels: Pixels  # (rows, columns), or channels behind them
    caption: str


class ImageCorpus(ABC):
    """Images with captions, deterministic by seed."""

    name: ClassVar[str]
    description: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")

    def images(self, split: str, num_examples: int, *, seed: int = 0) -> Iterator[GeneratedImage]:
        """Return images of a split; fewer if it has fewer."""
        check_choice(split, self.splits, "split", location=self.name, error=DataError)
        rng = np.random.default_rng(hash_text(f"{self.name}/{split}/{seed}"))
        return self.generate(split, num_examples, rng)

    @abstractmethod
    def generate(
        self, split: str, num_examples: int, rng: np.random.Generator
    ) -> Iterator[GeneratedImage]:
        """Generate images of a split."""

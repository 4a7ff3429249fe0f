"""Arithmetic: sums in words, and what they come to.

"two times three times three equals" becomes "eighteen". Times goes before plus and minus, which
go from left to right. Results lie between zero and `MAX_NUMBER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from itertools import chain
from random import Random
from string import ascii_lowercase

from heedful.data.pair_dataset import Pair
from heedful.data.synthetic.corpus import Corpus

# Number words: how is a number said in English?
#
# Up to 9999, without "and": "nine thousand nine hundred ninety-nine".

MAX_NUMBER = 9999

_SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_to_words(number: int) -> str:
    """Say a number from 0 to `MAX_NUMBER`."""
    assert 0 <= number <= MAX_NUMBER, f"no words for {number}"
    if number < 100:
        return _below_hundred(number)
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    words = f"{_SMALL[count]} {name}"
    return f"{words} {number_to_words(rest)}" if rest else words


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return f"{_TENS[tens - 2]}-{_SMALL[ones]}" if ones else _TENS[tens - 2]


OPERATORS = ("plus", "minus", "times")
MAX_OPERATORS = 3
MAX_TERM = 99
MAX_FACTOR = 20


class ArithmeticCorpus(Corpus):
    """Sums of two to four numbers, in English words."""

    name = "arithmetic"
    description = "sums in English words, and what they come to"

    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sums whose result has a name."""
        while True:
            operators = random.choices(OPERATORS, k=random.randint(1, MAX_OPERATORS))
            numbers = _sample_numbers(operators, random)
            result = evaluate_expression(numbers, operators)
            if 0 <= result <= MAX_NUMBER:
                yield Pair(_verbalize(numbers, operators), number_to_words(result))


def evaluate_expression(numbers: Sequence[int], operators: Sequence[str]) -> int:
    """Work out a sum: products first, then from left to right."""
    terms = [numbers[0]]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "times":
            terms[-1] *= number
        else:
            terms.append(number if operator == "plus" else -number)
    return sum(terms)


def _sample_numbers(operators: Sequence[str], random: Random) -> list[int]:
    is_factor = [
        "times" in (before, after)
        for before, after in zip(["", *operators], [*operators, ""], strict=True)
    ]
    return [random.randint(0, MAX_FACTOR if factor else MAX_TERM) for factor in is_factor]


def _verbalize(numbers: Sequence[int], operators: Sequence[str]) -> str:
    words = [number_to_words(number) for number in numbers]
    return " ".join(chain.from_iterable(zip(words, [*operators, "equals"], strict=True)))


# Dates: the many ways to write a day, and the one that sorts.
#
# Every style says which number is the day and which the month, and writes the year in full, so
# each text means one day. Years run from 1900 to 2099.

FIRST_DAY = date(1900, 1, 1)
LAST_DAY = date(2099, 12, 31)
_NUM_DAYS = (LAST_DAY - FIRST_DAY).days + 1

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ONES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_TEENS = (
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
)
_ORDINALS = (
    *_ONES,
    *_TEENS,
    "twentieth",
    *(f"twenty-{each}" for each in _ONES),
    "thirtieth",
    "thirty-first",
)


def _weekday(day: date) -> str:
    return _WEEKDAYS[day.weekday()]


def _month(day: date) -> str:
    return _MONTHS[day.month - 1]


def _ordinal(day: date) -> str:
    return _ORDINALS[day.day - 1]


def _numbered(day: date) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return f"{day.day}{'th' if day.day in (11, 12, 13) else ending}"


STYLES: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_month(day)} {day.year}",
    lambda day: f"{_month(day)} {day.day}, {day.year}",
    lambda day: f"{_numbered(day)} {_month(day)} {day.year}",
    lambda day: f"{_month(day)} {_numbered(day)}, {day.year}",
    lambda day: f"the {_ordinal(day)} of {_month(day)} {day.year}",
    lambda day: f"{_month(day)} the {_ordinal(day)}, {day.year}",
    lambda day: f"{_weekday(day)}, {day.day} {_month(day)} {day.year}",
    lambda day: f"{_weekday(day)}, {_month(day)} {_numbered(day)}, {day.year}",
    lambda day: f"{_weekday(day)[:3]} {day.day} {_month(day)[:3]} {day.year}",
    lambda day: f"{day.day:02}-{_month(day)[:3]}-{day.year}",
    lambda day: f"{_month(day)[:3]} {day.day}, {day.year}",
    lambda day: f"{day.year}, {_month(day)} {day.day}",
)


class DatesCorpus(Corpus):
    """Written dates and their ISO 8601 form."""

    name = "dates"
    description = "dates in a dozen styles, and their ISO 8601 form"

    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw days and styles."""
        while True:
            day = FIRST_DAY + timedelta(days=random.randrange(_NUM_DAYS))
            yield Pair(random.choice(STYLES)(day), day.isoformat())


# Sequences: letters to be copied, reversed or sorted.
#
# The smallest tasks that need attention: one to `MAX_LENGTH` letters of the alphabet with spaces
# between them, repeats allowed.

MAX_LENGTH = 20


class SequenceCorpus(Corpus):
    """Random letters, and the same letters rearranged."""

    def __init__(
        self, name: str, description: str, *, transform: Callable[[Sequence[str]], Sequence[str]]
    ) -> None:
        self.name = name
        self.description = description
        self._rearrange = transform

    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sequences, every length equally often."""
        while True:
            letters = random.choices(ascii_lowercase, k=random.randint(1, MAX_LENGTH))
            yield Pair(" ".join(letters), " ".join(self._rearrange(letters)))


def copy_letters(letters: Sequence[str]) -> Sequence[str]:
    """Leave them as they are."""
    return letters


def reverse_letters(letters: Sequence[str]) -> Sequence[str]:
    """Put the last first."""
    return letters[::-1]

"""Number words: how is a number said in English?

Up to 9999, without "and": "nine thousand nine hundred ninety-nine".
"""

from __future__ import annotations

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


def number_words(number: int) -> str:
    """Say a number from 0 to `MAX_NUMBER`."""
    assert 0 <= number <= MAX_NUMBER, f"no words for {number}"
    if number < 100:
        return _below_hundred(number)
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    said = f"{_SMALL[count]} {name}"
    return f"{said} {number_words(rest)}" if rest else said


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return f"{_TENS[tens - 2]}-{_SMALL[ones]}" if ones else _TENS[tens - 2]

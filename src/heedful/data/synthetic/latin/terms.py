"""Terms: which case, number, gender, tense or person a word stands in.

A `reading` is one bit for one gender, number and case; a word form carries the bits of all the
readings its letters allow. Two words may agree exactly where their bits overlap.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple


class Case(IntEnum):
    """The six cases of Latin."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    GENITIVE = 2
    DATIVE = 3
    ABLATIVE = 4
    VOCATIVE = 5


class Number(IntEnum):
    """One or many."""

    SINGULAR = 0
    PLURAL = 1


class Gender(IntEnum):
    """What an adjective must agree with, beside case and number."""

    MASCULINE = 0
    FEMININE = 1
    NEUTER = 2


class Tense(IntEnum):
    """The three tenses of the corpus."""

    PRESENT = 0
    IMPERFECT = 1
    PERFECT = 2


class Person(IntEnum):
    """Who speaks, is spoken to, or is spoken of."""

    FIRST = 0
    SECOND = 1
    THIRD = 2


Declined = tuple[tuple[str, ...], tuple[str, ...]]
"""A word in singular and plural, each in the order of `Case`."""


class Word(NamedTuple):
    """One written Latin word and what its letters alone allow it to be."""

    text: str
    readings: int = 0  # none for words that do not decline
    noun_at: int = 0  # for an adjective: +1 if its noun follows, -1 if it precedes


def reading(gender: Gender, number: Number, case: Case) -> int:
    """Name one bit of a word's readings."""
    return 1 << ((gender * 2 + number) * 6 + case)


class Role:
    """What a noun standing alone (not after a preposition) may be, as bits."""

    SUBJECT_SINGULAR = 1
    SUBJECT_PLURAL = 2
    OBJECT = 4
    OWNER = 8
    RECIPIENT = 16
    ALONE = SUBJECT_SINGULAR | SUBJECT_PLURAL | OBJECT | RECIPIENT


def _bits(numbers: tuple[Number, ...], case: Case) -> int:
    return sum(reading(gender, number, case) for gender in Gender for number in numbers)


_ROLES = (
    (Role.SUBJECT_SINGULAR, _bits((Number.SINGULAR,), Case.NOMINATIVE)),
    (Role.SUBJECT_PLURAL, _bits((Number.PLURAL,), Case.NOMINATIVE)),
    (Role.OBJECT, _bits(tuple(Number), Case.ACCUSATIVE)),
    (Role.OWNER, _bits(tuple(Number), Case.GENITIVE)),
    (Role.RECIPIENT, _bits(tuple(Number), Case.DATIVE)),
)


@cache  # a few hundred different sets of readings exist
def roles(readings: int) -> int:
    """Say which roles a form's readings allow."""
    found = 0
    for role, bits in _ROLES:
        if readings & bits:
            found |= role
    return found

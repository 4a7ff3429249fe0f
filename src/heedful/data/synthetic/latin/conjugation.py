"""Conjugation: what are the forms of a verb?

They follow from the principal parts: first person present, infinitive, first person perfect.
Forms are indexed by tense, number, person.
"""

from __future__ import annotations

from typing import NamedTuple

_Six = tuple[tuple[str, ...], tuple[str, ...]]


class Conjugated(NamedTuple):
    """The finite forms of a verb and its two imperatives."""

    finite: tuple[_Six, _Six, _Six]
    imperatives: tuple[str, str]


class _Pattern(NamedTuple):
    present: str
    imperfect: str
    imperatives: tuple[str, str]


_IMPERFECT = "bam bas bat bamus batis bant"
_PERFECT = "i isti it imus istis erunt"
_FIRST = _Pattern("o as at amus atis ant", "a", ("a", "ate"))
_SECOND = _Pattern("eo es et emus etis ent", "e", ("e", "ete"))
_THIRD = _Pattern("o is it imus itis unt", "e", ("e", "ite"))
_THIRD_IO = _Pattern("io is it imus itis iunt", "ie", ("e", "ite"))
_FOURTH = _Pattern("io is it imus itis iunt", "ie", ("i", "ite"))

_SHORT_IMPERATIVES = {"dico": "dic", "duco": "duc", "facio": "fac"}


def conjugate(present: str, infinitive: str, perfect: str) -> Conjugated:
    """Give the forms of a regular verb from its principal parts."""
    stem, pattern = infinitive[:-3], _pattern(present, infinitive)
    singular, plural = (stem + ending for ending in pattern.imperatives)
    return Conjugated(
        (
            _six(stem, pattern.present),
            _six(stem + pattern.imperfect, _IMPERFECT),
            _six(perfect[:-1], _PERFECT),
        ),
        (_SHORT_IMPERATIVES.get(present, singular), plural),
    )


def _pattern(present: str, infinitive: str) -> _Pattern:
    if infinitive.endswith("are"):
        return _FIRST
    if infinitive.endswith("ire"):
        return _FOURTH
    assert infinitive.endswith("ere"), f"not an infinitive: {infinitive!r}"
    if present.endswith("eo"):
        return _SECOND
    return _THIRD_IO if present.endswith("io") else _THIRD


def _six(stem: str, endings: str) -> _Six:
    forms = tuple(stem + ending for ending in endings.split())
    return forms[:3], forms[3:]


ESSE = Conjugated(
    (
        (("sum", "es", "est"), ("sumus", "estis", "sunt")),
        (("eram", "eras", "erat"), ("eramus", "eratis", "erant")),
        (("fui", "fuisti", "fuit"), ("fuimus", "fuistis", "fuerunt")),
    ),
    ("es", "este"),
)

"""Conjugation: what are the forms of a verb?

They follow from the principal parts: first person present, infinitive, first person perfect.
Forms are indexed by tense, number, person.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple

_Six = tuple[tuple[str, ...], tuple[str, ...]]


class Conjugation(NamedTuple):
    """The finite forms of a verb and its two imperatives."""

    finite: tuple[_Six, _Six, _Six]
    imperatives: tuple[str, str]


class _Pattern(NamedTuple):
    present: str
    imperfect: str
    imperatives: tuple[str, str]


_IMPERFECT = "bam bas bat bamus batis bant"
_PERFECT = "i isti it imus istis erunt"
_CONJUGATION_FIRST = _Pattern("o as at amus atis ant", "a", ("a", "ate"))
_CONJUGATION_SECOND = _Pattern("eo es et emus etis ent", "e", ("e", "ete"))
_CONJUGATION_THIRD = _Pattern("o is it imus itis unt", "e", ("e", "ite"))
_THIRD_IO = _Pattern("io is it imus itis iunt", "ie", ("e", "ite"))
_CONJUGATION_FOURTH = _Pattern("io is it imus itis iunt", "ie", ("i", "ite"))

_SHORT_IMPERATIVES = {"dico": "dic", "duco": "duc", "facio": "fac"}


def conjugate(present: str, infinitive: str, perfect: str) -> Conjugation:
    """Give the forms of a regular verb from its principal parts."""
    stem, pattern = infinitive[:-3], _pattern(present, infinitive)
    singular, plural = (stem + ending for ending in pattern.imperatives)
    return Conjugation(
        (
            _six(stem, pattern.present),
            _six(stem + pattern.imperfect, _IMPERFECT),
            _six(perfect[:-1], _PERFECT),
        ),
        (_SHORT_IMPERATIVES.get(present, singular), plural),
    )


def _pattern(present: str, infinitive: str) -> _Pattern:
    if infinitive.endswith("are"):
        return _CONJUGATION_FIRST
    if infinitive.endswith("ire"):
        return _CONJUGATION_FOURTH
    assert infinitive.endswith("ere"), f"not an infinitive: {infinitive!r}"
    if present.endswith("eo"):
        return _CONJUGATION_SECOND
    return _THIRD_IO if present.endswith("io") else _CONJUGATION_THIRD


def _six(stem: str, endings: str) -> _Six:
    forms = tuple(stem + ending for ending in endings.split())
    return forms[:3], forms[3:]


ESSE = Conjugation(
    (
        (("sum", "es", "est"), ("sumus", "estis", "sunt")),
        (("eram", "eras", "erat"), ("eramus", "eratis", "erant")),
        (("fui", "fuisti", "fuit"), ("fuimus", "fuistis", "fuerunt")),
    ),
    ("es", "este"),
)


# Terms: which case, number, gender, tense or person a word stands in.
#
# A `reading` is one bit for one gender, number and case; a word form carries the bits of all the
# readings its letters allow. Two words may agree exactly where their bits overlap.


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


Declension = tuple[tuple[str, ...], tuple[str, ...]]
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


# Declension: what are the forms of a noun or adjective?
#
# A noun's declension follows from its genitive, as in a dictionary: -ae, -i, -is, -us, -ei. Long
# vowels are not written, so forms that differ only in length come out alike.

# Each row: nominative, accusative, genitive, dative, ablative, vocative; "-" is the dictionary
# nominative, which does not follow from the stem.
_Endings = tuple[str, str]
_DECLENSION_FIRST: _Endings = ("a am ae ae a a", "ae as arum is is ae")
_DECLENSION_SECOND: _Endings = ("- um i o o -", "i os orum is is i")
_SECOND_NEUTER: _Endings = ("um um i o o um", "a a orum is is a")
_DECLENSION_THIRD: _Endings = ("- em is i e -", "es es um ibus ibus es")
_THIRD_I: _Endings = ("- em is i e -", "es es ium ibus ibus es")
_THIRD_NEUTER: _Endings = ("- - is i e -", "a a um ibus ibus a")
_THIRD_NEUTER_I: _Endings = ("- - is i i -", "ia ia ium ibus ibus ia")
_DECLENSION_FOURTH: _Endings = ("us um us ui u us", "us us uum ibus ibus us")
_FOURTH_NEUTER: _Endings = ("u u us u u u", "ua ua uum ibus ibus ua")
_FIFTH: _Endings = ("es em ei ei e es", "es es erum ebus ebus es")
_THIRD_ADJECTIVE: _Endings = ("- em is i i -", "es es ium ibus ibus es")

_IRREGULAR_DATIVE_PLURALS = {"filia": "filiabus", "lacus": "lacubus"}


def decline(nominative: str, genitive: str, gender: Gender, *, i_stem: bool = False) -> Declension:
    """Give the forms of a noun from its dictionary entry.

    `i_stem` marks third declension nouns with -ium in the genitive plural.
    """
    if nominative.endswith("es") and genitive.endswith("ei"):
        return _attach(_FIFTH, genitive[:-2], nominative)
    stem, endings = _stem_and_endings(genitive, is_neuter=gender is Gender.NEUTER, i_stem=i_stem)
    singular, plural = _attach(endings, stem, nominative)
    if endings is _DECLENSION_SECOND:
        singular = (*singular[:5], _second_vocative(nominative, stem))
    if nominative in _IRREGULAR_DATIVE_PLURALS:
        dative = _IRREGULAR_DATIVE_PLURALS[nominative]
        plural = (*plural[:3], dative, dative, plural[5])
    return singular, plural


def _stem_and_endings(genitive: str, *, is_neuter: bool, i_stem: bool) -> tuple[str, _Endings]:
    if genitive.endswith("ae"):
        return genitive[:-2], _DECLENSION_FIRST
    if (genitive.endswith("ei") and len(genitive) <= 4) or genitive.endswith("iei"):
        return genitive[:-2], _FIFTH
    if genitive.endswith("i"):
        return genitive[:-1], _SECOND_NEUTER if is_neuter else _DECLENSION_SECOND
    if genitive.endswith("us"):
        return genitive[:-2], _FOURTH_NEUTER if is_neuter else _DECLENSION_FOURTH
    assert genitive.endswith("is"), f"not a genitive singular: {genitive!r}"
    if is_neuter:
        return genitive[:-2], _THIRD_NEUTER_I if i_stem else _THIRD_NEUTER
    return genitive[:-2], _THIRD_I if i_stem else _DECLENSION_THIRD


def _second_vocative(nominative: str, stem: str) -> str:
    if nominative.endswith("ius"):
        return stem  # fili, Caecili
    return stem + "e" if nominative.endswith("us") else nominative


def _attach(endings: _Endings, stem: str, nominative: str) -> Declension:
    singular, plural = (
        tuple(nominative if ending == "-" else stem + ending for ending in row.split())
        for row in endings
    )
    return singular, plural


def decline_adjective(masculine: str, feminine: str) -> tuple[Declension, Declension, Declension]:
    """Give the forms of an adjective in its three genders.

    `feminine` is the second dictionary form: bona, pulchra, acris, fortis; adjectives with one
    nominative for all genders give their genitive there, as in a dictionary: felicis.
    """
    if feminine.endswith("a"):
        stem = feminine[:-1]
        return (
            decline(masculine, stem + "i", Gender.MASCULINE),
            decline(feminine, stem + "ae", Gender.FEMININE),
            decline(stem + "um", stem + "i", Gender.NEUTER),
        )
    stem = feminine[:-2]
    is_one_form = masculine[-1] in "xs" and masculine != feminine
    neuter_nominative = masculine if is_one_form else stem + "e"
    feminine_nominative = masculine if is_one_form else feminine
    return (
        _attach(_THIRD_ADJECTIVE, stem, masculine),
        _attach(_THIRD_ADJECTIVE, stem, feminine_nominative),
        _attach(_THIRD_NEUTER_I, stem, neuter_nominative),
    )


# English: how are nouns and verbs said in the translation?
#
# One rendering for each Latin tense: present "walks", imperfect "was walking", perfect "walked".
# Verbs of state have no progressive in English, so their imperfect is "loved", as is their
# perfect. Common nouns take "the", because Latin has no article to translate.


class EnglishVerb(NamedTuple):
    """The four forms of an English verb: walk, walks, walked, walking."""

    base: str
    third: str
    past: str
    participle: str
    is_state: bool = False


class VerbGroup(NamedTuple):
    """A verb in two places, between which "not", an adverb or the subject may come."""

    auxiliary: str
    main: str


BE = EnglishVerb("be", "is", "was", "being", is_state=True)


def english_verb(parts: str, *, is_state: bool) -> EnglishVerb:
    """Read "base/past/participle/third", of which only the base must be given."""
    base, past, participle, third, *_ = [*parts.split("/"), "", "", ""]
    return EnglishVerb(
        base,
        third or third_person(base),
        past or past_tense(base),
        participle or present_participle(base),
        is_state,
    )


def english_noun(parts: str) -> tuple[str, str]:
    """Read "singular/plural", of which only the singular must be given."""
    singular, _, plural = parts.partition("/")
    return singular, plural or third_person(singular)


def third_person(base: str) -> str:
    """Add -s by rule, to a verb or a noun: walks, watches, carries."""
    if base.endswith(("s", "x", "ch", "sh")):
        return base + "es"
    return base[:-1] + "ies" if _ends_in_consonant_and_y(base) else base + "s"


def past_tense(base: str) -> str:
    """Add -ed by rule: walked, praised, carried."""
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if _ends_in_consonant_and_y(base) else base + "ed"


def present_participle(base: str) -> str:
    """Add -ing by rule: walking, praising, freeing."""
    drops_e = base.endswith("e") and not base.endswith("ee")
    return (base[:-1] if drops_e else base) + "ing"


def _ends_in_consonant_and_y(base: str) -> bool:
    return base.endswith("y") and base[-2] not in "aeiou"


def declarative_verb_group(
    verb: EnglishVerb, tense: Tense, person: Person, number: Number
) -> VerbGroup:
    """Say a verb in a plain statement: "walks", "was walking", "walked"."""
    if verb is BE:
        return VerbGroup(_be(tense, person, number), "")
    if tense is Tense.PRESENT:
        return VerbGroup("", verb.third if _is_third_singular(person, number) else verb.base)
    if tense is Tense.IMPERFECT and not verb.is_state:
        return VerbGroup(_be(tense, person, number), verb.participle)
    return VerbGroup("", verb.past)


def do_support_verb_group(
    verb: EnglishVerb, tense: Tense, person: Person, number: Number
) -> VerbGroup:
    """Say a verb where a question or "not" wants an auxiliary: "does walk"."""
    plain = declarative_verb_group(verb, tense, person, number)
    if plain.auxiliary:
        return plain
    if tense is not Tense.PRESENT:
        return VerbGroup("did", verb.base)
    return VerbGroup("does" if _is_third_singular(person, number) else "do", verb.base)


def _is_third_singular(person: Person, number: Number) -> bool:
    return person is Person.THIRD and number is Number.SINGULAR


def _be(tense: Tense, person: Person, number: Number) -> str:
    is_past = tense is not Tense.PRESENT
    if number is Number.PLURAL or person is Person.SECOND:
        return "were" if is_past else "are"
    if is_past:
        return "was"
    return "am" if person is Person.FIRST else "is"


def with_indefinite_article(words: str) -> str:
    """Put "a" or "an" before words."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"

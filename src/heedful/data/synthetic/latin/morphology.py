"""Inflection of Latin nouns, adjectives and verbs, and English verb groups.

Latin forms follow from dictionary entries: nominative and genitive of a noun, principal parts of
a verb. Long vowels are not written, so forms that differ only in vowel length coincide.
Invariant: paradigms equal those of a school grammar.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Case(IntEnum):
    """The six cases of Latin, in the order of every declension table."""

    NOMINATIVE, ACCUSATIVE, GENITIVE, DATIVE, ABLATIVE, VOCATIVE = range(6)


class Number(IntEnum):
    """Grammatical number."""

    SINGULAR, PLURAL = range(2)


class Gender(IntEnum):
    """Grammatical gender."""

    MASCULINE, FEMININE, NEUTER = range(3)


class Tense(IntEnum):
    """The three tenses of the corpus."""

    PRESENT, IMPERFECT, PERFECT = range(3)


class Person(IntEnum):
    """Grammatical person."""

    FIRST, SECOND, THIRD = range(3)


# --- Latin verbs ---------------------------------------------------------------------------

PersonForms = tuple[tuple[str, ...], tuple[str, ...]]
"""Forms by number and person."""


class Conjugation(NamedTuple):
    """The finite forms of a verb by tense, number and person, and its two imperatives."""

    finite: tuple[PersonForms, PersonForms, PersonForms]
    imperatives: tuple[str, str]


ESSE = Conjugation(
    (
        (("sum", "es", "est"), ("sumus", "estis", "sunt")),
        (("eram", "eras", "erat"), ("eramus", "eratis", "erant")),
        (("fui", "fuisti", "fuit"), ("fuimus", "fuistis", "fuerunt")),
    ),
    ("es", "este"),
)

# Endings of the present, vowel of the imperfect, endings of the imperatives.
_VerbEndings = tuple[str, str, tuple[str, str]]
_FIRST_CONJUGATION: _VerbEndings = ("o as at amus atis ant", "a", ("a", "ate"))
_SECOND_CONJUGATION: _VerbEndings = ("eo es et emus etis ent", "e", ("e", "ete"))
_THIRD_CONJUGATION: _VerbEndings = ("o is it imus itis unt", "e", ("e", "ite"))
_THIRD_CONJUGATION_IO: _VerbEndings = ("io is it imus itis iunt", "ie", ("e", "ite"))
_FOURTH_CONJUGATION: _VerbEndings = ("io is it imus itis iunt", "ie", ("i", "ite"))
_IMPERFECT = "bam bas bat bamus batis bant"
_PERFECT = "i isti it imus istis erunt"
_SHORT_IMPERATIVES = {"dico": "dic", "duco": "duc", "facio": "fac"}


def conjugate(present: str, infinitive: str, perfect: str) -> Conjugation:
    """Return the forms of a regular verb, given its principal parts."""
    stem = infinitive[:-3]
    present_endings, vowel, imperative_endings = _verb_endings(present, infinitive)
    singular, plural = (stem + ending for ending in imperative_endings)
    return Conjugation(
        (
            _person_forms(stem, present_endings),
            _person_forms(stem + vowel, _IMPERFECT),
            _person_forms(perfect[:-1], _PERFECT),
        ),
        (_SHORT_IMPERATIVES.get(present, singular), plural),
    )


def _verb_endings(present: str, infinitive: str) -> _VerbEndings:
    if infinitive.endswith("are"):
        return _FIRST_CONJUGATION
    if infinitive.endswith("ire"):
        return _FOURTH_CONJUGATION
    assert infinitive.endswith("ere"), f"not an infinitive: {infinitive!r}"
    if present.endswith("eo"):
        return _SECOND_CONJUGATION
    return _THIRD_CONJUGATION_IO if present.endswith("io") else _THIRD_CONJUGATION


def _person_forms(stem: str, endings: str) -> PersonForms:
    forms = tuple(stem + ending for ending in endings.split())
    return forms[:3], forms[3:]


# --- Latin nouns and adjectives ------------------------------------------------------------

Declension = tuple[tuple[str, ...], tuple[str, ...]]
"""Singular and plural forms of a word, each in the order of `Case`."""

# "-" stands for the nominative of the dictionary, which does not follow from the stem.
_Endings = tuple[str, str]
_FIRST_DECLENSION: _Endings = ("a am ae ae a a", "ae as arum is is ae")
_SECOND_DECLENSION: _Endings = ("- um i o o -", "i os orum is is i")
_SECOND_NEUTER: _Endings = ("um um i o o um", "a a orum is is a")
_THIRD_DECLENSION: _Endings = ("- em is i e -", "es es um ibus ibus es")
_THIRD_I_STEM: _Endings = ("- em is i e -", "es es ium ibus ibus es")
_THIRD_NEUTER: _Endings = ("- - is i e -", "a a um ibus ibus a")
_THIRD_NEUTER_I_STEM: _Endings = ("- - is i i -", "ia ia ium ibus ibus ia")
_FOURTH_DECLENSION: _Endings = ("us um us ui u us", "us us uum ibus ibus us")
_FOURTH_NEUTER: _Endings = ("u u us u u u", "ua ua uum ibus ibus ua")
_FIFTH_DECLENSION: _Endings = ("es em ei ei e es", "es es erum ebus ebus es")
_THIRD_ADJECTIVE: _Endings = ("- em is i i -", "es es ium ibus ibus es")
_IRREGULAR_DATIVE_PLURALS = {"filia": "filiabus", "lacus": "lacubus"}


def decline(nominative: str, genitive: str, gender: Gender, *, i_stem: bool = False) -> Declension:
    """Return the forms of a noun; an i-stem has -ium in the genitive plural."""
    if nominative.endswith("es") and genitive.endswith("ei"):
        return _attach(_FIFTH_DECLENSION, genitive[:-2], nominative)
    stem, endings = _stem_and_endings(genitive, is_neuter=gender is Gender.NEUTER, i_stem=i_stem)
    singular, plural = _attach(endings, stem, nominative)
    if endings is _SECOND_DECLENSION:
        singular = (*singular[:5], _second_vocative(nominative, stem))
    if dative := _IRREGULAR_DATIVE_PLURALS.get(nominative):
        plural = (*plural[:3], dative, dative, plural[5])
    return singular, plural


def _stem_and_endings(genitive: str, *, is_neuter: bool, i_stem: bool) -> tuple[str, _Endings]:
    if genitive.endswith("ae"):
        return genitive[:-2], _FIRST_DECLENSION
    if (genitive.endswith("ei") and len(genitive) <= 4) or genitive.endswith("iei"):
        return genitive[:-2], _FIFTH_DECLENSION
    if genitive.endswith("i"):
        return genitive[:-1], _SECOND_NEUTER if is_neuter else _SECOND_DECLENSION
    if genitive.endswith("us"):
        return genitive[:-2], _FOURTH_NEUTER if is_neuter else _FOURTH_DECLENSION
    assert genitive.endswith("is"), f"not a genitive singular: {genitive!r}"
    if is_neuter:
        return genitive[:-2], _THIRD_NEUTER_I_STEM if i_stem else _THIRD_NEUTER
    return genitive[:-2], _THIRD_I_STEM if i_stem else _THIRD_DECLENSION


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
    """Return the forms of an adjective in its three genders.

    `feminine` is the second form in a dictionary: bona, pulchra, acris, fortis. Adjectives with
    one nominative for all genders have their genitive there: felicis.
    """
    if feminine.endswith("a"):
        stem = feminine[:-1]
        return (
            decline(masculine, stem + "i", Gender.MASCULINE),
            decline(feminine, stem + "ae", Gender.FEMININE),
            decline(stem + "um", stem + "i", Gender.NEUTER),
        )
    stem = feminine[:-2]
    has_one_nominative = masculine[-1] in "xs" and masculine != feminine
    return (
        _attach(_THIRD_ADJECTIVE, stem, masculine),
        _attach(_THIRD_ADJECTIVE, stem, masculine if has_one_nominative else feminine),
        _attach(_THIRD_NEUTER_I_STEM, stem, masculine if has_one_nominative else stem + "e"),
    )


# --- English -------------------------------------------------------------------------------


class EnglishVerb(NamedTuple):
    """The four forms of an English verb: walk, walks, walked, walking."""

    base: str
    third: str
    past: str
    participle: str
    is_stative: bool = False  # has no progressive: the imperfect is "loved", not "was loving"


BE = EnglishVerb("be", "is", "was", "being", is_stative=True)


class VerbGroup(NamedTuple):
    """Auxiliary and main verb; "not", an adverb or the subject may come between them."""

    auxiliary: str
    main: str


def declarative_verb_group(
    verb: EnglishVerb, tense: Tense, person: Person, number: Number
) -> VerbGroup:
    """Return the verb of a statement: "walks", "was walking" (imperfect), "walked" (perfect)."""
    if verb is BE:
        return VerbGroup(_be(tense, person, number), "")
    if tense is Tense.PRESENT:
        return VerbGroup("", verb.third if _is_third_singular(person, number) else verb.base)
    if tense is Tense.IMPERFECT and not verb.is_stative:
        return VerbGroup(_be(tense, person, number), verb.participle)
    return VerbGroup("", verb.past)


def do_support_verb_group(
    verb: EnglishVerb, tense: Tense, person: Person, number: Number
) -> VerbGroup:
    """Return the verb of a question or negation, which needs an auxiliary: "does walk"."""
    declarative = declarative_verb_group(verb, tense, person, number)
    if declarative.auxiliary:
        return declarative
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
    """Prefix "a" or "an"."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"

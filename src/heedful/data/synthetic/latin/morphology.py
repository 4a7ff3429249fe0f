"""Inflection of Latin nouns, adjectives and verbs, and English verb groups.

Latin forms follow from dictionary entries: nominative and genitive of a noun, principal parts of
a verb. Long vowels are not written, so forms that differ only in vowel length coincide.
Invariant: paradigms equal those of a school grammar.
"""

from enum import IntEnum
from typing import NamedTuple

Case = IntEnum("Case", "NOMINATIVE ACCUSATIVE GENITIVE DATIVE ABLATIVE VOCATIVE", start=0)
"""In the order of every declension table."""
Number = IntEnum("Number", "SINGULAR PLURAL", start=0)
Gender = IntEnum("Gender", "MASCULINE FEMININE NEUTER", start=0)
Tense = IntEnum("Tense", "PRESENT IMPERFECT PERFECT", start=0)
Person = IntEnum("Person", "FIRST SECOND THIRD", start=0)


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

# By infinitive and first person: endings of the present, vowel of the imperfect, imperatives.
_CONJUGATIONS = {
    ("are", "o"): ("o as at amus atis ant", "a", ("a", "ate")),
    ("ere", "eo"): ("eo es et emus etis ent", "e", ("e", "ete")),
    ("ere", "io"): ("io is it imus itis iunt", "ie", ("e", "ite")),
    ("ere", "o"): ("o is it imus itis unt", "e", ("e", "ite")),
    ("ire", "io"): ("io is it imus itis iunt", "ie", ("i", "ite")),
}
_IMPERFECT = "bam bas bat bamus batis bant"
_PERFECT = "i isti it imus istis erunt"
_SHORT_IMPERATIVES = {"dico": "dic", "duco": "duc", "facio": "fac"}


def conjugate(present: str, infinitive: str, perfect: str) -> Conjugation:
    """Return the forms of a regular verb, given its principal parts."""
    endings = next(
        (infinitive_ending, ending)
        for infinitive_ending, ending in _CONJUGATIONS
        if infinitive.endswith(infinitive_ending) and present.endswith(ending)
    )
    stem = infinitive[:-3]
    present_endings, vowel, (singular, plural) = _CONJUGATIONS[endings]
    tenses = (
        _person_forms(stem, present_endings),
        _person_forms(stem + vowel, _IMPERFECT),
        _person_forms(perfect[:-1], _PERFECT),
    )
    return Conjugation(tenses, (_SHORT_IMPERATIVES.get(present, stem + singular), stem + plural))


def _person_forms(stem: str, endings: str) -> PersonForms:
    forms = tuple(stem + ending for ending in endings.split())
    return forms[:3], forms[3:]


# --- Latin nouns and adjectives ------------------------------------------------------------

Declension = tuple[tuple[str, ...], tuple[str, ...]]
"""Singular and plural forms of a word, each in the order of `Case`."""

# By the ending of the genitive. "-" is the nominative, which does not follow from the stem.
_DECLENSIONS = {
    "ae": ("a am ae ae a a", "ae as arum is is ae"),
    "i": ("- um i o o -", "i os orum is is i"),
    "i neuter": ("um um i o o um", "a a orum is is a"),
    "is": ("- em is i e -", "es es um ibus ibus es"),
    "is i-stem": ("- em is i e -", "es es ium ibus ibus es"),
    "is neuter": ("- - is i e -", "a a um ibus ibus a"),
    "is neuter i-stem": ("- - is i i -", "ia ia ium ibus ibus ia"),
    "is adjective": ("- em is i i -", "es es ium ibus ibus es"),
    "us": ("us um us ui u us", "us us uum ibus ibus us"),
    "us neuter": ("u u us u u u", "ua ua uum ibus ibus ua"),
    "ei": ("es em ei ei e es", "es es erum ebus ebus es"),
}
_IRREGULAR_DATIVE_PLURALS = {"filia": "filiabus", "lacus": "lacubus"}


def decline(nominative: str, genitive: str, gender: Gender, *, i_stem: bool = False) -> Declension:
    """Return the forms of a noun; an i-stem has -ium in the genitive plural."""
    is_fifth = nominative.endswith("es") and genitive.endswith("ei")
    ending = "ei" if is_fifth else genitive[-1:] if genitive.endswith("i") else genitive[-2:]
    stem = genitive.removesuffix(ending)
    neuter = " neuter" if gender is Gender.NEUTER else ""
    singular, plural = _attach(f"{ending}{neuter}{' i-stem' if i_stem else ''}", stem, nominative)
    if ending == "i" and nominative.endswith("ius"):
        singular = (*singular[:5], stem)  # fili, Caecili
    elif ending == "i" and nominative.endswith("us"):
        singular = (*singular[:5], stem + "e")
    if dative := _IRREGULAR_DATIVE_PLURALS.get(nominative):
        plural = (*plural[:3], dative, dative, plural[5])
    return singular, plural


def _attach(declension: str, stem: str, nominative: str) -> Declension:
    singular, plural = (
        tuple(nominative if ending == "-" else stem + ending for ending in row.split())
        for row in _DECLENSIONS[declension]
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
        _attach("is adjective", stem, masculine),
        _attach("is adjective", stem, masculine if has_one_nominative else feminine),
        _attach("is neuter i-stem", stem, masculine if has_one_nominative else stem + "e"),
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


def verb_group(
    verb: EnglishVerb, tense: Tense, person: Person, number: Number, *, needs_auxiliary: bool
) -> tuple[str, str]:
    """Return auxiliary and main verb; "not", an adverb or the subject may come between them.

    A statement has "walks", "was walking" (imperfect) or "walked" (perfect); a question or
    negation needs an auxiliary: "does walk".
    """
    is_past = tense is not Tense.PRESENT
    is_third_singular = person is Person.THIRD and number is Number.SINGULAR
    if verb is BE or (tense is Tense.IMPERFECT and not verb.is_stative):
        if number is Number.PLURAL or person is Person.SECOND:
            auxiliary = "were" if is_past else "are"
        else:
            auxiliary = "was" if is_past else "am" if person is Person.FIRST else "is"
        return auxiliary, "" if verb is BE else verb.participle
    if needs_auxiliary:
        return "did" if is_past else "does" if is_third_singular else "do", verb.base
    return "", verb.past if is_past else verb.third if is_third_singular else verb.base

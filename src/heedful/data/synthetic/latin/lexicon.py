"""The words of the Latin corpus, read from .tsv files, with all their inflected forms.

Forms are computed once per lexicon; sampling a sentence only looks them up. Every form also
carries its readings: which genders, numbers and cases its spelling allows.
Invariant: no form belongs to two words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from heedful.data.synthetic.latin.morphology import (
    BE,
    ESSE,
    Case,
    Conjugation,
    Declension,
    EnglishVerb,
    Gender,
    Number,
    Tense,
    conjugate,
    decline,
    decline_adjective,
)

NOUN_CATEGORIES = {
    "p": "person",
    "a": "animal",
    "t": "thing",
    "f": "food",
    "w": "words",
    "r": "writing",
    "s": "sight",
    "l": "landscape",
    "b": "building",
    "u": "furniture",
}
"""Letters by which verbs, adjectives and prepositions name the nouns they combine with."""

TABLES = {
    # tags: one (singular only), owned (may have a possessor), in/on (English for "in"), through,
    # across, front, under (takes per; trans; ante and post; sub), water, coast. m-i is an i-stem.
    "nouns": "category nominative genitive gender english plural tags",
    "names": "split nominative genitive gender",
    "adjectives": "quantifier masculine feminine english categories",
    # place: the prepositions it combines with. No verb may have equal forms in present and
    # perfect (venit, legit): its sentences would have two translations.
    "verbs": (
        "frame present infinitive perfect english third past participle stative subjects objects "
        "place"
    ),
    # "@" becomes "in" or "on", as the noun requires.
    "prepositions": "latin case english categories tag place weight",
    "adverbs": "manner latin english position tenses",
    "pronouns": "nominative accusative dative subject object",
}
"""Columns of each .tsv file. A cell without a value holds "-"."""

_GENDERS = {"m": Gender.MASCULINE, "f": Gender.FEMININE, "n": Gender.NEUTER}
_TENSES = {
    "any": tuple(Tense),
    "present": (Tense.PRESENT,),
    "past": (Tense.IMPERFECT, Tense.PERFECT),
}


def read_table(name: str) -> list[list[str]]:
    """Return the rows of a table, after checking its header and that no cell is missing."""
    text = resources.files(__package__).joinpath(f"{name}.tsv").read_text(encoding="ascii")
    header, *rows = (line.split("\t") for line in text.splitlines())
    assert header == TABLES[name].split(), f"{name}.tsv: unexpected columns {header}"
    for line, row in enumerate(rows, start=2):
        is_complete = len(row) == len(header) and all(cell and cell == cell.strip() for cell in row)
        assert is_complete, f"{name}.tsv:{line}: expected {len(header)} cells, got {row}"
    return rows


class Word(NamedTuple):
    """A Latin word form. Two forms may agree exactly where their readings overlap."""

    text: str
    readings: int = 0  # one bit per gender, number and case; none for uninflected words
    noun_offset: int = 0  # of an adjective: +1 if its noun follows, -1 if it precedes


def reading(gender: Gender, number: Number, case: Case) -> int:
    """Return the bit of one gender, number and case."""
    return 1 << ((gender * 2 + number) * 6 + case)


DeclinedWords = tuple[tuple[Word, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun or name with its forms, `words[number][case]`."""

    lemma: str
    gender: Gender
    english: tuple[str, str]
    category: str
    tags: frozenset[str]
    words: DeclinedWords
    is_name: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective with its forms, `before[gender][number][case]` a noun and `after` one."""

    lemma: str
    english: str
    categories: str
    before: tuple[DeclinedWords, ...]
    after: tuple[DeclinedWords, ...]
    is_quantifier: bool


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb with its forms, its English and the categories of its arguments."""

    lemma: str
    forms: Conjugation
    english: EnglishVerb
    frame: str  # copular, intransitive, transitive, ditransitive, dative
    subjects: str
    objects: str
    place: str


SUM = Verb("sum", ESSE, BE, "copular", "patfwrslbu", "-", "-")


@dataclass(frozen=True, eq=False, slots=True)
class Preposition:
    """A preposition, its case, and the nouns it combines with."""

    latin: Word
    case: Case
    english: str
    nouns: tuple[Noun, ...]
    place: str

    def english_before(self, noun: Noun) -> str:
        """Return its English before this noun."""
        return self.english.replace("@", "on" if "on" in noun.tags else "in")


@dataclass(frozen=True, eq=False, slots=True)
class Adverb:
    """An adverb, its position in English, and the tenses it combines with."""

    latin: Word
    english: str
    is_middle: bool
    tenses: tuple[Tense, ...]
    is_manner: bool


@dataclass(frozen=True, eq=False, slots=True)
class Lexicon:
    """All words from which sentences are built."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    prepositions: tuple[Preposition, ...]
    adverbs: tuple[Adverb, ...]


@lru_cache(maxsize=2)
def load_lexicon(*, reserved_names: bool = False) -> Lexicon:
    """Read the tables, with the names of the training data or with the reserved ones."""
    split = "names" if reserved_names else "train"
    nouns = tuple(_noun(*row) for row in read_table("nouns"))
    nouns += tuple(_name(*row[1:]) for row in read_table("names") if row[0] == split)
    prepositions = [
        preposition
        for row in read_table("prepositions")
        for preposition in [_preposition(row, nouns)] * int(row[-1])
    ]
    return Lexicon(
        nouns,
        tuple(_adjective(*row) for row in read_table("adjectives")),
        tuple(_verb(*row) for row in read_table("verbs")),
        tuple(prepositions),
        tuple(_adverb(*row) for row in read_table("adverbs")),
    )


def _noun(category: str, *row: str) -> Noun:
    nominative, genitive, gender_and_stem, singular, plural, tags = row
    gender = _GENDERS[gender_and_stem[0]]
    declined = decline(nominative, genitive, gender, i_stem=gender_and_stem.endswith("-i"))
    known = frozenset(tags.split())
    if known & {"in", "on"}:
        known |= {"place"}
    words = _noun_words(declined, gender, num_numbers=1 if "one" in known else 2)
    return Noun(nominative, gender, (singular, plural), category, known, words)


def _name(nominative: str, genitive: str, letter: str) -> Noun:
    gender = _GENDERS[letter]
    words = _noun_words(decline(nominative, genitive, gender), gender, num_numbers=1)
    return Noun(nominative, gender, (nominative,) * 2, "p", frozenset(), words, is_name=True)


def _noun_words(declined: Declension, gender: Gender, *, num_numbers: int) -> DeclinedWords:
    readings = _readings({gender: declined}, tuple(Number)[:num_numbers])
    return _words(declined[:num_numbers], readings)


def _readings(genders: dict[Gender, Declension], numbers: tuple[Number, ...]) -> dict[str, int]:
    """Map each form to its readings, without the vocative, which a comma marks."""
    readings: dict[str, int] = {}
    for gender, declined in genders.items():
        for number in numbers:
            for case in tuple(Case)[: Case.VOCATIVE]:
                form = declined[number][case]
                readings[form] = readings.get(form, 0) | reading(gender, number, case)
    return readings


def _words(
    declined: tuple[tuple[str, ...], ...], readings: dict[str, int], *, noun_offset: int = 0
) -> DeclinedWords:
    return tuple(
        tuple(Word(form, readings.get(form, 0), noun_offset) for form in row) for row in declined
    )


def _adjective(
    quantifier: str, masculine: str, feminine: str, english: str, categories: str
) -> Adjective:
    is_quantifier = quantifier == "yes"
    declined = decline_adjective(masculine, feminine)
    numbers = (Number.PLURAL,) if is_quantifier else tuple(Number)
    readings = _readings(dict(zip(Gender, declined, strict=True)), numbers)
    before, after = (
        tuple(_words(forms, readings, noun_offset=offset) for forms in declined)
        for offset in (+1, -1)
    )
    return Adjective(masculine, english, categories, before, after, is_quantifier)


def _verb(frame: str, *row: str) -> Verb:
    *principal_parts, base, third, past, participle, stative, subjects, objects, place = row
    english = EnglishVerb(base, third, past, participle, stative == "yes")
    forms = conjugate(*principal_parts)
    return Verb(principal_parts[0], forms, english, frame, subjects, objects, place)


def _preposition(row: list[str], nouns: tuple[Noun, ...]) -> Preposition:
    latin, case, english, categories, tag, place, _ = row
    governed = tuple(
        noun for noun in nouns if noun.category in categories and tag in {"-", *noun.tags}
    )
    return Preposition(Word(latin), Case[case.upper()], english, governed, place)


def _adverb(manner: str, latin: str, english: str, position: str, tenses: str) -> Adverb:
    return Adverb(Word(latin), english, position == "middle", _TENSES[tenses], manner == "yes")

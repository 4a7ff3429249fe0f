"""Lexicon: which words are there, with all their forms?

The tables beside this module are read once, at first use, and every form is computed then;
drawing a sentence only looks forms up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from heedful.data.synthetic.latin import word_lists
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
    Word,
    conjugate,
    decline,
    decline_adjective,
    english_noun,
    english_verb,
    reading,
)

_GENDERS = {"m": Gender.MASCULINE, "f": Gender.FEMININE, "n": Gender.NEUTER}
_DeclinedWords = tuple[tuple[Word, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun or name with its forms, `words[number][case]`."""

    lemma: str
    gender: Gender
    english: tuple[str, str]
    category: str
    tags: frozenset[str]
    words: _DeclinedWords
    is_name: bool

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers it is used in."""
        return tuple(Number)[: len(self.words)]


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective with its forms, `before[gender][number][case]` a noun and `after` one."""

    lemma: str
    english: str
    categories: str
    before: tuple[_DeclinedWords, ...]
    after: tuple[_DeclinedWords, ...]
    is_quantifier: bool


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb with its forms, what it goes with, and its English."""

    lemma: str
    forms: Conjugation
    english: EnglishVerb
    frame: str
    subjects: str
    objects: str
    where: str


@dataclass(frozen=True, eq=False, slots=True)
class Preposition:
    """A preposition, its case, and the nouns it may stand before."""

    latin: Word
    case: Case
    english: str
    nouns: tuple[Noun, ...]
    where: str

    def before(self, noun: Noun) -> str:
        """Say it in English before this noun."""
        return self.english.replace("@", "on" if "on" in noun.tags else "in")


@dataclass(frozen=True, eq=False, slots=True)
class Adverb:
    """An adverb, where English puts it, and the tenses it suits."""

    latin: Word
    english: str
    is_middle: bool
    tenses: tuple[Tense, ...]
    is_manner: bool

    @property
    def is_negative(self) -> bool:
        """Whether it denies what it is said of, as "never" does."""
        return self.english == "never"


@dataclass(frozen=True, eq=False, slots=True)
class Lexicon:
    """All the words from which sentences are made."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    prepositions: tuple[Preposition, ...]
    adverbs: tuple[Adverb, ...]

    def nouns_by_category(self, categories: str) -> tuple[Noun, ...]:
        """The nouns and names of these kinds."""
        return tuple(noun for noun in self.nouns if noun.category in categories)


@lru_cache(maxsize=2)
def load_lexicon(*, reserved_names: bool = False) -> Lexicon:
    """Read the tables, with the familiar names or with the reserved ones."""
    people = word_lists.RESERVED if reserved_names else word_lists.FAMILIAR
    all_nouns = (
        *(
            _noun(row, kind)
            for kind, table in word_lists.NOUN_CATEGORIES.items()
            for row in _rows(table)
        ),
        *(_name(row) for row in _rows(people)),
    )
    return Lexicon(
        all_nouns,
        (
            *(_adjective(row, is_quantifier=False) for row in _rows(word_lists.ADJECTIVES)),
            *(_adjective(row, is_quantifier=True) for row in _rows(word_lists.QUANTIFIERS)),
        ),
        (
            *(_verb(row, "intransitive") for row in _rows(word_lists.INTRANSITIVE)),
            *(_verb(row, "transitive") for row in _rows(word_lists.TRANSITIVE)),
            *(_verb(row, "giving") for row in _rows(word_lists.GIVING)),
            *(_verb(row, "favouring") for row in _rows(word_lists.DATIVE_VERBS)),
        ),
        tuple(_preposition(row, all_nouns) for row in _rows(word_lists.PREPOSITIONS)),
        (
            *(_adverb(row, is_manner=False) for row in _rows(word_lists.ADVERBS)),
            *(_adverb(row, is_manner=True) for row in _rows(word_lists.MANNERS)),
        ),
    )


def _rows(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield [column.replace("_", " ") for column in line.split()]


def _noun(row: list[str], kind: str) -> Noun:
    nominative, genitive, gender_and_stem, english, *tags = row
    gender = _GENDERS[gender_and_stem[0]]
    declined = decline(nominative, genitive, gender, i_stem=gender_and_stem.endswith("-i"))
    known = frozenset(tags) | ({"place"} if {"in", "on"} & set(tags) else set())
    singular_only = "one" in known
    words = _noun_words(declined, gender, numbers=1 if singular_only else 2)
    return Noun(nominative, gender, english_noun(english), kind, known, words, is_name=False)


def _name(row: list[str]) -> Noun:
    nominative, genitive, letter = row
    gender = _GENDERS[letter]
    words = _noun_words(decline(nominative, genitive, gender), gender, numbers=1)
    english = (nominative, nominative)
    return Noun(nominative, gender, english, "p", frozenset(), words, is_name=True)


def _noun_words(declined: Declension, gender: Gender, *, numbers: int) -> _DeclinedWords:
    readings = _readings({gender: declined}, numbers=tuple(Number)[:numbers])
    return _words(declined[:numbers], readings)


def _readings(genders: dict[Gender, Declension], *, numbers: tuple[Number, ...]) -> dict[str, int]:
    """All that the letters of each form allow, the vocative apart: a comma marks that."""
    found: dict[str, int] = {}
    for gender, declined in genders.items():
        for number in numbers:
            for case in tuple(Case)[: Case.VOCATIVE]:
                form = declined[number][case]
                found[form] = found.get(form, 0) | reading(gender, number, case)
    return found


def _words(
    declined: tuple[tuple[str, ...], ...], readings: dict[str, int], *, noun_at: int = 0
) -> _DeclinedWords:
    return tuple(
        tuple(Word(form, readings.get(form, 0), noun_at) for form in row) for row in declined
    )


def _adjective(row: list[str], *, is_quantifier: bool) -> Adjective:
    masculine, feminine, english, kinds = row
    declined = decline_adjective(masculine, feminine)
    used = (Number.PLURAL,) if is_quantifier else tuple(Number)
    readings = _readings(dict(zip(Gender, declined, strict=True)), numbers=used)
    before, after = (
        tuple(_words(forms, readings, noun_at=side) for forms in declined) for side in (+1, -1)
    )
    return Adjective(masculine, english, kinds, before, after, is_quantifier)


def _verb(row: list[str], frame: str) -> Verb:
    present, infinitive, perfect, english, subjects, objects, where = row
    said = english_verb(english, is_state=present in word_lists.STATES)
    forms = conjugate(present, infinitive, perfect)
    return Verb(present, forms, said, frame, subjects, objects, where)


def _preposition(row: list[str], all_nouns: tuple[Noun, ...]) -> Preposition:
    latin, case, english, kinds, tag, where = row
    suited = tuple(
        noun for noun in all_nouns if noun.category in kinds and (tag == "-" or tag in noun.tags)
    )
    return Preposition(Word(latin), Case[case.upper()], english, suited, where)


_SUITED_TENSES = {
    "any": tuple(Tense),
    "present": (Tense.PRESENT,),
    "past": (Tense.IMPERFECT, Tense.PERFECT),
}


def _adverb(row: list[str], *, is_manner: bool) -> Adverb:
    latin, english, place, tenses = row
    return Adverb(Word(latin), english, place == "middle", _SUITED_TENSES[tenses], is_manner)


SUM = Verb("sum", ESSE, BE, "being", "patfwrslbu", "-", "-")

"""The words of the Latin corpus, read from .tsv files, with all their inflected forms.

Forms are computed once per lexicon; sampling a sentence only looks them up. Each form also
carries its readings: which genders, numbers and cases its spelling allows.
Invariant: no form belongs to two words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain, product
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

# fmt: off
NOUN_CATEGORIES = {
    "p": "person", "a": "animal", "t": "thing", "f": "food", "w": "words", "r": "writing",
    "s": "sight", "l": "landscape", "b": "building", "u": "furniture",
}
"""Letters by which verbs, adjectives and prepositions name the nouns they combine with."""
# fmt: on

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

_TENSES = {"any": tuple(Tense), "present": tuple(Tense)[:1], "past": tuple(Tense)[1:]}
_CATEGORY_WEIGHTS = {"s": 4, "l": 2, "u": 2, "a": 2}  # categories that few verbs take
_PLACES = {  # a preposition of a kind that is listed twice is sampled twice as often
    "rest": ("rest",),
    "company": ("rest", "company"),
    "motion": ("rest", "company", "motion", "motion"),
    "water": ("water",),
    "-": (),
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
    """Return the bit of a gender, number and case."""
    return 1 << ((gender * 2 + number) * 6 + case)


class Role:
    """Bits of the roles that a noun phrase without a preposition can have."""

    SUBJECT_SINGULAR = 1
    SUBJECT_PLURAL = 2
    OBJECT = 4
    POSSESSOR = 8
    RECIPIENT = 16
    ARGUMENT = SUBJECT_SINGULAR | SUBJECT_PLURAL | OBJECT | RECIPIENT


_ROLES = (
    (Role.SUBJECT_SINGULAR, (Number.SINGULAR,), Case.NOMINATIVE),
    (Role.SUBJECT_PLURAL, (Number.PLURAL,), Case.NOMINATIVE),
    (Role.OBJECT, tuple(Number), Case.ACCUSATIVE),
    (Role.POSSESSOR, tuple(Number), Case.GENITIVE),
    (Role.RECIPIENT, tuple(Number), Case.DATIVE),
)


@cache  # there are a few hundred different sets of readings
def allowed_roles(readings: int) -> int:
    """Return the roles that a noun phrase with these readings can have."""
    return sum(
        role
        for role, numbers, case in _ROLES
        if any(readings & reading(*form, case) for form in product(Gender, numbers))
    )


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
    is_name: bool


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


@dataclass(frozen=True, eq=False, slots=True)
class Adverb:
    """An adverb, its position in English, and the tenses it combines with."""

    latin: Word
    english: str
    is_middle: bool
    tenses: tuple[Tense, ...]
    is_manner: bool


class Lexicon:
    """All words from which sentences are built, and tuples of them to sample from."""

    def __init__(self, names_split: str) -> None:
        names = [row[1:] for row in read_table("names") if row[0] == names_split]
        self.names = tuple(
            _noun("p", name, genitive, gender, name, name, "one", is_name=True)
            for name, genitive, gender in names
        )
        self.nouns = (*(_noun(*row) for row in read_table("nouns")), *self.names)
        self.adjectives = tuple(_adjective(*row) for row in read_table("adjectives"))
        self.verbs = tuple(_verb(*row) for row in read_table("verbs"))
        self.prepositions = tuple(
            preposition
            for row in read_table("prepositions")
            for preposition in [_preposition(row, self.nouns)] * int(row[-1])
        )
        self.adverbs = tuple(
            Adverb(Word(latin), english, position == "middle", _TENSES[tenses], manner == "yes")
            for manner, latin, english, position, tenses in read_table("adverbs")
        )
        self._nouns_by_categories: dict[str, tuple[Noun, ...]] = {}
        self.people = tuple(noun for noun in self.nouns_of("p") if not noun.is_name)
        # Subjects of mixed gender have a masculine predicate, but not with a neuter.
        animates = self.nouns_of("pa")
        self.animates = tuple(noun for noun in animates if noun.gender is not Gender.NEUTER)
        self.verbs_by_frame = {
            frame: tuple(verb for verb in self.verbs if verb.frame == frame)
            for frame in {verb.frame for verb in self.verbs}
        }
        self.adjectives_by_category = {
            (category, is_quantifier): tuple(
                adjective
                for adjective in self.adjectives
                if category in adjective.categories and adjective.is_quantifier is is_quantifier
            )
            for category, is_quantifier in product(NOUN_CATEGORIES, (True, False))
        }
        self.prepositions_by_place = {
            name: tuple(
                entry for place in places for entry in self.prepositions if entry.place == place
            )
            for name, places in _PLACES.items()
        }
        self.adverbs_by_tense = {
            (tense, is_action): tuple(
                adverb
                for adverb in self.adverbs
                if tense in adverb.tenses and (is_action or not adverb.is_manner)
            )
            for tense, is_action in product(Tense, (True, False))
        }

    def nouns_of(self, categories: str) -> tuple[Noun, ...]:
        """Return the nouns and names of these categories, repeated by weight."""
        if categories not in self._nouns_by_categories:
            nouns = (noun for noun in self.nouns if noun.category in categories)
            weighted = ([noun] * _CATEGORY_WEIGHTS.get(noun.category, 1) for noun in nouns)
            self._nouns_by_categories[categories] = tuple(chain.from_iterable(weighted))
        return self._nouns_by_categories[categories]


@cache
def load_lexicon(*, reserved_names: bool = False) -> Lexicon:
    """Read the tables, with the names of the training data or with the reserved ones."""
    return Lexicon("names" if reserved_names else "train")


def _noun(category: str, *row: str, is_name: bool = False) -> Noun:
    nominative, genitive, gender_and_stem, singular, plural, tag_names = row
    gender = Gender("mfn".index(gender_and_stem[0]))
    declined = decline(nominative, genitive, gender, i_stem=gender_and_stem.endswith("-i"))
    tags = frozenset(tag_names.split())
    if tags & {"in", "on"}:
        tags |= {"place"}
    numbers = (Number.SINGULAR,) if "one" in tags else tuple(Number)
    (words,) = _with_readings({gender: declined}, numbers)
    english = (singular, plural)
    return Noun(nominative, gender, english, category, tags, words[: len(numbers)], is_name)


def _adjective(
    quantifier: str, masculine: str, feminine: str, english: str, categories: str
) -> Adjective:
    is_quantifier = quantifier == "yes"
    declined = dict(zip(Gender, decline_adjective(masculine, feminine), strict=True))
    numbers = (Number.PLURAL,) if is_quantifier else tuple(Number)
    before, after = (_with_readings(declined, numbers, noun_offset=offset) for offset in (+1, -1))
    return Adjective(masculine, english, categories, before, after, is_quantifier)


def _with_readings(
    declined: dict[Gender, Declension], numbers: Sequence[Number], *, noun_offset: int = 0
) -> tuple[DeclinedWords, ...]:
    """Return the words with their readings; the vocative has none, because a comma marks it."""
    readings: dict[str, int] = {}
    for gender, number, case in product(declined, numbers, tuple(Case)[: Case.VOCATIVE]):
        form = declined[gender][number][case]
        readings[form] = readings.get(form, 0) | reading(gender, number, case)
    return tuple(
        tuple(tuple(Word(form, readings.get(form, 0), noun_offset) for form in row) for row in rows)
        for rows in declined.values()
    )


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

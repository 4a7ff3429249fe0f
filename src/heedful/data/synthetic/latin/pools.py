"""Pools: the words of a lexicon, grouped as they are drawn.

A pool is a tuple from which one member is chosen; each is put together once.
"""

from __future__ import annotations

from functools import lru_cache

from heedful.data.synthetic.latin import particles
from heedful.data.synthetic.latin.lexicon import (
    SUM,
    Adjective,
    Adverb,
    Lexicon,
    Noun,
    Preposition,
    Verb,
)
from heedful.data.synthetic.latin.nouns import KINDS
from heedful.data.synthetic.latin.phrases import Pronoun
from heedful.data.synthetic.latin.sentences import QUESTIONS, Question
from heedful.data.synthetic.latin.terms import Gender, Number, Person, Tense

_WEIGHTS = {"s": 4, "l": 2, "u": 2, "a": 2}  # kinds that few verbs take are drawn more often
_PREPOSITIONS = {
    "rest": ("rest",),
    "company": ("rest", "company"),
    "motion": ("rest", "company", "motion", "motion"),
    "water": ("water",),
    "-": (),
}


class Pools:
    """The words of a lexicon, grouped as they are drawn."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._nouns: dict[str, tuple[Noun, ...]] = {}
        self._lexicon = lexicon
        self.names = tuple(noun for noun in lexicon.nouns if noun.is_name)
        self.people = tuple(noun for noun in self.nouns("p") if not noun.is_name)
        # Of mixed genders the masculine is said, but not where one of them is neuter.
        self.beings = tuple(each for each in self.nouns("pa") if each.gender is not Gender.NEUTER)
        self.qualities = _adjectives(lexicon, is_quantifier=False)
        self.quantifiers = _adjectives(lexicon, is_quantifier=True)
        self.verbs: dict[str, tuple[Verb, ...]] = {"being": (SUM,)}
        for verb in lexicon.verbs:
            self.verbs[verb.frame] = (*self.verbs.get(verb.frame, ()), verb)
        self.prepositions = {
            where: tuple(_prepositions(lexicon, kinds)) for where, kinds in _PREPOSITIONS.items()
        }
        self.adverbs = {
            (tense, is_deed): tuple(_adverbs(lexicon, tense, is_deed=is_deed))
            for tense in Tense
            for is_deed in (True, False)
        }
        self.questions = {verb: tuple(_questions(verb)) for verb in lexicon.verbs}
        self.pronouns = tuple(_pronouns())
        self.listeners = tuple(
            each._replace(is_spoken=False) for each in self.pronouns if each.person is Person.SECOND
        )

    def nouns(self, kinds: str) -> tuple[Noun, ...]:
        """The nouns and names of these kinds."""
        if kinds not in self._nouns:
            nouns = self._lexicon.nouns_of(kinds)
            self._nouns[kinds] = tuple(
                noun for noun in nouns for _ in range(_WEIGHTS.get(noun.kind, 1))
            )
        return self._nouns[kinds]


@lru_cache(maxsize=4)
def pools(lexicon: Lexicon) -> Pools:
    """Group a lexicon, once."""
    return Pools(lexicon)


def _adjectives(lexicon: Lexicon, *, is_quantifier: bool) -> dict[str, tuple[Adjective, ...]]:
    return {
        kind: tuple(
            each
            for each in lexicon.adjectives
            if kind in each.kinds and each.is_quantifier is is_quantifier
        )
        for kind in KINDS
    }


def _prepositions(lexicon: Lexicon, kinds: tuple[str, ...]) -> list[Preposition]:
    return [each for kind in kinds for each in lexicon.prepositions if each.where == kind]


def _adverbs(lexicon: Lexicon, tense: Tense, *, is_deed: bool) -> list[Adverb]:
    return [
        each for each in lexicon.adverbs if tense in each.tenses and (is_deed or not each.is_manner)
    ]


def _questions(verb: Verb) -> list[Question]:
    """What may be asked with a verb; what stands twice is asked twice as often."""
    asked = ["-ne", "-ne", "-ne", "-ne", "num", "nonne", "quis", "quis", "cur", "quando"]
    asked += ["ubi"] * (verb.where in ("rest", "motion"))
    if verb.frame in ("transitive", "giving"):
        asked += ["quem"] * ("p" in verb.objects) + ["quid"] * ("t" in verb.objects)
    asked += ["cui"] * (verb.frame == "giving")
    return [QUESTIONS[each] for each in asked]


def _pronouns() -> list[Pronoun]:
    rows = [row.split() for row in particles.PRONOUNS.strip().splitlines()]
    persons = [(person, number) for number in Number for person in (Person.FIRST, Person.SECOND)]
    return [
        Pronoun(person, number, (nominative, accusative, dative), as_subject, as_object)
        for (person, number), (nominative, accusative, dative, as_subject, as_object) in zip(
            persons, rows, strict=True
        )
    ]

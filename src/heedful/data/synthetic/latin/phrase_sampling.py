"""Phrase drawing: which subject, object, place or adverb comes next?

No noun is drawn twice for one sentence, and ornaments (adjectives, owners) are few, so that
most sentences are of the kind a beginner would write.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import TypeVar

from heedful.data.synthetic.latin import word_lists
from heedful.data.synthetic.latin.lexicon import (
    SUM,
    Adjective,
    Adverb,
    Lexicon,
    Noun,
    Preposition,
    Verb,
)
from heedful.data.synthetic.latin.morphology import Gender, Number, Person, Tense
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Argument,
    Coordination,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Question,
)
from heedful.data.synthetic.latin.word_lists import NOUN_CATEGORIES

# Pools: the words of a lexicon, grouped as they are drawn.
#
# A pool is a tuple from which one member is chosen; each is put together once.

_WEIGHTS = {"s": 4, "l": 2, "u": 2, "a": 2}  # kinds that few verbs take are drawn more often
_PREPOSITIONS = {
    "rest": ("rest",),
    "company": ("rest", "company"),
    "motion": ("rest", "company", "motion", "motion"),
    "water": ("water",),
    "-": (),
}


class WordPools:
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
            each._replace(is_overt=False) for each in self.pronouns if each.person is Person.SECOND
        )

    def nouns(self, categories: str) -> tuple[Noun, ...]:
        """The nouns and names of these kinds."""
        if categories not in self._nouns:
            nouns = self._lexicon.nouns_by_category(categories)
            self._nouns[categories] = tuple(
                noun for noun in nouns for _ in range(_WEIGHTS.get(noun.category, 1))
            )
        return self._nouns[categories]


@lru_cache(maxsize=4)
def build_pools(lexicon: Lexicon) -> WordPools:
    """Group a lexicon, once."""
    return WordPools(lexicon)


def _adjectives(lexicon: Lexicon, *, is_quantifier: bool) -> dict[str, tuple[Adjective, ...]]:
    return {
        kind: tuple(
            each
            for each in lexicon.adjectives
            if kind in each.categories and each.is_quantifier is is_quantifier
        )
        for kind in NOUN_CATEGORIES
    }


def _prepositions(lexicon: Lexicon, categories: tuple[str, ...]) -> list[Preposition]:
    return [each for kind in categories for each in lexicon.prepositions if each.where == kind]


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
    rows = [row.split() for row in word_lists.PRONOUNS.strip().splitlines()]
    persons = [(person, number) for number in Number for person in (Person.FIRST, Person.SECOND)]
    return [
        Pronoun(person, number, (nominative, accusative, dative), as_subject, as_object)
        for (person, number), (nominative, accusative, dative, as_subject, as_object) in zip(
            persons, rows, strict=True
        )
    ]


_MAX_MODIFIERS = 2
Item = TypeVar("Item")


class PhraseSampler:
    """Draws the phrases of one sentence after another."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self.pools = build_pools(lexicon)
        self._uniform = random.random
        self._used: list[Noun] = []
        self._num_modifiers = 0

    def reset(self) -> None:
        """Forget what the last sentence held."""
        self._used = []
        self._num_modifiers = 0

    def flip(self, probability: float) -> bool:
        """Say yes this often."""
        return self._uniform() < probability

    def pick(self, pool: Sequence[Item]) -> Item:
        """Draw one of a pool; `Random.choice` takes three calls for it."""
        return pool[int(self._uniform() * len(pool))]

    def subject(
        self, categories: str, *, is_plain: bool = False, is_direct: bool = False
    ) -> Argument:
        """Draw who or what a sentence is about.

        A plain one has no adjective; a direct one is, if a pronoun at all, the one spoken to.
        """
        draw = self._uniform()
        if draw < 0.25 and "p" in categories:
            pronouns = self.pools.listeners[:1] if is_direct else self.pools.pronouns
            return self.pick(pronouns)._replace(is_overt=self.flip(0.3))
        if draw < 0.32 and "p" in categories:
            pool = self.pools.beings if "a" in categories else self.pools.nouns("p")
            return Coordination(self._bare_noun_phrase(pool), self._bare_noun_phrase(pool))
        return self.noun_phrase(self._noun(self.pools.nouns(categories)), is_plain=is_plain)

    def _other_pronoun(self, subject: Argument | None) -> Pronoun:
        pronoun = self.pick(self.pools.pronouns)
        if subject and pronoun.person is subject.person:
            return self._other_pronoun(subject)
        return pronoun

    def argument(self, categories: str, subject: Argument | None) -> Argument:
        """Draw an object or recipient that is not the subject itself."""
        if "p" in categories and self.flip(0.08):
            return self._other_pronoun(subject)
        return self.noun_phrase(self._noun(self.pools.nouns(categories)))

    def name(self) -> NounPhrase:
        """Draw a proper name."""
        return NounPhrase(self._noun(self.pools.names))

    def addressee(self, number: Number) -> NounPhrase:
        """Draw whoever is called on: a name half the time, where there is one to call."""
        if number is Number.SINGULAR and self.flip(0.5):
            return self.name()
        return NounPhrase(self._noun(self.pools.people), number)

    def person_of(self, gender: Gender) -> NounPhrase:
        """Draw what somebody may be: a slave, the friend of the king."""
        noun = self._noun(self.pools.people)
        if noun.gender is not gender:
            return self.person_of(gender)
        return self._with_modifiers(NounPhrase(noun), is_plain=False)

    def place(self, where: str, *, is_plain: bool = False) -> PrepositionalPhrase | None:
        """Draw where it happens, for a verb that may happen somewhere."""
        prepositions = self.pools.prepositions[where]
        if not prepositions:
            return None
        preposition = self.pick(prepositions)
        noun = self._noun(preposition.nouns)
        return PrepositionalPhrase(preposition, self.noun_phrase(noun, is_plain=is_plain))

    def adverb(self, tense: Tense, *, is_deed: bool) -> Adverb:
        """Draw when or how it happens."""
        return self.pick(self.pools.adverbs[tense, is_deed])

    def sample_adjective(self, category: str) -> Adjective:
        """Draw what such a thing may be like."""
        return self.pick(self.pools.qualities[category])

    def noun_phrase(self, noun: Noun, *, is_plain: bool = False) -> NounPhrase:
        """Draw the number of a noun and what goes with it."""
        return self._with_modifiers(self._numbered(noun), is_plain=is_plain)

    def _noun(self, pool: tuple[Noun, ...]) -> Noun:
        noun = self.pick(pool)
        while noun in self._used:
            noun = self.pick(pool)
        self._used.append(noun)
        return noun

    def _bare_noun_phrase(self, pool: tuple[Noun, ...]) -> NounPhrase:
        return self._numbered(self._noun(pool))

    def _numbered(self, noun: Noun) -> NounPhrase:
        is_plural = len(noun.words) > 1 and self.flip(0.45)
        return NounPhrase(noun, Number.PLURAL if is_plural else Number.SINGULAR)

    def _with_modifiers(self, phrase: NounPhrase, *, is_plain: bool) -> NounPhrase:
        if phrase.noun.is_name or self._num_modifiers >= _MAX_MODIFIERS:
            return phrase
        draw = self._uniform()
        if draw < 0.26 and not is_plain:
            return self._with_adjective(phrase)
        if draw < 0.4 and "owned" in phrase.noun.tags:
            return self._with_genitive(phrase)
        return phrase

    def _with_adjective(self, phrase: NounPhrase) -> NounPhrase:
        self._num_modifiers += 1
        adjective = self.sample_adjective(phrase.noun.category)
        is_first = self.flip(0.35)
        if phrase.number is Number.PLURAL and self.flip(0.15):
            quantifiers = self.pools.quantifiers[phrase.noun.category]
            if quantifiers:
                adjective, is_first = self.pick(quantifiers), True
        described = phrase._replace(adjective=adjective, adjective_first=is_first)
        can_be_owned = "owned" in phrase.noun.tags and self._num_modifiers < _MAX_MODIFIERS
        return self._with_genitive(described) if can_be_owned and self.flip(0.1) else described

    def _with_genitive(self, phrase: NounPhrase) -> NounPhrase:
        self._num_modifiers += 1
        owner = self._bare_noun_phrase(self.pools.nouns("p"))
        if not owner.noun.is_name and self._num_modifiers < _MAX_MODIFIERS and self.flip(0.15):
            self._num_modifiers += 1
            owner = owner._replace(adjective=self.sample_adjective("p"), adjective_first=True)
        return phrase._replace(possessor=owner)

"""Random noun phrases, prepositional phrases and adverbs for one sentence after another.

No noun occurs twice in a sentence, and adjectives and possessors are rare. Invariant: the same
state of `Random` gives the same phrases; words are drawn from tuples in the order of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import TypeVar

from heedful.data.synthetic.latin.lexicon import (
    NOUN_CATEGORIES,
    SUM,
    Adjective,
    Adverb,
    Lexicon,
    Noun,
    Preposition,
    Verb,
    read_table,
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

_CATEGORY_WEIGHTS = {"s": 4, "l": 2, "u": 2, "a": 2}  # categories that few verbs take
_PLACES = {
    "rest": ("rest",),
    "company": ("rest", "company"),
    "motion": ("rest", "company", "motion", "motion"),
    "water": ("water",),
    "-": (),
}
_MAX_MODIFIERS = 2
Item = TypeVar("Item")


class WordPools:
    """The words of a lexicon, grouped into tuples to sample from."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._nouns: dict[str, tuple[Noun, ...]] = {}
        self._lexicon = lexicon
        self.names = tuple(noun for noun in lexicon.nouns if noun.is_name)
        self.people = tuple(noun for noun in self.nouns("p") if not noun.is_name)
        # Subjects of mixed gender have a masculine predicate, but not with a neuter.
        self.animates = tuple(noun for noun in self.nouns("pa") if noun.gender is not Gender.NEUTER)
        self.descriptive = _adjectives_by_category(lexicon, is_quantifier=False)
        self.quantifiers = _adjectives_by_category(lexicon, is_quantifier=True)
        self.verbs: dict[str, tuple[Verb, ...]] = {"copular": (SUM,)}
        for verb in lexicon.verbs:
            self.verbs[verb.frame] = (*self.verbs.get(verb.frame, ()), verb)
        self.prepositions: dict[str, tuple[Preposition, ...]] = {
            name: tuple(
                each for place in places for each in lexicon.prepositions if each.place == place
            )
            for name, places in _PLACES.items()
        }
        self.adverbs: dict[tuple[Tense, bool], tuple[Adverb, ...]] = {
            (tense, is_action): tuple(
                adverb
                for adverb in lexicon.adverbs
                if tense in adverb.tenses and (is_action or not adverb.is_manner)
            )
            for tense in Tense
            for is_action in (True, False)
        }
        self.questions = {verb: _questions(verb) for verb in lexicon.verbs}
        self.pronouns = _pronouns()
        self.listeners = tuple(
            pronoun._replace(is_overt=False)
            for pronoun in self.pronouns
            if pronoun.person is Person.SECOND
        )

    def nouns(self, categories: str) -> tuple[Noun, ...]:
        """Return the nouns and names of these categories."""
        if categories not in self._nouns:
            self._nouns[categories] = tuple(
                noun
                for noun in self._lexicon.nouns
                if noun.category in categories
                for _ in range(_CATEGORY_WEIGHTS.get(noun.category, 1))
            )
        return self._nouns[categories]


@lru_cache(maxsize=4)
def build_pools(lexicon: Lexicon) -> WordPools:
    """Return the pools of a lexicon, computed once."""
    return WordPools(lexicon)


def _adjectives_by_category(
    lexicon: Lexicon, *, is_quantifier: bool
) -> dict[str, tuple[Adjective, ...]]:
    return {
        category: tuple(
            adjective
            for adjective in lexicon.adjectives
            if category in adjective.categories and adjective.is_quantifier is is_quantifier
        )
        for category in NOUN_CATEGORIES
    }


def _questions(verb: Verb) -> tuple[Question, ...]:
    # A question that is listed twice is sampled twice as often.
    words = ["-ne", "-ne", "-ne", "-ne", "num", "nonne", "quis", "quis", "cur", "quando"]
    words += ["ubi"] * (verb.place in ("rest", "motion"))
    if verb.frame in ("transitive", "ditransitive"):
        words += ["quem"] * ("p" in verb.objects) + ["quid"] * ("t" in verb.objects)
    words += ["cui"] * (verb.frame == "ditransitive")
    return tuple(QUESTIONS[word] for word in words)


def _pronouns() -> tuple[Pronoun, ...]:
    persons = [(person, number) for number in Number for person in (Person.FIRST, Person.SECOND)]
    return tuple(
        Pronoun(person, number, (nominative, accusative, dative), as_subject, as_object)
        for (person, number), (nominative, accusative, dative, as_subject, as_object) in zip(
            persons, read_table("pronouns"), strict=True
        )
    )


class PhraseSampler:
    """Samples the phrases of one sentence after another."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self.pools = build_pools(lexicon)
        self._uniform = random.random
        self.reset()

    def reset(self) -> None:
        """Start a new sentence."""
        self._used: list[Noun] = []
        self._num_modifiers = 0

    def flip(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._uniform() < probability

    def pick(self, pool: Sequence[Item]) -> Item:
        """Return a random item; `Random.choice` takes three calls for it."""
        return pool[int(self._uniform() * len(pool))]

    def subject(
        self, categories: str, *, is_plain: bool = False, is_direct: bool = False
    ) -> Argument:
        """Sample a subject.

        A plain subject has no adjective; a direct one, if it is a pronoun, is the listener.
        """
        sample = self._uniform()
        if sample < 0.25 and "p" in categories:
            pronouns = self.pools.listeners[:1] if is_direct else self.pools.pronouns
            return self.pick(pronouns)._replace(is_overt=self.flip(0.3))
        if sample < 0.32 and "p" in categories:
            pool = self.pools.animates if "a" in categories else self.pools.nouns("p")
            return Coordination(self._bare_noun_phrase(pool), self._bare_noun_phrase(pool))
        return self.noun_phrase(self._noun(self.pools.nouns(categories)), is_plain=is_plain)

    def argument(self, categories: str, subject: Argument | None) -> Argument:
        """Sample an object or recipient that differs from the subject."""
        if "p" in categories and self.flip(0.08):
            pronoun = self.pick(self.pools.pronouns)
            while subject and pronoun.person is subject.person:
                pronoun = self.pick(self.pools.pronouns)
            return pronoun
        return self.noun_phrase(self._noun(self.pools.nouns(categories)))

    def name(self) -> NounPhrase:
        """Sample a proper name."""
        return NounPhrase(self._noun(self.pools.names))

    def addressee(self, number: Number) -> NounPhrase:
        """Sample an addressee: a singular one is a name half of the time."""
        if number is Number.SINGULAR and self.flip(0.5):
            return self.name()
        return NounPhrase(self._noun(self.pools.people), number)

    def person_of(self, gender: Gender) -> NounPhrase:
        """Sample a person of this gender: a slave, the friend of the king."""
        noun = self._noun(self.pools.people)
        while noun.gender is not gender:
            noun = self._noun(self.pools.people)
        return self._with_modifiers(NounPhrase(noun), is_plain=False)

    def place(self, kind: str, *, is_plain: bool = False) -> PrepositionalPhrase | None:
        """Sample a place of this kind, or None if the verb takes none."""
        prepositions = self.pools.prepositions[kind]
        if not prepositions:
            return None
        preposition = self.pick(prepositions)
        noun = self._noun(preposition.nouns)
        return PrepositionalPhrase(preposition, self.noun_phrase(noun, is_plain=is_plain))

    def adverb(self, tense: Tense, *, is_action: bool) -> Adverb:
        """Sample an adverb; one of manner only for actions."""
        return self.pick(self.pools.adverbs[tense, is_action])

    def adjective(self, category: str) -> Adjective:
        """Sample an adjective for nouns of this category."""
        return self.pick(self.pools.descriptive[category])

    def noun_phrase(self, noun: Noun, *, is_plain: bool = False) -> NounPhrase:
        """Sample the number and the modifiers of a noun."""
        return self._with_modifiers(self._with_number(noun), is_plain=is_plain)

    def _noun(self, pool: tuple[Noun, ...]) -> Noun:
        noun = self.pick(pool)
        while noun in self._used:
            noun = self.pick(pool)
        self._used.append(noun)
        return noun

    def _bare_noun_phrase(self, pool: tuple[Noun, ...]) -> NounPhrase:
        return self._with_number(self._noun(pool))

    def _with_number(self, noun: Noun) -> NounPhrase:
        is_plural = len(noun.words) > 1 and self.flip(0.45)
        return NounPhrase(noun, Number.PLURAL if is_plural else Number.SINGULAR)

    def _with_modifiers(self, phrase: NounPhrase, *, is_plain: bool) -> NounPhrase:
        if phrase.noun.is_name or self._num_modifiers >= _MAX_MODIFIERS:
            return phrase
        sample = self._uniform()
        if sample < 0.26 and not is_plain:
            return self._with_adjective(phrase)
        if sample < 0.4 and "owned" in phrase.noun.tags:
            return self._with_possessor(phrase)
        return phrase

    def _with_adjective(self, phrase: NounPhrase) -> NounPhrase:
        self._num_modifiers += 1
        adjective = self.adjective(phrase.noun.category)
        is_first = self.flip(0.35)
        if phrase.number is Number.PLURAL and self.flip(0.15):
            quantifiers = self.pools.quantifiers[phrase.noun.category]
            if quantifiers:
                adjective, is_first = self.pick(quantifiers), True
        phrase = phrase._replace(adjective=adjective, adjective_first=is_first)
        can_be_owned = "owned" in phrase.noun.tags and self._num_modifiers < _MAX_MODIFIERS
        return self._with_possessor(phrase) if can_be_owned and self.flip(0.1) else phrase

    def _with_possessor(self, phrase: NounPhrase) -> NounPhrase:
        self._num_modifiers += 1
        possessor = self._bare_noun_phrase(self.pools.nouns("p"))
        can_modify = not possessor.noun.is_name and self._num_modifiers < _MAX_MODIFIERS
        if can_modify and self.flip(0.15):
            self._num_modifiers += 1
            possessor = possessor._replace(adjective=self.adjective("p"), adjective_first=True)
        return phrase._replace(possessor=possessor)

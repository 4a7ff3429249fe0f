"""Phrase drawing: which subject, object, place or adverb comes next?

No noun is drawn twice for one sentence, and ornaments (adjectives, owners) are few, so that
most sentences are of the kind a beginner would write.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from heedful.data.synthetic.latin.lexicon import Adjective, Adverb, Lexicon, Noun
from heedful.data.synthetic.latin.phrases import (
    Argument,
    Joined,
    NounPhrase,
    PlacePhrase,
    Pronoun,
)
from heedful.data.synthetic.latin.pools import pools
from heedful.data.synthetic.latin.terms import Gender, Number, Tense

_MAX_ORNAMENTS = 2
Item = TypeVar("Item")


class PhraseDrawer:
    """Draws the phrases of one sentence after another."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self.pools = pools(lexicon)
        self._uniform = random.random
        self._used: list[Noun] = []
        self._ornaments = 0

    def begin(self) -> None:
        """Forget what the last sentence held."""
        self._used = []
        self._ornaments = 0

    def chance(self, probability: float) -> bool:
        """Say yes this often."""
        return self._uniform() < probability

    def pick(self, pool: Sequence[Item]) -> Item:
        """Draw one of a pool; `Random.choice` takes three calls for it."""
        return pool[int(self._uniform() * len(pool))]

    def subject(self, kinds: str, *, is_plain: bool = False, is_direct: bool = False) -> Argument:
        """Draw who or what a sentence is about.

        A plain one has no adjective; a direct one is, if a pronoun at all, the one spoken to.
        """
        draw = self._uniform()
        if draw < 0.25 and "p" in kinds:
            pronouns = self.pools.listeners[:1] if is_direct else self.pools.pronouns
            return self.pick(pronouns)._replace(is_spoken=self.chance(0.3))
        if draw < 0.32 and "p" in kinds:
            pool = self.pools.beings if "a" in kinds else self.pools.nouns("p")
            return Joined(self._bare(pool), self._bare(pool))
        return self.noun_phrase(self._noun(self.pools.nouns(kinds)), is_plain=is_plain)

    def _other_pronoun(self, subject: Argument | None) -> Pronoun:
        pronoun = self.pick(self.pools.pronouns)
        if subject and pronoun.person is subject.person:
            return self._other_pronoun(subject)
        return pronoun

    def argument(self, kinds: str, subject: Argument | None) -> Argument:
        """Draw an object or recipient that is not the subject itself."""
        if "p" in kinds and self.chance(0.08):
            return self._other_pronoun(subject)
        return self.noun_phrase(self._noun(self.pools.nouns(kinds)))

    def name(self) -> NounPhrase:
        """Draw a proper name."""
        return NounPhrase(self._noun(self.pools.names))

    def caller(self, number: Number) -> NounPhrase:
        """Draw whoever is called on: a name half the time, where there is one to call."""
        if number is Number.SINGULAR and self.chance(0.5):
            return self.name()
        return NounPhrase(self._noun(self.pools.people), number)

    def person_of(self, gender: Gender) -> NounPhrase:
        """Draw what somebody may be: a slave, the friend of the king."""
        noun = self._noun(self.pools.people)
        if noun.gender is not gender:
            return self.person_of(gender)
        return self._ornamented(NounPhrase(noun), is_plain=False)

    def place(self, where: str, *, is_plain: bool = False) -> PlacePhrase | None:
        """Draw where it happens, for a verb that may happen somewhere."""
        prepositions = self.pools.prepositions[where]
        if not prepositions:
            return None
        preposition = self.pick(prepositions)
        noun = self._noun(preposition.nouns)
        return PlacePhrase(preposition, self.noun_phrase(noun, is_plain=is_plain))

    def adverb(self, tense: Tense, *, is_deed: bool) -> Adverb:
        """Draw when or how it happens."""
        return self.pick(self.pools.adverbs[tense, is_deed])

    def quality(self, kind: str) -> Adjective:
        """Draw what such a thing may be like."""
        return self.pick(self.pools.qualities[kind])

    def noun_phrase(self, noun: Noun, *, is_plain: bool = False) -> NounPhrase:
        """Draw the number of a noun and what goes with it."""
        return self._ornamented(self._numbered(noun), is_plain=is_plain)

    def _noun(self, pool: tuple[Noun, ...]) -> Noun:
        noun = self.pick(pool)
        while noun in self._used:
            noun = self.pick(pool)
        self._used.append(noun)
        return noun

    def _bare(self, pool: tuple[Noun, ...]) -> NounPhrase:
        return self._numbered(self._noun(pool))

    def _numbered(self, noun: Noun) -> NounPhrase:
        is_plural = len(noun.words) > 1 and self.chance(0.45)
        return NounPhrase(noun, Number.PLURAL if is_plural else Number.SINGULAR)

    def _ornamented(self, phrase: NounPhrase, *, is_plain: bool) -> NounPhrase:
        if phrase.noun.is_name or self._ornaments >= _MAX_ORNAMENTS:
            return phrase
        draw = self._uniform()
        if draw < 0.26 and not is_plain:
            return self._described(phrase)
        if draw < 0.4 and "owned" in phrase.noun.tags:
            return self._owned(phrase)
        return phrase

    def _described(self, phrase: NounPhrase) -> NounPhrase:
        self._ornaments += 1
        adjective = self.quality(phrase.noun.kind)
        is_first = self.chance(0.35)
        if phrase.number is Number.PLURAL and self.chance(0.15):
            quantifiers = self.pools.quantifiers[phrase.noun.kind]
            if quantifiers:
                adjective, is_first = self.pick(quantifiers), True
        described = phrase._replace(adjective=adjective, adjective_first=is_first)
        can_be_owned = "owned" in phrase.noun.tags and self._ornaments < _MAX_ORNAMENTS
        return self._owned(described) if can_be_owned and self.chance(0.1) else described

    def _owned(self, phrase: NounPhrase) -> NounPhrase:
        self._ornaments += 1
        owner = self._bare(self.pools.nouns("p"))
        if not owner.noun.is_name and self._ornaments < _MAX_ORNAMENTS and self.chance(0.15):
            self._ornaments += 1
            owner = owner._replace(adjective=self.quality("p"), adjective_first=True)
        return phrase._replace(owner=owner)

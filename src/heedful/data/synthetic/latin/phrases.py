"""Phrases: how is a person, thing or place said inside a sentence, in both languages?

An adjective stands beside its noun, an owner right after what it owns. Every phrase knows its
Latin in each case, its English, and the roles its letters would allow it to be read in.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from heedful.data.synthetic.latin.english import with_a
from heedful.data.synthetic.latin.lexicon import Adjective, Noun, Preposition
from heedful.data.synthetic.latin.terms import Case, Gender, Number, Person, Role, Word, roles


class NounPhrase(NamedTuple):
    """A noun, perhaps with an adjective and an owner: filius parvus reginae."""

    noun: Noun
    number: Number = Number.SINGULAR
    adjective: Adjective | None = None
    adjective_first: bool = False
    owner: NounPhrase | None = None

    @property
    def person(self) -> Person:
        """What the verb agrees with."""
        return Person.THIRD

    @property
    def gender(self) -> Gender:
        """What a predicate agrees with."""
        return self.noun.gender

    def latin(self, case: Case) -> list[Word]:
        """Say it in a case."""
        words = [self.noun.words[self.number][case]]
        if self.adjective:
            words.insert(0 if self.adjective_first else 1, self._agreeing(self.adjective, case))
        if self.owner:
            words += self.owner.latin(Case.GENITIVE)
        return words

    def _agreeing(self, adjective: Adjective, case: Case) -> Word:
        forms = adjective.before if self.adjective_first else adjective.after
        return forms[self.noun.gender][self.number][case]

    def english(self, *, is_subject: bool = False) -> str:
        """Say it in English, the same as subject and as object."""
        if self.noun.is_name:
            return self.noun.lemma
        quantified = self.adjective is not None and self.adjective.is_quantifier
        return self.undetermined() if quantified else f"the {self.undetermined()}"

    def undetermined(self) -> str:
        """Say it in English without an article."""
        said = self.noun.english[self.number]
        if self.adjective:
            said = f"{self.adjective.english} {said}"
        return f"{said} of {self.owner.english()}" if self.owner else said

    def predicated(self) -> str:
        """Say it in English after "is": a slave, the slave of the king."""
        return self.english() if self.owner else with_a(self.undetermined())

    def roles(self, case: Case) -> int:
        """Say which roles its letters allow, its owner apart."""
        readings = self.noun.words[self.number][case].readings
        if self.adjective:
            readings &= self._agreeing(self.adjective, case).readings
        return roles(readings)


class Joined(NamedTuple):
    """Two as one subject: servus et ancilla."""

    first: NounPhrase
    second: NounPhrase

    @property
    def person(self) -> Person:
        """What the verb agrees with."""
        return Person.THIRD

    @property
    def number(self) -> Number:
        """What the verb agrees with."""
        return Number.PLURAL

    @property
    def gender(self) -> Gender:
        """Masculine, unless both are feminine."""
        both_feminine = self.first.gender is self.second.gender is Gender.FEMININE
        return Gender.FEMININE if both_feminine else Gender.MASCULINE

    def latin(self, case: Case) -> list[Word]:
        """Say it in a case."""
        return [*self.first.latin(case), Word("et"), *self.second.latin(case)]

    def english(self, *, is_subject: bool = False) -> str:
        """Say it in English."""
        return f"{self.first.english()} and {self.second.english()}"

    def roles(self, case: Case) -> int:
        """Say which roles its letters allow: those of both, and always a plural subject."""
        shared = self.first.roles(case) & self.second.roles(case)
        return shared & (Role.OBJECT | Role.RECIPIENT) | Role.SUBJECT_PLURAL


_PRONOUN_CASES = (Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE)
_PRONOUN_ROLES = (Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL, Role.OBJECT, Role.RECIPIENT)


class Pronoun(NamedTuple):
    """I, you, we; as subject it may go unspoken, for the verb's ending says it."""

    person: Person
    number: Number
    forms: tuple[str, str, str]
    as_subject: str
    as_object: str
    is_spoken: bool = True

    @property
    def gender(self) -> Gender:
        """What a predicate agrees with."""
        return Gender.MASCULINE

    def latin(self, case: Case) -> list[Word]:
        """Say it in a case: nominative, accusative or dative."""
        return [Word(self.forms[_PRONOUN_CASES.index(case)])] if self.is_spoken else []

    def english(self, *, is_subject: bool = False) -> str:
        """Say it in English."""
        return self.as_subject if is_subject else self.as_object

    def roles(self, case: Case) -> int:
        """Say which role it has: its own, whatever its letters, for the verb's ending tells."""
        return _PRONOUN_ROLES[_PRONOUN_CASES.index(case)]


Argument: TypeAlias = NounPhrase | Joined | Pronoun


class PlacePhrase(NamedTuple):
    """A preposition and what it governs: in horto."""

    preposition: Preposition
    phrase: NounPhrase

    def latin(self) -> list[Word]:
        """Say it in the case of the preposition."""
        return [self.preposition.latin, *self.phrase.latin(self.preposition.case)]

    def english(self) -> str:
        """Say it in English."""
        return f"{self.preposition.before(self.phrase.noun)} {self.phrase.english()}"

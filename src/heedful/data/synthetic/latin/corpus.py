"""Ambiguity: could a Latin sentence be read in two ways?

Latin leaves to its endings what English says by order, and endings fall together: reges is
subject or object, puellae is one girl's, to one girl, or many girls. A sentence is kept only
if no other reading fits its letters. Three things can go astray:

- two arguments may change places: "reges cives vident";
- an owner and an argument may: "libros servi puellae vident", where servi and puellae are each
  a plural subject or a singular owner of what goes before;
- an adjective may belong to the noun on its other side: "servum magnum animal videt".

These are all, because a verb always has all its arguments, a third person subject is never left
out, prepositions fix the case of what follows, and no form belongs to two words of the lexicon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from random import Random
from typing import NamedTuple

from heedful.data.pair_dataset import Pair
from heedful.data.synthetic.corpus import Corpus, assign_split
from heedful.data.synthetic.latin.lexicon import SUM, Adjective, Adverb, Lexicon, Verb
from heedful.data.synthetic.latin.morphology import Case, Gender, Number, Role, Tense, Word
from heedful.data.synthetic.latin.phrase_sampling import PhraseSampler
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Argument,
    Chunks,
    Clause,
    Coordination,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Question,
    Slot,
    draw_order,
    english,
    latin,
    latin_slots,
)
from heedful.data.synthetic.latin.word_lists import RESERVED


class _ArgumentRoles(NamedTuple):
    """An argument: the roles its letters allow, and the one it has."""

    allowed: int
    intended: int


def is_ambiguous(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> bool:
    """Say whether another reading fits the same words in the same order."""
    standing = _arguments(clause)
    return (
        _can_swap_roles(standing)
        or _is_possessor_ambiguous(clause, standing)
        or _is_adjective_ambiguous([word for slot in order for word in chunks[slot]])
        or _is_number_ambiguous(clause.subject)
    )


def _arguments(clause: Clause) -> list[_ArgumentRoles]:
    standing = []
    if clause.subject:
        is_plural = clause.subject.number is Number.PLURAL
        intended = Role.SUBJECT_PLURAL if is_plural else Role.SUBJECT_SINGULAR
        standing.append(_ArgumentRoles(clause.subject.roles(Case.NOMINATIVE), intended))
    if clause.object:
        standing.append(_ArgumentRoles(clause.object.roles(Case.ACCUSATIVE), Role.OBJECT))
    if clause.recipient:
        standing.append(_ArgumentRoles(clause.recipient.roles(Case.DATIVE), Role.RECIPIENT))
    return standing


def _can_swap_roles(arguments: Sequence[_ArgumentRoles]) -> bool:
    if len(arguments) < 2:
        return False
    intended = [argument.intended for argument in arguments]
    movable = [each for each in arguments if each.allowed & sum(intended) & ~each.intended]
    if len(movable) < 2:
        return False
    others = list(permutations(argument.allowed for argument in arguments))[1:]
    return any(
        all(allowed & role for allowed, role in zip(other, intended, strict=True))
        for other in others
    )


def _is_possessor_ambiguous(clause: Clause, arguments: Sequence[_ArgumentRoles]) -> bool:
    place = clause.place.phrase if clause.place else None
    phrases = (clause.subject, clause.object, clause.recipient, clause.predicate, place)
    owners = [each.possessor for each in phrases if isinstance(each, NounPhrase) and each.possessor]
    if not any(owner.roles(Case.GENITIVE) & Role.ALONE for owner in owners):
        return False
    allowed = [argument.allowed for argument in arguments]
    if isinstance(clause.predicate, NounPhrase):
        allowed.append(clause.predicate.roles(Case.NOMINATIVE))
    return any(roles & Role.OWNER for roles in allowed)


def _is_adjective_ambiguous(words: Sequence[Word]) -> bool:
    for position, word in enumerate(words):
        if word.noun_at:
            other = position - word.noun_at
            if 0 <= other < len(words) and _could_agree(word, words[other]):
                return True
    return False


def _could_agree(adjective: Word, neighbour: Word) -> bool:
    return not neighbour.noun_at and bool(adjective.readings & neighbour.readings)


def _is_number_ambiguous(subject: Argument | None) -> bool:
    """Joined subjects take a plural verb, which does not tell feles (a cat) from feles (cats)."""
    if not isinstance(subject, Coordination):
        return False
    either = Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL
    return any(each.roles(Case.NOMINATIVE) & either == either for each in subject)


# Drawing: which sentence comes next?
#
# A `SentenceGenerator` draws clauses and word orders at random and says those that have one reading only.

# What stands twice is drawn twice as often.
_FRAMES = (
    *("being",) * 5,
    *("intransitive",) * 6,
    *("transitive",) * 9,
    *("giving",) * 3,
    *("favouring",) * 2,
)
_TENSES = (*(Tense.PRESENT,) * 4, *(Tense.IMPERFECT,) * 3, *(Tense.PERFECT,) * 3)
_COMPLEMENTS = ("place", "place", "quality", "quality", "person", "asked place")
_COPULAR_QUESTIONS = ("-ne", "-ne", "num", "nonne", "quis", "cur")
_IDENTITY_QUESTIONS = ("-ne", "num", "nonne")
_QUESTIONS_WITH_ADVERBS = ("-ne", "num", "nonne", "quis", "cur")
_QUESTIONS_WITH_NEGATION = ("quis", "cur")
_LOCATED = "patfrub"


class SentenceGenerator:
    """Says one sentence after another, in both languages."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self._phrases = PhraseSampler(lexicon, random)
        self._random = random

    def generate(self) -> Pair:
        """Say a sentence that has one reading."""
        while True:
            self._phrases.reset()
            clause = self._clause()
            chunks = latin_slots(clause)
            order = draw_order(clause, chunks, self._random)
            if not is_ambiguous(clause, chunks, order):
                return Pair(latin(clause, chunks, order), english(clause))

    def _clause(self) -> Clause:
        frame = self._phrases.pick(_FRAMES)
        if frame == "being":
            return self._sample_copular_clause(self._phrases.pick(_COMPLEMENTS))
        verb = self._phrases.pick(self._phrases.pools.verbs[frame])
        if not verb.english.is_state and self._phrases.flip(0.13):
            return self._sample_imperative(verb)
        asks = self._phrases.flip(0.28)
        return self._sample_verbal_clause(
            verb, self._phrases.pick(self._phrases.pools.questions[verb]) if asks else None
        )

    # --- doing -----------------------------------------------------------------------------

    def _sample_verbal_clause(self, verb: Verb, question: Question | None) -> Clause:
        fills = question.questioned_slot if question else None
        is_direct = question is QUESTIONS["-ne"]
        asked_for = fills == "subject"
        subject = None if asked_for else self._phrases.subject(verb.subjects, is_direct=is_direct)
        tense = self._phrases.pick(_TENSES)
        is_negated = self._sample_negation(question)
        clause = Clause(
            verb,
            subject,
            tense,
            self._object(verb, subject) if fills != "object" else None,
            self._recipient(verb, subject) if fills != "recipient" else None,
            place=self._sample_place(verb) if fills != "place" else None,
            adverb=self._adverb(verb, tense, question, is_negated=is_negated),
            is_negated=is_negated,
            question=question,
        )
        return _with_overt_subject(clause) if _is_one_word(clause) else clause

    def _sample_imperative(self, verb: Verb) -> Clause:
        number = self._phrases.pick((Number.SINGULAR, Number.SINGULAR, Number.PLURAL))
        listener = self._phrases.pools.listeners[number]
        adverb = self._phrases.adverb(Tense.PRESENT, is_deed=True)
        clause = Clause(
            verb,
            listener,
            object=self._object(verb, listener),
            recipient=self._recipient(verb, listener),
            place=self._sample_place(verb),
            adverb=adverb if not adverb.is_middle and self._phrases.flip(0.15) else None,
            is_command=True,
        )
        if self._phrases.flip(0.5) or _is_one_word(clause):
            return clause._replace(addressee=self._phrases.addressee(number))
        return clause

    def _object(self, verb: Verb, subject: Argument | None) -> Argument | None:
        is_taken = verb.frame in ("transitive", "giving")
        return self._phrases.argument(verb.objects, subject) if is_taken else None

    def _recipient(self, verb: Verb, subject: Argument | None) -> Argument | None:
        if verb.frame == "giving":
            return self._phrases.argument("p", subject)
        return self._phrases.argument(verb.objects, subject) if verb.frame == "favouring" else None

    def _sample_place(self, verb: Verb) -> PrepositionalPhrase | None:
        likely = 0.6 if verb.frame == "intransitive" else 0.2
        where = "company" if verb.where == "rest" else verb.where
        return self._phrases.place(where) if self._phrases.flip(likely) else None

    # --- being -----------------------------------------------------------------------------

    def _sample_copular_clause(self, complement: str) -> Clause:
        tense = self._phrases.pick(_TENSES)
        if complement == "asked place":
            located = self._phrases.subject(_LOCATED, is_plain=True)
            return Clause(SUM, located, tense, question=QUESTIONS["ubi"])
        question = self._sample_copular_question(complement)
        is_asked = question is not None and question.questioned_slot == "subject"
        subject = None if is_asked else self._sample_copular_subject(complement)
        is_negated = self._sample_negation(question)
        is_located = complement == "place"
        adverb = self._adverb(SUM, tense, question, is_negated=is_negated)
        return Clause(
            SUM,
            subject,
            tense,
            predicate=None if is_located else self._predicate(complement, subject),
            place=self._sample_location(subject) if is_located else None,
            adverb=adverb if complement != "person" else None,
            is_negated=is_negated,
            question=question,
        )

    def _sample_copular_question(self, complement: str) -> Question | None:
        if not self._phrases.flip(0.25):
            return None
        is_identity = complement == "person"
        asked = _IDENTITY_QUESTIONS if is_identity else _COPULAR_QUESTIONS
        return QUESTIONS[self._phrases.pick(asked)]

    def _sample_copular_subject(self, complement: str) -> Argument:
        if complement != "person":
            kinds = _LOCATED if complement == "place" else SUM.subjects
            return self._phrases.subject(kinds, is_plain=True)
        return self._phrases.name()

    def _predicate(self, complement: str, subject: Argument | None) -> NounPhrase | Adjective:
        if complement == "person":
            return self._phrases.person_of(subject.gender if subject else Gender.MASCULINE)
        return self._phrases.sample_adjective(
            subject.noun.category if isinstance(subject, NounPhrase) else "p"
        )

    def _sample_location(self, subject: Argument | None) -> PrepositionalPhrase | None:
        is_lifeless = isinstance(subject, NounPhrase) and subject.noun.category not in "pa"
        return self._phrases.place("rest" if is_lifeless else "company", is_plain=True)

    # --- both ------------------------------------------------------------------------------

    def _sample_negation(self, question: Question | None) -> bool:
        can_negate = question is None or question.latin in _QUESTIONS_WITH_NEGATION
        return can_negate and self._phrases.flip(0.15)

    def _adverb(
        self, verb: Verb, tense: Tense, question: Question | None, *, is_negated: bool
    ) -> Adverb | None:
        can_have = question is None or question.latin in _QUESTIONS_WITH_ADVERBS
        if not can_have or not self._phrases.flip(0.18):
            return None
        adverb = self._phrases.adverb(tense, is_deed=not verb.english.is_state)
        # "semper non" is not "non semper"; and what is never so is not asked or denied.
        is_tangled = adverb.is_middle and is_negated
        is_doubled = adverb.is_negative and question is not None
        return None if is_tangled or is_doubled else adverb


def _is_one_word(clause: Clause) -> bool:
    is_unspoken = isinstance(clause.subject, Pronoun) and not clause.subject.is_overt
    asks_with_a_word = clause.question and clause.question is not QUESTIONS["-ne"]
    beside = (clause.object, clause.recipient, clause.place, clause.adverb, asks_with_a_word)
    return is_unspoken and not (clause.is_negated or any(beside))


def _with_overt_subject(clause: Clause) -> Clause:
    assert isinstance(clause.subject, Pronoun)
    return clause._replace(subject=clause.subject._replace(is_overt=True))


# The Latin corpus: sentences with free word order, and names never seen in training.
#
# The English of a sentence decides its split, so all word orders of a sentence fall into one. A
# sentence with a reserved name is in the split `names`, and in no other.

UNSEEN_NAMES_SPLIT = "names"
RESERVED_NAMES = tuple(row.split()[0] for row in RESERVED.strip().splitlines())
_RESERVED_NAME = re.compile(rf"\b({'|'.join(RESERVED_NAMES)})\b")


class LatinCorpus(Corpus):
    """Latin sentences and their English."""

    name = "latin"
    description = "Latin sentences with free word order, and their English"
    splits = ("train", "dev", "test", UNSEEN_NAMES_SPLIT)

    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw sentences, with reserved names for the split of that name only."""
        # Imported at first use: the grammar is large, and other corpora do not need it.
        from heedful.data.synthetic.latin.lexicon import load_lexicon

        speaker = SentenceGenerator(
            load_lexicon(reserved_names=split == UNSEEN_NAMES_SPLIT), random
        )
        while True:
            yield speaker.generate()

    def is_in_split(self, pair: Pair, split: str) -> bool:
        """Say whether a sentence is of the split, by its English."""
        if split == UNSEEN_NAMES_SPLIT:
            return _RESERVED_NAME.search(pair.target) is not None
        return assign_split(pair.target) == split

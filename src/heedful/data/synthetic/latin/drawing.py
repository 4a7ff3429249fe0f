"""Drawing: which sentence comes next?

A `Speaker` draws clauses and word orders at random and says those that have one reading only.
"""

from __future__ import annotations

from random import Random

from heedful.data.records import Pair
from heedful.data.synthetic.latin.ambiguity import is_ambiguous
from heedful.data.synthetic.latin.lexicon import SUM, Adjective, Adverb, Lexicon, Verb
from heedful.data.synthetic.latin.phrase_drawing import PhraseDrawer
from heedful.data.synthetic.latin.phrases import Argument, NounPhrase, PlacePhrase, Pronoun
from heedful.data.synthetic.latin.sentences import (
    QUESTIONS,
    Clause,
    Question,
    english,
    latin,
    latin_chunks,
)
from heedful.data.synthetic.latin.terms import Gender, Number, Tense
from heedful.data.synthetic.latin.word_order import draw_order

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
_QUESTIONS_OF_BEING = ("-ne", "-ne", "num", "nonne", "quis", "cur")
_QUESTIONS_OF_IDENTITY = ("-ne", "num", "nonne")
_QUESTIONS_WITH_ADVERBS = ("-ne", "num", "nonne", "quis", "cur")
_QUESTIONS_WITH_NEGATION = ("quis", "cur")
_LOCATED = "patfrub"


class Speaker:
    """Says one sentence after another, in both languages."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self._draw = PhraseDrawer(lexicon, random)
        self._random = random

    def speak(self) -> Pair:
        """Say a sentence that has one reading."""
        while True:
            self._draw.begin()
            clause = self._clause()
            chunks = latin_chunks(clause)
            order = draw_order(clause, chunks, self._random)
            if not is_ambiguous(clause, chunks, order):
                return Pair(latin(clause, chunks, order), english(clause))

    def _clause(self) -> Clause:
        frame = self._draw.pick(_FRAMES)
        if frame == "being":
            return self._being(self._draw.pick(_COMPLEMENTS))
        verb = self._draw.pick(self._draw.pools.verbs[frame])
        if not verb.english.is_state and self._draw.chance(0.13):
            return self._command(verb)
        asks = self._draw.chance(0.28)
        return self._deed(verb, self._draw.pick(self._draw.pools.questions[verb]) if asks else None)

    # --- doing -----------------------------------------------------------------------------

    def _deed(self, verb: Verb, question: Question | None) -> Clause:
        fills = question.fills if question else None
        is_direct = question is QUESTIONS["-ne"]
        asked_for = fills == "subject"
        subject = None if asked_for else self._draw.subject(verb.subjects, is_direct=is_direct)
        tense = self._draw.pick(_TENSES)
        is_negated = self._negates(question)
        clause = Clause(
            verb,
            subject,
            tense,
            self._object(verb, subject) if fills != "object" else None,
            self._recipient(verb, subject) if fills != "recipient" else None,
            place=self._place(verb) if fills != "place" else None,
            adverb=self._adverb(verb, tense, question, is_negated=is_negated),
            is_negated=is_negated,
            question=question,
        )
        return _with_spoken_subject(clause) if _is_one_word(clause) else clause

    def _command(self, verb: Verb) -> Clause:
        number = self._draw.pick((Number.SINGULAR, Number.SINGULAR, Number.PLURAL))
        listener = self._draw.pools.listeners[number]
        adverb = self._draw.adverb(Tense.PRESENT, is_deed=True)
        clause = Clause(
            verb,
            listener,
            object=self._object(verb, listener),
            recipient=self._recipient(verb, listener),
            place=self._place(verb),
            adverb=adverb if not adverb.is_middle and self._draw.chance(0.15) else None,
            is_command=True,
        )
        if self._draw.chance(0.5) or _is_one_word(clause):
            return clause._replace(caller=self._draw.caller(number))
        return clause

    def _object(self, verb: Verb, subject: Argument | None) -> Argument | None:
        is_taken = verb.frame in ("transitive", "giving")
        return self._draw.argument(verb.objects, subject) if is_taken else None

    def _recipient(self, verb: Verb, subject: Argument | None) -> Argument | None:
        if verb.frame == "giving":
            return self._draw.argument("p", subject)
        return self._draw.argument(verb.objects, subject) if verb.frame == "favouring" else None

    def _place(self, verb: Verb) -> PlacePhrase | None:
        likely = 0.6 if verb.frame == "intransitive" else 0.2
        where = "company" if verb.where == "rest" else verb.where
        return self._draw.place(where) if self._draw.chance(likely) else None

    # --- being -----------------------------------------------------------------------------

    def _being(self, complement: str) -> Clause:
        tense = self._draw.pick(_TENSES)
        if complement == "asked place":
            located = self._draw.subject(_LOCATED, is_plain=True)
            return Clause(SUM, located, tense, question=QUESTIONS["ubi"])
        question = self._question_of_being(complement)
        is_asked = question is not None and question.fills == "subject"
        subject = None if is_asked else self._subject_of_being(complement)
        is_negated = self._negates(question)
        is_located = complement == "place"
        adverb = self._adverb(SUM, tense, question, is_negated=is_negated)
        return Clause(
            SUM,
            subject,
            tense,
            predicate=None if is_located else self._predicate(complement, subject),
            place=self._location(subject) if is_located else None,
            adverb=adverb if complement != "person" else None,
            is_negated=is_negated,
            question=question,
        )

    def _question_of_being(self, complement: str) -> Question | None:
        if not self._draw.chance(0.25):
            return None
        is_identity = complement == "person"
        asked = _QUESTIONS_OF_IDENTITY if is_identity else _QUESTIONS_OF_BEING
        return QUESTIONS[self._draw.pick(asked)]

    def _subject_of_being(self, complement: str) -> Argument:
        if complement != "person":
            kinds = _LOCATED if complement == "place" else SUM.subjects
            return self._draw.subject(kinds, is_plain=True)
        return self._draw.name()

    def _predicate(self, complement: str, subject: Argument | None) -> NounPhrase | Adjective:
        if complement == "person":
            return self._draw.person_of(subject.gender if subject else Gender.MASCULINE)
        return self._draw.quality(subject.noun.kind if isinstance(subject, NounPhrase) else "p")

    def _location(self, subject: Argument | None) -> PlacePhrase | None:
        is_lifeless = isinstance(subject, NounPhrase) and subject.noun.kind not in "pa"
        return self._draw.place("rest" if is_lifeless else "company", is_plain=True)

    # --- both ------------------------------------------------------------------------------

    def _negates(self, question: Question | None) -> bool:
        can_negate = question is None or question.latin in _QUESTIONS_WITH_NEGATION
        return can_negate and self._draw.chance(0.15)

    def _adverb(
        self, verb: Verb, tense: Tense, question: Question | None, *, is_negated: bool
    ) -> Adverb | None:
        can_have = question is None or question.latin in _QUESTIONS_WITH_ADVERBS
        if not can_have or not self._draw.chance(0.18):
            return None
        adverb = self._draw.adverb(tense, is_deed=not verb.english.is_state)
        # "semper non" is not "non semper"; and what is never so is not asked or denied.
        is_tangled = adverb.is_middle and is_negated
        is_doubled = adverb.is_negative and question is not None
        return None if is_tangled or is_doubled else adverb


def _is_one_word(clause: Clause) -> bool:
    is_unspoken = isinstance(clause.subject, Pronoun) and not clause.subject.is_spoken
    asks_with_a_word = clause.question and clause.question is not QUESTIONS["-ne"]
    beside = (clause.object, clause.recipient, clause.place, clause.adverb, asks_with_a_word)
    return is_unspoken and not (clause.is_negated or any(beside))


def _with_spoken_subject(clause: Clause) -> Clause:
    assert isinstance(clause.subject, Pronoun)
    return clause._replace(subject=clause.subject._replace(is_spoken=True))

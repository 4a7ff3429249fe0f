"""The Latin corpus: random clauses and word orders, kept if they have a single reading.

The English of a sentence determines its split, so all word orders of a sentence fall into one
split. A sentence with a reserved name is in the split `names` and in no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from random import Random

from typing_extensions import override

from heedful.data.pair_dataset import Pair
from heedful.data.synthetic.corpus import Corpus, assign_split
from heedful.data.synthetic.latin.ambiguity import is_ambiguous
from heedful.data.synthetic.latin.lexicon import (
    SUM,
    Adjective,
    Adverb,
    Lexicon,
    Verb,
    load_lexicon,
    read_table,
)
from heedful.data.synthetic.latin.morphology import Gender, Number, Person, Tense
from heedful.data.synthetic.latin.sampling import PhraseSampler
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Argument,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    Pronoun,
    Question,
    Slot,
    english,
    latin,
    latin_slots,
)

UNSEEN_NAMES_SPLIT = "names"

# An entry that is listed several times is sampled as often.
_FRAMES = (
    *("copular",) * 5,
    *("intransitive",) * 6,
    *("transitive",) * 9,
    *("ditransitive",) * 3,
    *("dative",) * 2,
)
_TENSES = (*(Tense.PRESENT,) * 4, *(Tense.IMPERFECT,) * 3, *(Tense.PERFECT,) * 3)
_COMPLEMENTS = ("place", "place", "quality", "quality", "person", "asked place")
_COPULAR_QUESTIONS = ("-ne", "-ne", "num", "nonne", "quis", "cur")
_IDENTITY_QUESTIONS = ("-ne", "num", "nonne")
_QUESTIONS_WITH_ADVERBS = ("-ne", "num", "nonne", "quis", "cur")
_QUESTIONS_WITH_NEGATION = ("quis", "cur")
_LOCATED = "patfrub"  # categories of the subject of "is in the garden"


class LatinCorpus(Corpus):
    """Latin sentences and their English."""

    name = "latin"
    description = "Latin sentences with free word order, and their English"
    splits = ("train", "dev", "test", UNSEEN_NAMES_SPLIT)

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        lexicon = load_lexicon(reserved_names=split == UNSEEN_NAMES_SPLIT)
        generator = SentenceGenerator(lexicon, random)
        while True:
            yield generator.generate()

    @override
    def is_in_split(self, pair: Pair, split: str) -> bool:
        if split == UNSEEN_NAMES_SPLIT:
            return _reserved_name_pattern().search(pair.target) is not None
        return assign_split(pair.target) == split


class SentenceGenerator:
    """Generates one sentence after another, in both languages."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self._phrases = PhraseSampler(lexicon, random)
        self._random = random

    def generate(self) -> Pair:
        """Return a sentence that has a single reading."""
        while True:
            self._phrases.reset()
            clause = self._clause()
            chunks = latin_slots(clause)
            order = sample_order(clause, chunks, self._random)
            if not is_ambiguous(clause, chunks, order):
                return Pair(latin(clause, chunks, order), english(clause))

    def _clause(self) -> Clause:
        frame = self._phrases.pick(_FRAMES)
        if frame == "copular":
            return self._copular_clause(self._phrases.pick(_COMPLEMENTS))
        verb = self._phrases.pick(self._phrases.pools.verbs[frame])
        if not verb.english.is_stative and self._phrases.flip(0.13):
            return self._imperative(verb)
        is_question = self._phrases.flip(0.28)
        questions = self._phrases.pools.questions[verb]
        return self._verbal_clause(verb, self._phrases.pick(questions) if is_question else None)

    def _verbal_clause(self, verb: Verb, question: Question | None) -> Clause:
        replaced = question.questioned_slot if question else None
        is_direct = question is QUESTIONS["-ne"]
        subject = (
            None
            if replaced == "subject"
            else self._phrases.subject(verb.subjects, is_direct=is_direct)
        )
        tense = self._phrases.pick(_TENSES)
        is_negated = self._negation(question)
        clause = Clause(
            verb,
            subject,
            tense,
            self._object(verb, subject) if replaced != "object" else None,
            self._recipient(verb, subject) if replaced != "recipient" else None,
            place=self._place(verb) if replaced != "place" else None,
            adverb=self._adverb(verb, tense, question, is_negated=is_negated),
            is_negated=is_negated,
            question=question,
        )
        if _is_one_word(clause):
            assert isinstance(subject, Pronoun)
            return clause._replace(subject=subject._replace(is_overt=True))
        return clause

    def _imperative(self, verb: Verb) -> Clause:
        number = self._phrases.pick((Number.SINGULAR, Number.SINGULAR, Number.PLURAL))
        listener = self._phrases.pools.listeners[number]
        adverb = self._phrases.adverb(Tense.PRESENT, is_action=True)
        clause = Clause(
            verb,
            listener,
            object=self._object(verb, listener),
            recipient=self._recipient(verb, listener),
            place=self._place(verb),
            adverb=adverb if not adverb.is_middle and self._phrases.flip(0.15) else None,
            is_command=True,
        )
        if self._phrases.flip(0.5) or _is_one_word(clause):
            return clause._replace(addressee=self._phrases.addressee(number))
        return clause

    def _object(self, verb: Verb, subject: Argument | None) -> Argument | None:
        takes_object = verb.frame in ("transitive", "ditransitive")
        return self._phrases.argument(verb.objects, subject) if takes_object else None

    def _recipient(self, verb: Verb, subject: Argument | None) -> Argument | None:
        if verb.frame == "ditransitive":
            return self._phrases.argument("p", subject)
        return self._phrases.argument(verb.objects, subject) if verb.frame == "dative" else None

    def _place(self, verb: Verb) -> PrepositionalPhrase | None:
        probability = 0.6 if verb.frame == "intransitive" else 0.2
        kind = "company" if verb.place == "rest" else verb.place
        return self._phrases.place(kind) if self._phrases.flip(probability) else None

    def _copular_clause(self, complement: str) -> Clause:
        tense = self._phrases.pick(_TENSES)
        if complement == "asked place":
            located = self._phrases.subject(_LOCATED, is_plain=True)
            return Clause(SUM, located, tense, question=QUESTIONS["ubi"])
        question = self._copular_question(complement)
        is_asked = question is not None and question.questioned_slot == "subject"
        subject = None if is_asked else self._copular_subject(complement)
        is_negated = self._negation(question)
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

    def _copular_question(self, complement: str) -> Question | None:
        if not self._phrases.flip(0.25):
            return None
        words = _IDENTITY_QUESTIONS if complement == "person" else _COPULAR_QUESTIONS
        return QUESTIONS[self._phrases.pick(words)]

    def _copular_subject(self, complement: str) -> Argument:
        if complement == "person":
            return self._phrases.name()
        categories = _LOCATED if complement == "place" else SUM.subjects
        return self._phrases.subject(categories, is_plain=True)

    def _predicate(self, complement: str, subject: Argument | None) -> NounPhrase | Adjective:
        if complement == "person":
            return self._phrases.person_of(subject.gender if subject else Gender.MASCULINE)
        category = subject.noun.category if isinstance(subject, NounPhrase) else "p"
        return self._phrases.adjective(category)

    def _location(self, subject: Argument | None) -> PrepositionalPhrase | None:
        is_inanimate = isinstance(subject, NounPhrase) and subject.noun.category not in "pa"
        return self._phrases.place("rest" if is_inanimate else "company", is_plain=True)

    def _negation(self, question: Question | None) -> bool:
        can_negate = question is None or question.latin in _QUESTIONS_WITH_NEGATION
        return can_negate and self._phrases.flip(0.15)

    def _adverb(
        self, verb: Verb, tense: Tense, question: Question | None, *, is_negated: bool
    ) -> Adverb | None:
        is_allowed = question is None or question.latin in _QUESTIONS_WITH_ADVERBS
        if not is_allowed or not self._phrases.flip(0.18):
            return None
        adverb = self._phrases.adverb(tense, is_action=not verb.english.is_stative)
        # "semper non" is not "non semper"; and "never" is not combined with a question.
        is_misplaced = adverb.is_middle and is_negated
        is_doubled = adverb.english == "never" and question is not None
        return None if is_misplaced or is_doubled else adverb


def _is_one_word(clause: Clause) -> bool:
    is_covert = isinstance(clause.subject, Pronoun) and not clause.subject.is_overt
    has_question_word = clause.question and clause.question is not QUESTIONS["-ne"]
    others = (clause.object, clause.recipient, clause.place, clause.adverb, has_question_word)
    return is_covert and not (clause.is_negated or any(others))


def reserved_names() -> list[str]:
    """Return the names that occur in the split `names` only."""
    return [row[1] for row in read_table("names") if row[0] == UNSEEN_NAMES_SPLIT]


@cache
def _reserved_name_pattern() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(reserved_names())})\b")


# --- word order ----------------------------------------------------------------------------

_SUBJECT_FIRST = 0.6
_VERB_LAST = 0.6
_VERB_FIRST = 0.4  # of verbs that may open a statement: first person singular present, "amo"
_FIXED: tuple[Slot, ...] = ("question", "verb", "caller")


def sample_order(clause: Clause, slots: Iterable[Slot], random: Random) -> list[Slot]:
    """Sample an order: question word first, subject often first, verb often last."""
    spoken = list(slots)
    order = [slot for slot in spoken if slot not in _FIXED]
    random.shuffle(order)
    if "subject" in order and random.random() < _SUBJECT_FIRST:
        order.remove("subject")
        order.insert(0, "subject")
    order.insert(_verb_position(clause, order, random), "verb")
    if "question" in spoken:
        order.insert(0, "question")
    if "caller" in spoken:
        order.insert(random.choice((0, len(order))), "caller")
    return order


def _verb_position(clause: Clause, order: list[Slot], random: Random) -> int:
    if clause.question and clause.question.latin == "-ne":
        return 0
    if clause.is_command:
        return random.choice((0, len(order)))
    agreement = (clause.person, clause.number, clause.tense)
    is_dictionary_form = agreement == (Person.FIRST, Number.SINGULAR, Tense.PRESENT)
    if is_dictionary_form and random.random() < _VERB_FIRST:
        return 0
    if random.random() < _VERB_LAST or not order:
        return len(order)
    return random.randrange(0 if clause.question else 1, len(order) + 1)

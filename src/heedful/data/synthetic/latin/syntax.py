"""Phrases: how is a person, thing or place said inside a sentence, in both languages?

An adjective stands beside its noun, an owner right after what it owns. Every phrase knows its
Latin in each case, its English, and the roles its letters would allow it to be read in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from heedful.data.synthetic.latin.lexicon import Adjective, Adverb, Noun, Preposition, Verb
from heedful.data.synthetic.latin.morphology import (
    Case,
    Gender,
    Number,
    Person,
    Role,
    Tense,
    Word,
    declarative_verb_group,
    do_support_verb_group,
    roles,
    with_indefinite_article,
)


class NounPhrase(NamedTuple):
    """A noun, perhaps with an adjective and an owner: filius parvus reginae."""

    noun: Noun
    number: Number = Number.SINGULAR
    adjective: Adjective | None = None
    adjective_first: bool = False
    possessor: NounPhrase | None = None

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
        if self.possessor:
            words += self.possessor.latin(Case.GENITIVE)
        return words

    def _agreeing(self, adjective: Adjective, case: Case) -> Word:
        forms = adjective.before if self.adjective_first else adjective.after
        return forms[self.noun.gender][self.number][case]

    def english(self, *, is_subject: bool = False) -> str:
        """Say it in English, the same as subject and as object."""
        if self.noun.is_name:
            return self.noun.lemma
        quantified = self.adjective is not None and self.adjective.is_quantifier
        return self.without_article() if quantified else f"the {self.without_article()}"

    def without_article(self) -> str:
        """Say it in English without an article."""
        said = self.noun.english[self.number]
        if self.adjective:
            said = f"{self.adjective.english} {said}"
        return f"{said} of {self.possessor.english()}" if self.possessor else said

    def as_predicate(self) -> str:
        """Say it in English after "is": a slave, the slave of the king."""
        return self.english() if self.possessor else with_indefinite_article(self.without_article())

    def roles(self, case: Case) -> int:
        """Say which roles its letters allow, its owner apart."""
        readings = self.noun.words[self.number][case].readings
        if self.adjective:
            readings &= self._agreeing(self.adjective, case).readings
        return roles(readings)


class Coordination(NamedTuple):
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
    is_overt: bool = True

    @property
    def gender(self) -> Gender:
        """What a predicate agrees with."""
        return Gender.MASCULINE

    def latin(self, case: Case) -> list[Word]:
        """Say it in a case: nominative, accusative or dative."""
        return [Word(self.forms[_PRONOUN_CASES.index(case)])] if self.is_overt else []

    def english(self, *, is_subject: bool = False) -> str:
        """Say it in English."""
        return self.as_subject if is_subject else self.as_object

    def roles(self, case: Case) -> int:
        """Say which role it has: its own, whatever its letters, for the verb's ending tells."""
        return _PRONOUN_ROLES[_PRONOUN_CASES.index(case)]


Argument: TypeAlias = NounPhrase | Coordination | Pronoun


class PrepositionalPhrase(NamedTuple):
    """A preposition and what it governs: in horto."""

    preposition: Preposition
    phrase: NounPhrase

    def latin(self) -> list[Word]:
        """Say it in the case of the preposition."""
        return [self.preposition.latin, *self.phrase.latin(self.preposition.case)]

    def english(self) -> str:
        """Say it in English."""
        return f"{self.preposition.before(self.phrase.noun)} {self.phrase.english()}"


# Sentences: how do words become a Latin sentence and its English?
#
# A clause says what is meant; an order of its slots says how Latin arranges it. The English
# depends on the clause alone, so every order of one clause has the same translation.


class Question(NamedTuple):
    """How a question is asked: its first word, and what of the clause that word stands for."""

    latin: str  # "-ne" is hung on the verb
    english: str
    questioned_slot: Slot | None = None
    expects_answer: bool = False  # "surely" goes before a statement, the others before an inversion
    is_negative: bool = False


QUESTIONS = {
    question.latin: question
    for question in (
        Question("-ne", ""),
        Question("num", "surely", expects_answer=True, is_negative=True),
        Question("nonne", "surely", expects_answer=True),
        Question("quis", "who", questioned_slot="subject"),
        Question("quem", "whom", questioned_slot="object"),
        Question("quid", "what", questioned_slot="object"),
        Question("cui", "to whom", questioned_slot="recipient"),
        Question("ubi", "where", questioned_slot="place"),
        Question("cur", "why"),
        Question("quando", "when"),
    )
}

Slot = Literal[
    "question", "subject", "object", "recipient", "predicate", "place", "adverb", "verb", "caller"
]
Chunks = dict[Slot, list[Word]]


class Clause(NamedTuple):
    """What a sentence says: who does what to whom, when, where, and in which mood."""

    verb: Verb
    subject: Argument | None  # None where "quis" asks for it
    tense: Tense = Tense.PRESENT
    object: Argument | None = None
    recipient: Argument | None = None
    predicate: NounPhrase | Adjective | None = None
    place: PrepositionalPhrase | None = None
    adverb: Adverb | None = None
    is_negated: bool = False
    question: Question | None = None
    is_command: bool = False
    addressee: NounPhrase | None = None  # whoever is called on, in the vocative

    @property
    def person(self) -> Person:
        """The person of the verb."""
        return self.subject.person if self.subject else Person.THIRD

    @property
    def number(self) -> Number:
        """The number of the verb."""
        return self.subject.number if self.subject else Number.SINGULAR


# --- Latin ---------------------------------------------------------------------------------
def latin_slots(clause: Clause) -> Chunks:
    """Say each slot of a clause in Latin; what goes unspoken is left out."""
    said: tuple[tuple[Slot, list[Word]], ...] = (
        ("question", _latin_question(clause.question)),
        ("subject", _latin_argument(clause.subject, Case.NOMINATIVE)),
        ("object", _latin_argument(clause.object, Case.ACCUSATIVE)),
        ("recipient", _latin_argument(clause.recipient, Case.DATIVE)),
        ("predicate", _latin_predicate(clause)),
        ("place", clause.place.latin() if clause.place else []),
        ("adverb", [clause.adverb.latin] if clause.adverb else []),
        ("verb", _latin_verb(clause)),
        ("caller", _latin_argument(clause.addressee, Case.VOCATIVE)),
    )
    return {slot: words for slot, words in said if words}


def _latin_question(question: Question | None) -> list[Word]:
    return [Word(question.latin)] if question and question.latin != "-ne" else []


def _latin_argument(argument: Argument | None, case: Case) -> list[Word]:
    return argument.latin(case) if argument else []


def _latin_verb(clause: Clause) -> list[Word]:
    forms = clause.verb.forms
    if clause.is_command:
        return [Word(forms.imperatives[clause.number])]
    form = forms.finite[clause.tense][clause.number][clause.person]
    if clause.question and clause.question.latin == "-ne":
        return [Word(form + "ne")]
    return [Word("non"), Word(form)] if clause.is_negated else [Word(form)]


def _latin_predicate(clause: Clause) -> list[Word]:
    if clause.predicate is None:
        return []
    if isinstance(clause.predicate, NounPhrase):
        return clause.predicate.latin(Case.NOMINATIVE)
    gender = clause.subject.gender if clause.subject else Gender.MASCULINE
    form = clause.predicate.after[gender][clause.number][Case.NOMINATIVE]
    return [Word(form.text)]  # no readings: it belongs to the verb, not to a neighbour


def latin(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> str:
    """Write a clause in Latin, its chunks in this order; a caller comes first or last."""
    body = _spell(word for slot in order if slot != "caller" for word in chunks[slot])
    if clause.addressee:
        addressee = _spell(chunks["caller"])
        body = f"{addressee}, {body}" if order[0] == "caller" else f"{body}, {addressee}"
    return _finish(body, clause)


def _spell(words: Iterable[Word]) -> str:
    return " ".join([word.text for word in words])


def _finish(text: str, clause: Clause) -> str:
    mark = "?" if clause.question else "!" if clause.is_command else "."
    return f"{text[0].upper()}{text[1:]}{mark}"


# --- English -------------------------------------------------------------------------------
def english(clause: Clause) -> str:
    """Write a clause in English."""
    words = _english_command(clause) if clause.is_command else _english_clause(clause)
    return _finish(" ".join(filter(None, words)), clause)


def _english_command(clause: Clause) -> list[str]:
    words = [clause.verb.english.base, *_complements(clause)]
    if not clause.addressee:
        return words
    addressee = clause.addressee
    called = addressee.noun.lemma if addressee.noun.is_name else addressee.without_article()
    return [" ".join(filter(None, words)) + ",", called]


def _english_clause(clause: Clause) -> list[str]:
    question = clause.question
    asked = question.english if question else ""
    is_negated = clause.is_negated or (question is not None and question.is_negative)
    is_inverted = question is not None and not (
        question.expects_answer or question.questioned_slot == "subject"
    )
    say = do_support_verb_group if is_negated or is_inverted else declarative_verb_group
    auxiliary, main = say(clause.verb.english, clause.tense, clause.person, clause.number)
    subject = clause.subject.english(is_subject=True) if clause.subject else ""
    opening = [auxiliary, subject] if is_inverted else [subject, auxiliary]
    middle = clause.adverb.english if clause.adverb and clause.adverb.is_middle else ""
    negation = "not" if is_negated else ""
    return [asked, *opening, negation, middle, main, *_complements(clause)]


def _complements(clause: Clause) -> list[str]:
    words = []
    if clause.object:
        words.append(clause.object.english())
    if clause.recipient:
        words.append("to" if clause.verb.frame == "giving" else "")
        words.append(clause.recipient.english())
    if isinstance(clause.predicate, NounPhrase):
        words.append(clause.predicate.as_predicate())
    elif clause.predicate:
        words.append(clause.predicate.english)
    if clause.place:
        words.append(clause.place.english())
    if clause.adverb and not clause.adverb.is_middle:
        words.append(clause.adverb.english)
    return words


# Word order: how does Latin arrange what it says?
#
# Freely, with habits: a question word first, the subject early, the verb late, -ne on a verb that
# opens. A statement opens with its verb only in the form the dictionary gives: "amo puellam".

_SUBJECT_FIRST = 0.6
_VERB_LAST = 0.6
_VERB_FIRST = 0.4  # of verbs that may open a statement
_FIXED: tuple[Slot, ...] = ("question", "verb", "caller")


def draw_order(clause: Clause, slots: Iterable[Slot], random: Random) -> list[Slot]:
    """Draw one order of the slots that are spoken."""
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
    if _is_dictionary_form(clause) and random.random() < _VERB_FIRST:
        return 0
    if random.random() < _VERB_LAST or not order:
        return len(order)
    return random.randrange(0 if clause.question else 1, len(order) + 1)


def _is_dictionary_form(clause: Clause) -> bool:
    is_first_person = clause.person is Person.FIRST and clause.number is Number.SINGULAR
    return is_first_person and clause.tense is Tense.PRESENT

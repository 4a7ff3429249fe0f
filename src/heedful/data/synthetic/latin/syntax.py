"""Noun phrases and clauses, written in Latin and in English.

A `Clause` holds the content of a sentence; an order of its slots is how Latin arranges it. The
English depends on the clause alone, so all word orders of a clause have the same translation.
Common nouns are definite in English, because Latin has no article to translate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from heedful.data.synthetic.latin.lexicon import (
    Adjective,
    Adverb,
    Noun,
    Preposition,
    Verb,
    Word,
    reading,
)
from heedful.data.synthetic.latin.morphology import (
    Case,
    Gender,
    Number,
    Person,
    Tense,
    declarative_verb_group,
    do_support_verb_group,
    with_indefinite_article,
)


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
def roles(readings: int) -> int:
    """Return the roles that the readings of a form allow."""
    return sum(
        role
        for role, numbers, case in _ROLES
        if any(readings & reading(gender, number, case) for gender in Gender for number in numbers)
    )


# --- phrases -------------------------------------------------------------------------------


class NounPhrase(NamedTuple):
    """A noun with an optional adjective and possessor: filius parvus reginae."""

    noun: Noun
    number: Number = Number.SINGULAR
    adjective: Adjective | None = None
    adjective_first: bool = False
    possessor: NounPhrase | None = None

    @property
    def person(self) -> Person:
        """The person of a verb with this subject."""
        return Person.THIRD

    @property
    def gender(self) -> Gender:
        """The gender of a predicate of this subject."""
        return self.noun.gender

    def latin(self, case: Case) -> list[Word]:
        """Return the Latin words; the possessor follows the possessed."""
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
        """Return the English, equal for subjects and objects."""
        if self.noun.is_name:
            return self.noun.lemma
        is_quantified = self.adjective is not None and self.adjective.is_quantifier
        return self.without_article() if is_quantified else f"the {self.without_article()}"

    def without_article(self) -> str:
        """Return the English without an article."""
        words = self.noun.english[self.number]
        if self.adjective:
            words = f"{self.adjective.english} {words}"
        return f"{words} of {self.possessor.english()}" if self.possessor else words

    def as_predicate(self) -> str:
        """Return the English after "is": a slave, the slave of the king."""
        return self.english() if self.possessor else with_indefinite_article(self.without_article())

    def roles(self, case: Case) -> int:
        """Return the roles that its spelling in this case allows, apart from its possessor."""
        readings = self.noun.words[self.number][case].readings
        if self.adjective:
            readings &= self._agreeing(self.adjective, case).readings
        return roles(readings)


class Coordination(NamedTuple):
    """Two noun phrases as one subject: servus et ancilla."""

    first: NounPhrase
    second: NounPhrase

    @property
    def person(self) -> Person:
        """The person of a verb with this subject."""
        return Person.THIRD

    @property
    def number(self) -> Number:
        """The number of a verb with this subject."""
        return Number.PLURAL

    @property
    def gender(self) -> Gender:
        """Feminine if both are, else masculine."""
        both_feminine = self.first.gender is self.second.gender is Gender.FEMININE
        return Gender.FEMININE if both_feminine else Gender.MASCULINE

    def latin(self, case: Case) -> list[Word]:
        """Return the Latin words."""
        return [*self.first.latin(case), Word("et"), *self.second.latin(case)]

    def english(self, *, is_subject: bool = False) -> str:
        """Return the English, equal for subjects and objects."""
        return f"{self.first.english()} and {self.second.english()}"

    def roles(self, case: Case) -> int:
        """Return the roles that both spellings allow, and always the plural subject."""
        shared = self.first.roles(case) & self.second.roles(case)
        return shared & (Role.OBJECT | Role.RECIPIENT) | Role.SUBJECT_PLURAL


_PRONOUN_CASES = (Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE)
_PRONOUN_ROLES = (Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL, Role.OBJECT, Role.RECIPIENT)


class Pronoun(NamedTuple):
    """A personal pronoun of the first or second person; a covert subject is not written."""

    person: Person
    number: Number
    forms: tuple[str, str, str]
    as_subject: str
    as_object: str
    is_overt: bool = True

    @property
    def gender(self) -> Gender:
        """The gender of a predicate of this subject."""
        return Gender.MASCULINE

    def latin(self, case: Case) -> list[Word]:
        """Return the Latin words."""
        return [Word(self.forms[_PRONOUN_CASES.index(case)])] if self.is_overt else []

    def english(self, *, is_subject: bool = False) -> str:
        """Return the English."""
        return self.as_subject if is_subject else self.as_object

    def roles(self, case: Case) -> int:
        """Return its actual role: the ending of the verb disambiguates nos and vos."""
        return _PRONOUN_ROLES[_PRONOUN_CASES.index(case)]


Argument: TypeAlias = NounPhrase | Coordination | Pronoun


class PrepositionalPhrase(NamedTuple):
    """A preposition and the noun phrase it governs: in horto."""

    preposition: Preposition
    phrase: NounPhrase

    def latin(self) -> list[Word]:
        """Return the Latin words."""
        return [self.preposition.latin, *self.phrase.latin(self.preposition.case)]

    def english(self) -> str:
        """Return the English."""
        return f"{self.preposition.english_before(self.phrase.noun)} {self.phrase.english()}"


# --- clauses -------------------------------------------------------------------------------

Slot = Literal[
    "question", "subject", "object", "recipient", "predicate", "place", "adverb", "verb", "caller"
]
Chunks = dict[Slot, list[Word]]


class Question(NamedTuple):
    """A question word and the slot of the clause that it replaces."""

    latin: str  # "-ne" is attached to the verb
    english: str
    questioned_slot: Slot | None = None
    expects_answer: bool = False  # "surely" precedes a statement, the others an inversion
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


class Clause(NamedTuple):
    """The content of a sentence."""

    verb: Verb
    subject: Argument | None  # None if "quis" replaces it
    tense: Tense = Tense.PRESENT
    object: Argument | None = None
    recipient: Argument | None = None
    predicate: NounPhrase | Adjective | None = None
    place: PrepositionalPhrase | None = None
    adverb: Adverb | None = None
    is_negated: bool = False
    question: Question | None = None
    is_command: bool = False
    addressee: NounPhrase | None = None  # in the vocative

    @property
    def person(self) -> Person:
        """The person of the verb."""
        return self.subject.person if self.subject else Person.THIRD

    @property
    def number(self) -> Number:
        """The number of the verb."""
        return self.subject.number if self.subject else Number.SINGULAR


def latin_slots(clause: Clause) -> Chunks:
    """Return the Latin words of every slot that is not empty."""
    question = clause.question.latin if clause.question else "-ne"
    slots: tuple[tuple[Slot, list[Word]], ...] = (
        ("question", [] if question == "-ne" else [Word(question)]),
        ("subject", clause.subject.latin(Case.NOMINATIVE) if clause.subject else []),
        ("object", clause.object.latin(Case.ACCUSATIVE) if clause.object else []),
        ("recipient", clause.recipient.latin(Case.DATIVE) if clause.recipient else []),
        ("predicate", _latin_predicate(clause)),
        ("place", clause.place.latin() if clause.place else []),
        ("adverb", [clause.adverb.latin] if clause.adverb else []),
        ("verb", _latin_verb(clause)),
        ("caller", clause.addressee.latin(Case.VOCATIVE) if clause.addressee else []),
    )
    return {slot: words for slot, words in slots if words}


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
    return [Word(form.text)]  # no readings: it belongs to the verb, not to a neighboring noun


def latin(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> str:
    """Return the Latin sentence with its slots in this order; an addressee is first or last."""
    body = _join(word for slot in order if slot != "caller" for word in chunks[slot])
    if clause.addressee:
        addressee = _join(chunks["caller"])
        body = f"{addressee}, {body}" if order[0] == "caller" else f"{body}, {addressee}"
    return _punctuate(body, clause)


def _join(words: Iterable[Word]) -> str:
    return " ".join([word.text for word in words])


def _punctuate(text: str, clause: Clause) -> str:
    mark = "?" if clause.question else "!" if clause.is_command else "."
    return f"{text[0].upper()}{text[1:]}{mark}"


def english(clause: Clause) -> str:
    """Return the English sentence."""
    words = _english_command(clause) if clause.is_command else _english_clause(clause)
    return _punctuate(" ".join(filter(None, words)), clause)


def _english_command(clause: Clause) -> list[str]:
    words = [clause.verb.english.base, *_complements(clause)]
    if not clause.addressee:
        return words
    noun = clause.addressee.noun
    name = noun.lemma if noun.is_name else clause.addressee.without_article()
    return [" ".join(filter(None, words)) + ",", name]


def _english_clause(clause: Clause) -> list[str]:
    question = clause.question
    is_negated = clause.is_negated or (question is not None and question.is_negative)
    is_inverted = question is not None and not (
        question.expects_answer or question.questioned_slot == "subject"
    )
    verb_group = do_support_verb_group if is_negated or is_inverted else declarative_verb_group
    auxiliary, main = verb_group(clause.verb.english, clause.tense, clause.person, clause.number)
    subject = clause.subject.english(is_subject=True) if clause.subject else ""
    return [
        question.english if question else "",
        *([auxiliary, subject] if is_inverted else [subject, auxiliary]),
        "not" if is_negated else "",
        clause.adverb.english if clause.adverb and clause.adverb.is_middle else "",
        main,
        *_complements(clause),
    ]


def _complements(clause: Clause) -> list[str]:
    words = []
    if clause.object:
        words.append(clause.object.english())
    if clause.recipient:
        words.append("to" if clause.verb.frame == "ditransitive" else "")
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

"""Noun phrases and clauses, written in Latin and in English; sentences with two readings.

A `Clause` holds the content of a sentence; an order of its slots is how Latin arranges it. The
English depends only on the clause, so all word orders of a clause have the same translation.
Common nouns are definite in English, because Latin has no article to translate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import permutations, product
from typing import Literal, NamedTuple, TypeAlias

from heedful.data.synthetic.latin.lexicon import (
    Adjective,
    Adverb,
    Noun,
    Preposition,
    Role,
    Verb,
    Word,
    allowed_roles,
    read_table,
)
from heedful.data.synthetic.latin.morphology import Case, Gender, Number, Person, Tense, verb_group


class NounPhrase(NamedTuple):
    """A noun with an optional adjective and possessor: filius parvus reginae."""

    noun: Noun
    number: Number = Number.SINGULAR
    adjective: Adjective | None = None
    adjective_first: bool = False
    possessor: NounPhrase | None = None

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

    def english(self) -> str:
        """Return the English, with "the" unless it is a name or has a quantifier."""
        is_quantified = self.adjective is not None and self.adjective.is_quantifier
        has_article = not (self.noun.is_name or is_quantified)
        return f"the {self.without_article()}" if has_article else self.without_article()

    def without_article(self) -> str:
        """Return the English without an article."""
        words = self.noun.english[self.number]
        if self.adjective:
            words = f"{self.adjective.english} {words}"
        return f"{words} of {self.possessor.english()}" if self.possessor else words

    def as_predicate(self) -> str:
        """Return the English after "is": a slave, an angry slave, the slave of the king."""
        if self.possessor:
            return self.english()
        words = self.without_article()
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"

    def roles(self, case: Case) -> int:
        """Return the roles that its spelling in this case allows, apart from its possessor."""
        readings = self.noun.words[self.number][case].readings
        if self.adjective:
            readings &= self._agreeing(self.adjective, case).readings
        return allowed_roles(readings)


class Coordination(NamedTuple):
    """Two noun phrases as one subject: servus et ancilla."""

    first: NounPhrase
    second: NounPhrase

    def latin(self, case: Case) -> list[Word]:
        """Return the Latin words."""
        return [*self.first.latin(case), Word("et"), *self.second.latin(case)]

    def english(self) -> str:
        """Return the English."""
        return f"{self.first.english()} and {self.second.english()}"

    def roles(self, case: Case) -> int:
        """Return the roles that both spellings allow, and always the plural subject."""
        shared = self.first.roles(case) & self.second.roles(case)
        return shared & (Role.OBJECT | Role.RECIPIENT) | Role.SUBJECT_PLURAL


_PRONOUN_ROLES = {
    Case.NOMINATIVE: Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL,
    Case.ACCUSATIVE: Role.OBJECT,
    Case.DATIVE: Role.RECIPIENT,
}


class Pronoun(NamedTuple):
    """A personal pronoun of the first or second person; a covert subject is not written."""

    person: Person
    number: Number
    forms: dict[Case, str]
    as_subject: str
    as_object: str
    is_overt: bool = True

    def latin(self, case: Case) -> list[Word]:
        """Return the Latin words."""
        return [Word(self.forms[case])] if self.is_overt else []

    def english(self) -> str:
        """Return the English of an object or recipient."""
        return self.as_object

    def roles(self, case: Case) -> int:
        """Return its actual role: the ending of the verb disambiguates nos and vos."""
        return _PRONOUN_ROLES[case]


@cache
def read_pronouns() -> tuple[Pronoun, ...]:
    """Return ego, tu, nos and vos."""
    persons = product(Number, (Person.FIRST, Person.SECOND))
    pronouns = []
    for (number, person), row in zip(persons, read_table("pronouns"), strict=True):
        *forms, as_subject, as_object = row
        by_case = dict(zip(_PRONOUN_ROLES, forms, strict=True))
        pronouns.append(Pronoun(person, number, by_case, as_subject, as_object))
    return tuple(pronouns)


Argument: TypeAlias = NounPhrase | Coordination | Pronoun


class PrepositionalPhrase(NamedTuple):
    """A preposition and the noun phrase it governs: in horto."""

    preposition: Preposition
    phrase: NounPhrase

    def latin(self) -> list[Word]:
        """Return the Latin words."""
        return [self.preposition.latin, *self.phrase.latin(self.preposition.case)]

    def english(self) -> str:
        """Return the English; "@" of the lexicon is "in" or "on"."""
        in_or_on = "on" if "on" in self.phrase.noun.tags else "in"
        return f"{self.preposition.english.replace('@', in_or_on)} {self.phrase.english()}"


_ArgumentSlot = Literal["subject", "object", "recipient", "predicate"]
Slot: TypeAlias = _ArgumentSlot | Literal["question", "place", "adverb", "verb", "addressee"]
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
        return self.subject.person if isinstance(self.subject, Pronoun) else Person.THIRD

    @property
    def number(self) -> Number:
        """The number of the verb."""
        if isinstance(self.subject, Coordination):
            return Number.PLURAL
        return self.subject.number if self.subject else Number.SINGULAR

    @property
    def gender(self) -> Gender:
        """The gender of a predicate: feminine for two feminine subjects, masculine for pronouns."""
        match self.subject:
            case NounPhrase(noun):
                return noun.gender
            case Coordination(first, second):
                if first.noun.gender is second.noun.gender is Gender.FEMININE:
                    return Gender.FEMININE
        return Gender.MASCULINE


def latin_slots(clause: Clause) -> Chunks:
    """Return the Latin words of each slot that is not empty."""
    question = clause.question.latin if clause.question else ""
    if clause.is_command:
        verb = [clause.verb.forms.imperatives[clause.number]]
    else:
        form = clause.verb.forms.finite[clause.tense][clause.number][clause.person]
        verb = [f"{form}ne"] if question == "-ne" else ["non"] * clause.is_negated + [form]
    if isinstance(clause.predicate, Adjective):
        form = clause.predicate.after[clause.gender][clause.number][Case.NOMINATIVE].text
        predicate = [Word(form)]  # no readings: it belongs to the verb, not to a neighboring noun
    else:
        predicate = clause.predicate.latin(Case.NOMINATIVE) if clause.predicate else []
    slots: tuple[tuple[Slot, list[Word]], ...] = (
        ("question", [Word(question)] if question not in ("", "-ne") else []),
        ("subject", clause.subject.latin(Case.NOMINATIVE) if clause.subject else []),
        ("object", clause.object.latin(Case.ACCUSATIVE) if clause.object else []),
        ("recipient", clause.recipient.latin(Case.DATIVE) if clause.recipient else []),
        ("predicate", predicate),
        ("place", clause.place.latin() if clause.place else []),
        ("adverb", [clause.adverb.latin] if clause.adverb else []),
        ("verb", [Word(form) for form in verb]),
        ("addressee", clause.addressee.latin(Case.VOCATIVE) if clause.addressee else []),
    )
    return {slot: words for slot, words in slots if words}


def latin(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> str:
    """Return the Latin sentence with its slots in this order; an addressee is first or last."""
    body = " ".join(word.text for slot in order if slot != "addressee" for word in chunks[slot])
    if clause.addressee:
        addressee = " ".join(word.text for word in chunks["addressee"])
        body = f"{addressee}, {body}" if order[0] == "addressee" else f"{body}, {addressee}"
    return _punctuate(body, clause)


def _punctuate(text: str, clause: Clause) -> str:
    mark = "?" if clause.question else "!" if clause.is_command else "."
    return f"{text[0].upper()}{text[1:]}{mark}"


def english(clause: Clause) -> str:
    """Return the English sentence."""
    if clause.is_command:
        text = _join(clause.verb.english.base, *_complements(clause))
        if clause.addressee:
            text = f"{text}, {clause.addressee.without_article()}"
        return _punctuate(text, clause)
    question, subject = clause.question, clause.subject
    is_negated = clause.is_negated or (question is not None and question.is_negative)
    is_inverted = question is not None and not (
        question.expects_answer or question.questioned_slot == "subject"
    )
    agreement = clause.tense, clause.person, clause.number
    needs_auxiliary = is_negated or is_inverted
    auxiliary, main = verb_group(clause.verb.english, *agreement, needs_auxiliary=needs_auxiliary)
    if isinstance(subject, Pronoun):
        subject_text = subject.as_subject
    else:
        subject_text = subject.english() if subject else ""
    text = _join(
        question.english if question else "",
        *([auxiliary, subject_text] if is_inverted else [subject_text, auxiliary]),
        "not" if is_negated else "",
        clause.adverb.english if clause.adverb and clause.adverb.is_middle else "",
        main,
        *_complements(clause),
    )
    return _punctuate(text, clause)


def _join(*words: str) -> str:
    return " ".join(filter(None, words))


def _complements(clause: Clause) -> Iterable[str]:
    if clause.object:
        yield clause.object.english()
    if clause.recipient:
        yield "to" if clause.verb.frame == "ditransitive" else ""
        yield clause.recipient.english()
    if isinstance(clause.predicate, NounPhrase):
        yield clause.predicate.as_predicate()
    elif clause.predicate:
        yield clause.predicate.english
    if clause.place:
        yield clause.place.english()
    if clause.adverb and not clause.adverb.is_middle:
        yield clause.adverb.english


# ----- sentences with two readings
#
# Latin marks by endings what English marks by order, and endings coincide: reges is subject or
# object, puellae is genitive, dative or plural. A sentence is kept only if no other reading fits:
#
# - arguments may swap roles: "reges cives vident";
# - a possessor and an argument may: "libros servi puellae vident";
# - an adjective may belong to the noun on its other side: "servum magnum animal videt";
# - a coordinated subject may be singular or plural: feles is one cat or several.
#
# The list is complete because verbs have all their arguments, third-person subjects are overt,
# prepositions fix the case of what they govern, and no form belongs to two words of the lexicon.


def is_ambiguous(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> bool:
    """Whether another reading fits the same words in the same order."""
    subject_role = (Role.SUBJECT_SINGULAR, Role.SUBJECT_PLURAL)[clause.number]
    arguments = (
        (clause.subject, Case.NOMINATIVE, subject_role),
        (clause.object, Case.ACCUSATIVE, Role.OBJECT),
        (clause.recipient, Case.DATIVE, Role.RECIPIENT),
    )
    intended = [role for argument, _, role in arguments if argument]
    allowed = [argument.roles(case) for argument, case, _ in arguments if argument]
    return (
        _can_swap_roles(allowed, intended)
        or _is_possessor_ambiguous(clause, allowed)
        or _is_adjective_ambiguous([word for slot in order for word in chunks[slot]])
        or _is_number_ambiguous(clause)
    )


def _can_swap_roles(allowed: Sequence[int], intended: Sequence[int]) -> bool:
    roles = list(zip(allowed, intended, strict=True))
    if sum(bool(allowed & sum(intended) & ~role) for allowed, role in roles) < 2:
        return False
    return any(
        all(allowed & role for allowed, role in zip(permuted, intended, strict=True))
        for permuted in list(permutations(allowed))[1:]
    )


def _is_possessor_ambiguous(clause: Clause, allowed: Sequence[int]) -> bool:
    place = clause.place.phrase if clause.place else None
    phrases = (clause.subject, clause.object, clause.recipient, clause.predicate, place)
    possessors = [phrase.possessor for phrase in phrases if isinstance(phrase, NounPhrase)]
    if not any(owner and owner.roles(Case.GENITIVE) & Role.ARGUMENT for owner in possessors):
        return False
    if isinstance(clause.predicate, NounPhrase):
        allowed = [*allowed, clause.predicate.roles(Case.NOMINATIVE)]
    return any(roles & Role.POSSESSOR for roles in allowed)


def _is_adjective_ambiguous(words: Sequence[Word]) -> bool:
    for position, word in enumerate(words):
        other = position - word.noun_offset
        if word.noun_offset and 0 <= other < len(words):
            neighbor = words[other]
            if not neighbor.noun_offset and word.readings & neighbor.readings:
                return True
    return False


def _is_number_ambiguous(clause: Clause) -> bool:
    # A coordinated subject takes a plural verb, which does not show the number of its parts.
    if not isinstance(clause.subject, Coordination):
        return False
    either = Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL
    return any(phrase.roles(Case.NOMINATIVE) & either == either for phrase in clause.subject)

"""Sentences: how do words become a Latin sentence and its English?

A clause says what is meant; an order of its slots says how Latin arranges it. The English
depends on the clause alone, so every order of one clause has the same translation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from heedful.data.synthetic.latin.english import statement_group, supported_group
from heedful.data.synthetic.latin.lexicon import Adjective, Adverb, Verb
from heedful.data.synthetic.latin.phrases import Argument, NounPhrase, PlacePhrase
from heedful.data.synthetic.latin.terms import Case, Gender, Number, Person, Tense, Word

Slot = Literal[
    "question", "subject", "object", "recipient", "predicate", "place", "adverb", "verb", "caller"
]
Chunks = dict[Slot, list[Word]]


class Question(NamedTuple):
    """How a question is asked: its first word, and what of the clause that word stands for."""

    latin: str  # "-ne" is hung on the verb
    english: str
    fills: Slot | None = None
    is_surely: bool = False  # "surely" goes before a statement, the others before an inversion
    is_negative: bool = False


QUESTIONS = {
    question.latin: question
    for question in (
        Question("-ne", ""),
        Question("num", "surely", is_surely=True, is_negative=True),
        Question("nonne", "surely", is_surely=True),
        Question("quis", "who", fills="subject"),
        Question("quem", "whom", fills="object"),
        Question("quid", "what", fills="object"),
        Question("cui", "to whom", fills="recipient"),
        Question("ubi", "where", fills="place"),
        Question("cur", "why"),
        Question("quando", "when"),
    )
}


class Clause(NamedTuple):
    """What a sentence says: who does what to whom, when, where, and in which mood."""

    verb: Verb
    subject: Argument | None  # None where "quis" asks for it
    tense: Tense = Tense.PRESENT
    object: Argument | None = None
    recipient: Argument | None = None
    predicate: NounPhrase | Adjective | None = None
    place: PlacePhrase | None = None
    adverb: Adverb | None = None
    is_negated: bool = False
    question: Question | None = None
    is_command: bool = False
    caller: NounPhrase | None = None  # whoever is called on, in the vocative

    @property
    def person(self) -> Person:
        """The person of the verb."""
        return self.subject.person if self.subject else Person.THIRD

    @property
    def number(self) -> Number:
        """The number of the verb."""
        return self.subject.number if self.subject else Number.SINGULAR


# --- Latin ---------------------------------------------------------------------------------


def latin_chunks(clause: Clause) -> Chunks:
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
        ("caller", _latin_argument(clause.caller, Case.VOCATIVE)),
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
    if clause.caller:
        caller = _spell(chunks["caller"])
        body = f"{caller}, {body}" if order[0] == "caller" else f"{body}, {caller}"
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
    if not clause.caller:
        return words
    caller = clause.caller
    called = caller.noun.lemma if caller.noun.is_name else caller.undetermined()
    return [" ".join(filter(None, words)) + ",", called]


def _english_clause(clause: Clause) -> list[str]:
    question = clause.question
    asked = question.english if question else ""
    is_negated = clause.is_negated or (question is not None and question.is_negative)
    is_inverted = question is not None and not (question.is_surely or question.fills == "subject")
    say = supported_group if is_negated or is_inverted else statement_group
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
        words.append(clause.predicate.predicated())
    elif clause.predicate:
        words.append(clause.predicate.english)
    if clause.place:
        words.append(clause.place.english())
    if clause.adverb and not clause.adverb.is_middle:
        words.append(clause.adverb.english)
    return words

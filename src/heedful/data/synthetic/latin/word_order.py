"""Word order: how does Latin arrange what it says?

Freely, with habits: a question word first, the subject early, the verb late, -ne on a verb that
opens. A statement opens with its verb only in the form the dictionary gives: "amo puellam".
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from heedful.data.synthetic.latin.sentences import Clause, Slot
from heedful.data.synthetic.latin.terms import Number, Person, Tense

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

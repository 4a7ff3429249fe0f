"""Detection of Latin sentences that have two readings.

Latin marks by endings what English marks by order, and endings coincide: reges is subject or
object, puellae is genitive, dative or plural. A sentence is kept only if no other reading fits:

- arguments may swap roles: "reges cives vident";
- a possessor and an argument may: "libros servi puellae vident";
- an adjective may belong to the noun on its other side: "servum magnum animal videt";
- a coordinated subject may be singular or plural: feles is one cat or several.

The list is complete because verbs have all their arguments, third-person subjects are overt,
prepositions fix the case of what they govern, and no form belongs to two words of the lexicon.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from heedful.data.synthetic.latin.lexicon import Word
from heedful.data.synthetic.latin.morphology import Case, Number
from heedful.data.synthetic.latin.syntax import (
    Argument,
    Chunks,
    Clause,
    Coordination,
    NounPhrase,
    Role,
    Slot,
)


class _ArgumentRoles(NamedTuple):
    allowed: int  # by the spelling
    intended: int


def is_ambiguous(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> bool:
    """Whether another reading fits the same words in the same order."""
    arguments = _arguments(clause)
    return (
        _can_swap_roles(arguments)
        or _is_possessor_ambiguous(clause, arguments)
        or _is_adjective_ambiguous([word for slot in order for word in chunks[slot]])
        or _is_number_ambiguous(clause.subject)
    )


def _arguments(clause: Clause) -> list[_ArgumentRoles]:
    arguments = []
    if clause.subject:
        is_plural = clause.subject.number is Number.PLURAL
        intended = Role.SUBJECT_PLURAL if is_plural else Role.SUBJECT_SINGULAR
        arguments.append(_ArgumentRoles(clause.subject.roles(Case.NOMINATIVE), intended))
    if clause.object:
        arguments.append(_ArgumentRoles(clause.object.roles(Case.ACCUSATIVE), Role.OBJECT))
    if clause.recipient:
        arguments.append(_ArgumentRoles(clause.recipient.roles(Case.DATIVE), Role.RECIPIENT))
    return arguments


def _can_swap_roles(arguments: Sequence[_ArgumentRoles]) -> bool:
    intended = [argument.intended for argument in arguments]
    movable = [each for each in arguments if each.allowed & sum(intended) & ~each.intended]
    if len(movable) < 2:
        return False
    return any(
        all(allowed & role for allowed, role in zip(permuted, intended, strict=True))
        for permuted in list(permutations(argument.allowed for argument in arguments))[1:]
    )


def _is_possessor_ambiguous(clause: Clause, arguments: Sequence[_ArgumentRoles]) -> bool:
    place = clause.place.phrase if clause.place else None
    phrases = (clause.subject, clause.object, clause.recipient, clause.predicate, place)
    possessors = [
        phrase.possessor
        for phrase in phrases
        if isinstance(phrase, NounPhrase) and phrase.possessor
    ]
    if not any(phrase.roles(Case.GENITIVE) & Role.ARGUMENT for phrase in possessors):
        return False
    allowed = [argument.allowed for argument in arguments]
    if isinstance(clause.predicate, NounPhrase):
        allowed.append(clause.predicate.roles(Case.NOMINATIVE))
    return any(roles & Role.POSSESSOR for roles in allowed)


def _is_adjective_ambiguous(words: Sequence[Word]) -> bool:
    for position, word in enumerate(words):
        other = position - word.noun_offset
        if word.noun_offset and 0 <= other < len(words):
            neighbor = words[other]
            if not neighbor.noun_offset and word.readings & neighbor.readings:
                return True
    return False


def _is_number_ambiguous(subject: Argument | None) -> bool:
    # A coordinated subject takes a plural verb, which does not show the number of its parts.
    if not isinstance(subject, Coordination):
        return False
    either = Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL
    return any(phrase.roles(Case.NOMINATIVE) & either == either for phrase in subject)

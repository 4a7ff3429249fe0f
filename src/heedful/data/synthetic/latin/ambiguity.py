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

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from heedful.data.synthetic.latin.phrases import Argument, Joined, NounPhrase
from heedful.data.synthetic.latin.sentences import Chunks, Clause, Slot
from heedful.data.synthetic.latin.terms import Case, Number, Role, Word


class _Standing(NamedTuple):
    """An argument: the roles its letters allow, and the one it has."""

    allowed: int
    meant: int


def is_ambiguous(clause: Clause, chunks: Chunks, order: Sequence[Slot]) -> bool:
    """Say whether another reading fits the same words in the same order."""
    standing = _arguments(clause)
    return (
        _can_change_places(standing)
        or _is_owner_doubtful(clause, standing)
        or _is_adjective_astray([word for slot in order for word in chunks[slot]])
        or _is_number_open(clause.subject)
    )


def _arguments(clause: Clause) -> list[_Standing]:
    standing = []
    if clause.subject:
        is_plural = clause.subject.number is Number.PLURAL
        meant = Role.SUBJECT_PLURAL if is_plural else Role.SUBJECT_SINGULAR
        standing.append(_Standing(clause.subject.roles(Case.NOMINATIVE), meant))
    if clause.object:
        standing.append(_Standing(clause.object.roles(Case.ACCUSATIVE), Role.OBJECT))
    if clause.recipient:
        standing.append(_Standing(clause.recipient.roles(Case.DATIVE), Role.RECIPIENT))
    return standing


def _can_change_places(standing: Sequence[_Standing]) -> bool:
    if len(standing) < 2:
        return False
    meant = [argument.meant for argument in standing]
    movable = [each for each in standing if each.allowed & sum(meant) & ~each.meant]
    if len(movable) < 2:
        return False
    others = list(permutations(argument.allowed for argument in standing))[1:]
    return any(
        all(allowed & role for allowed, role in zip(other, meant, strict=True)) for other in others
    )


def _is_owner_doubtful(clause: Clause, standing: Sequence[_Standing]) -> bool:
    place = clause.place.phrase if clause.place else None
    phrases = (clause.subject, clause.object, clause.recipient, clause.predicate, place)
    owners = [each.owner for each in phrases if isinstance(each, NounPhrase) and each.owner]
    if not any(owner.roles(Case.GENITIVE) & Role.ALONE for owner in owners):
        return False
    allowed = [argument.allowed for argument in standing]
    if isinstance(clause.predicate, NounPhrase):
        allowed.append(clause.predicate.roles(Case.NOMINATIVE))
    return any(roles & Role.OWNER for roles in allowed)


def _is_adjective_astray(words: Sequence[Word]) -> bool:
    for position, word in enumerate(words):
        if word.noun_at:
            other = position - word.noun_at
            if 0 <= other < len(words) and _could_agree(word, words[other]):
                return True
    return False


def _could_agree(adjective: Word, neighbour: Word) -> bool:
    return not neighbour.noun_at and bool(adjective.readings & neighbour.readings)


def _is_number_open(subject: Argument | None) -> bool:
    """Joined subjects take a plural verb, which does not tell feles (a cat) from feles (cats)."""
    if not isinstance(subject, Joined):
        return False
    either = Role.SUBJECT_SINGULAR | Role.SUBJECT_PLURAL
    return any(each.roles(Case.NOMINATIVE) & either == either for each in subject)

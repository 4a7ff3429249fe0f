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

from collections.abc import Sequence
from itertools import permutations

from heedful.data.synthetic.latin.lexicon import Word
from heedful.data.synthetic.latin.morphology import Case
from heedful.data.synthetic.latin.syntax import Chunks, Clause, Coordination, NounPhrase, Role, Slot


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

"""By kind: which kinds of sentences go wrong?

What kinds a source has is told by a function of it, or by labels that somebody wrote. The kinds
told here are told by signs that need no knowledge of a language; a source may have several, and is
plain if it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from heedful.evaluation.by_rarity import words
from heedful.evaluation.groups import Group, Measuring, by_group
from heedful.evaluation.measures import References

Kinds = Callable[[str], Sequence[str]]
"""Tells what kinds a source has."""

KINDS = ("question", "digits", "name", "plain")

_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")  # also full-width, Arabic and Greek
_CLOSING = " \"')]\u201c\u201d\u2019\u00bb\u00ab"


def kinds_of(source: str, known: Container[str] = ()) -> list[str]:
    """Tell whether a source asks, has digits, or has a name.

    A name is a word with a capital letter, not the first of the text, that is not among those that
    are known: the words of the training text, say. Where nouns have capital letters, they count
    unless they are known.
    """
    later = [word for word in words(source) if word[0].isalnum()][1:]
    signs = {
        "question": source.rstrip(_CLOSING).endswith(_QUESTION_MARKS),
        "digits": any(character.isdigit() for character in source),
        "name": any(word[0].isupper() and word not in known for word in later),
    }
    return [kind for kind, is_so in signs.items() if is_so] or ["plain"]


def by_kind(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    *,
    kinds: Kinds = kinds_of,
    least: int = 1,
) -> list[Group]:
    """Measure outputs by the kinds of their sources; one is measured in each kind that it has."""
    found = [kinds(source) for source in sources]
    order = KINDS if kinds is kinds_of else ()
    return by_group(found, outputs, references, measure, order=order, least=least)


def by_label(
    labels: Sequence[str],
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    *,
    least: int = 1,
) -> list[Group]:
    """Measure outputs by labels, of which each has one; an empty label is no group."""
    found = [[label] if label else [] for label in map(str.strip, labels)]
    return by_group(found, outputs, references, measure, least=least)

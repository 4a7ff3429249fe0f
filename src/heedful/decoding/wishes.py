"""Wishes: which of them can no output of a text fulfil?"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.decoding.forbidding import holds
from heedful.decoding.phrasing import alternatives
from heedful.decoding.requests import Phrases, Request
from heedful.errors import DataError
from heedful.search import Must
from heedful.search.phrases import Duties
from heedful.text.normalisation import Normalisation


def refuse_wishes_of_given(request: Request, *, at: str) -> None:
    """An output that is given cannot be changed."""
    if request.prefix or request.must or request.never:
        raise DataError(
            at,
            "its output is given, and nothing can be wished of it",
            "leave out prefix, must and never, or the target",
        )


def refuse_empty(request: Request, *, at: str) -> None:
    """A phrase without text is in every output."""
    required = [alternatives(each) for each in request.must]
    is_empty = not all(phrases and all(map(str.strip, phrases)) for phrases in required)
    if is_empty or not all(map(str.strip, request.never)):
        raise DataError(at, "an empty phrase says nothing", "leave it out")


def refuse_contradictions(
    must: Phrases, never: Sequence[str], prefix: str, *, normalise: Normalisation, at: str
) -> None:
    """Nothing can be said without saying what is part of it."""
    wanted = [alternatives(each) for each in must] + ([(prefix,)] if prefix else [])
    for phrase in never:
        for each in wanted:
            if all(holds(normalise(text), normalise(phrase).strip()) for text in each):
                raise DataError(
                    at,
                    f"{each[0]!r} is to be said, and {phrase!r} never",
                    "leave out one of them",
                )


def refuse_too_much(prefix: Sequence[int], musts: Sequence[Must], *, most: int, at: str) -> None:
    """All that an output must say has to fit into it."""
    duties = Duties(musts)
    progress = duties.begin()
    for token in prefix:
        progress = duties.advance(progress, token)
    needed = len(prefix) + duties.missing(progress)
    if needed > most:
        raise DataError(
            at,
            f"what its output must say takes {needed} tokens, and it may have {most}",
            "ask for less, or raise decoding.max_output_extra and decoding.max_output_tokens",
        )

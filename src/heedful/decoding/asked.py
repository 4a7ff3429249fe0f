"""What is asked: a request as a model understands it, in tokens.

Law: what cannot be kept to is refused before anything is decoded, by the number of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from heedful.decoding.config import DecodingConfig
from heedful.decoding.forbidding import NeverText, Spelled
from heedful.decoding.phrasing import cut_musts, cut_prefix
from heedful.decoding.requests import Request
from heedful.decoding.unknowns import refuse_without_words
from heedful.decoding.wishes import (
    refuse_contradictions,
    refuse_empty,
    refuse_too_much,
    refuse_wishes_of_given,
)
from heedful.errors import ConfigError, DataError
from heedful.search import Must, Rule
from heedful.text.config import TextPair


class Asked(NamedTuple):
    """A text and what its output must be like."""

    request: Request
    number: int  # of the text among all that are translated; what is drawn depends on it
    source: list[int]  # tokens, without the end
    least: int  # tokens of the output
    most: int
    prefix: Sequence[int] = ()
    musts: Sequence[Must] = ()
    never: Rule | None = None
    target: list[int] | None = None  # what is to be judged, if anything is

    @property
    def is_nothing(self) -> bool:
        """Whether the text is empty, and nothing is wished of its output."""
        return not self.source and self.request.is_free


class Asking:
    """Turns requests into tokens, by settings that hold for all of them."""

    def __init__(self, text: TextPair, settings: DecodingConfig) -> None:
        self.text = text
        self.settings = settings
        if settings.unknowns == "copy":
            refuse_without_words(text.target)
        self._never = NeverText(settings.never, self._spelled) if settings.never else None
        self._musts = self._musts_of_settings()

    def ask(self, requests: Sequence[Request], *, origin: str, first: int) -> list[Asked]:
        """Understand requests, numbered from `first`."""
        sources = self.text.source.encode_all([request.text for request in requests])
        return [
            self._ask(request, source, number, at=f"{origin}:{number}")
            for number, (request, source) in enumerate(
                zip(requests, sources, strict=True), start=first
            )
        ]

    def _ask(self, request: Request, source: list[int], number: int, *, at: str) -> Asked:
        self._refuse_too_long(len(source), at)
        least, most = self._lengths(len(source) + 1)
        if request.target is not None:
            refuse_wishes_of_given(request, at=at)
            target = self.text.target.encode(request.target)
            return Asked(request, number, source, least, most, target=target)
        asked = self._with_wishes(Asked(request, number, source, least, most), at=at)
        if not asked.is_nothing:
            refuse_too_much(asked.prefix, asked.musts, most=most, at=at)
        return asked

    def _with_wishes(self, asked: Asked, *, at: str) -> Asked:
        request, target = asked.request, self.text.target
        if not (request.prefix or request.must or request.never):
            return asked._replace(musts=self._musts, never=self._never)
        self._refuse_wishes(request, at)
        never = (*self.settings.never, *request.never)
        return asked._replace(
            prefix=cut_prefix(target, request.prefix, at=at),
            musts=[*self._musts, *cut_musts(target, request.must, at=at)],
            never=NeverText(never, self._spelled) if request.never else self._never,
        )

    def _musts_of_settings(self) -> list[Must]:
        must, never, target = self.settings.must, self.settings.never, self.text.target
        try:
            refuse_contradictions(must, never, "", normalise=target.normalise, at="decoding.must")
            return cut_musts(target, must, at="decoding.must")
        except DataError as error:  # what is wrong is a setting, and no text
            raise ConfigError(error.at, error.problem, error.remedy) from None

    def _lengths(self, source: int) -> tuple[int, int]:
        """The shortest and the longest output of a source of so many tokens, its end counted.

        What is longest by ratio gives way to what is shortest, and both to `max_output_tokens`.
        """
        settings = self.settings
        least = max(settings.min_output_tokens, int(source * settings.min_output_ratio))
        most = int(source * settings.max_output_ratio + settings.max_output_extra)
        cap = settings.max_output_tokens or max(least, most)
        return min(least, cap), min(max(least, most), cap)

    def _refuse_wishes(self, request: Request, at: str) -> None:
        settings = self.settings
        refuse_empty(request, at=at)
        if request.must and (drawing := settings.drawing):
            raise DataError(
                at,
                f"only a beam can say what it must, and outputs are drawn (decoding.{drawing})",
                f"ask for nothing that must be said, or set decoding.{drawing} to null",
            )
        refuse_contradictions(
            [*settings.must, *request.must],
            [*settings.never, *request.never],
            request.prefix,
            normalise=self.text.target.normalise,
            at=at,
        )

    def _refuse_too_long(self, length: int, at: str) -> None:
        limit = self.settings.max_source_tokens
        if length > limit:
            raise DataError(
                at,
                f"the text has {length} tokens, and this model takes at most {limit}",
                "split the text into sentences, or raise the limit with "
                "--set decoding.max_source_tokens=N",
            )

    @cached_property
    def _spelled(self) -> Spelled:
        return Spelled(self.text.target)

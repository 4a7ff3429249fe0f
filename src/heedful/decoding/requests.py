"""Requests: what is wanted of the output of one text?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Phrases = Sequence[str | Sequence[str]]
"""Texts, each a phrase; a list among them stands for one of several."""


class Request(NamedTuple):
    """A text to be translated, and what its output is to be like, beside the settings."""

    text: str
    prefix: str = ""  # what the output begins with
    must: Phrases = ()  # what it contains
    never: Sequence[str] = ()  # what it does not
    target: str | None = None  # the output itself, which is then judged and not searched for

    @property
    def is_free(self) -> bool:
        """Whether nothing is said of what the output holds."""
        return not self.prefix and not self.must and self.target is None


def as_request(text: str | Request) -> Request:
    """Let a plain text stand for a request without wishes."""
    return Request(text) if isinstance(text, str) else text

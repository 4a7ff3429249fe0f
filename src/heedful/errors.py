"""Errors that a user can act on.

Each message has a location, what was found and a remedy. The command line prints it without
a traceback and exits with `exit_code`: 2 where the user can fix the cause, 1 where data is lost.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Self

MAX_CHOICES = 12
"""More names than this are not listed in an error."""
NUM_NEAREST = 6
# Control characters, those that turn the direction of writing, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class HeedfulError(Exception):
    """Base class of all errors with a message for the user."""

    exit_code = 2

    def __init__(self, location: str, message: str, hint: str) -> None:
        location = shorten(printable(location)).replace("\n", "\\n")
        message, hint = shorten(printable(message)), shorten(printable(hint), 1800)
        super().__init__(f"{location}: {message}\n  {hint}")
        self.location, self.message, self.hint = location, message, hint

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return type(self), (self.location, self.message, self.hint)


class ConfigError(HeedfulError):
    """A setting that cannot be used."""


class ArgumentError(HeedfulError, ValueError):
    """An argument in Python that cannot be used."""


class DataError(HeedfulError):
    """Data that cannot be used."""


class RunError(HeedfulError):
    """A run folder that cannot be used as it is, but can be repaired."""


class CorruptRunError(HeedfulError):
    """A run folder whose contents are lost or altered."""

    exit_code = 1


class StorageError(HeedfulError):
    """A disk or folder that cannot be read or written."""


class DiskFullError(StorageError):
    """A disk without enough free space."""


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: "1 image", "1,200 images"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Escape characters that a terminal would obey, as in file names from elsewhere."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shorten(text: str, max_length: int = 600) -> str:
    """Return a text, or its start and end if it would fill the screen."""
    if len(text) + 80 * text.count("\n") <= max_length:
        return text
    line, half = text.replace("\n", " "), max_length // 2
    return line if len(line) <= max_length else f"{line[:half]} ... {line[-half:]}"


def check(
    condition: object,
    location: str,
    message: str,
    hint: str,
    error: type[HeedfulError] = ConfigError,
) -> None:
    """Raise an error unless the condition holds."""
    if not condition:
        raise error(location, message, hint)


def check_choice(
    name: str,
    allowed: Iterable[str],
    category: str,
    *,
    location: str,
    error: type[HeedfulError] = ConfigError,
) -> None:
    """Raise an error that suggests the nearest allowed name unless the name is allowed."""
    allowed = list(allowed)
    message = f"no {category} is called {name!r}{did_you_mean(name, allowed)}"
    check(name in allowed, location, message, choices_hint(allowed), error)


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest allowed name, or "" if none is near."""
    near = get_close_matches(name, sorted(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def quote_names(names: Iterable[str]) -> str:
    """Return names from data in quotation marks, as they may contain spaces and commas."""
    return ", ".join(map(repr, names)) or "none"


def choices_hint(allowed: Iterable[str], *, name: str = "", listing: str = "") -> str:
    """Return a hint with the allowed names.

    Of many names it has those that are like `name`, and the command that lists all (`listing`).
    """
    names = sorted(allowed)
    if not listing or len(names) <= MAX_CHOICES:
        return f"choose from: {', '.join(names)}"
    containing = [other for other in names if name and name in other]
    near = [*containing, *get_close_matches(name, names, n=len(names), cutoff=0.5)]
    nearest = list(dict.fromkeys(near))[:NUM_NEAREST]
    return "; ".join([*(["choose from: " + ", ".join(nearest)] if nearest else []), listing])

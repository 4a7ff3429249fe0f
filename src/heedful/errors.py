"""Errors: what went wrong that a user can understand, and what to do about it.

Every message says where, what was found and what to do next. The command line prints it
without a traceback and exits with `exit_code`: 2 where the user can mend the cause, 1 where
nothing can be mended.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HeedfulError(Exception):
    """Base of every error heedful raises on purpose."""

    exit_code = 2

    def __init__(self, location: str, message: str, hint: str) -> None:
        super().__init__(f"{location}: {message}\n  {hint}")
        self.location = location
        self.message = message
        self.hint = hint


class ConfigError(HeedfulError):
    """A setting that cannot be used."""


class DataError(HeedfulError):
    """Text or data that cannot be used."""


class RunError(HeedfulError):
    """A run folder that cannot be used as it stands, but can be mended."""


class CorruptRunError(HeedfulError):
    """A run folder whose contents are lost or altered."""

    exit_code = 1


class StorageError(HeedfulError):
    """A disk or a folder that cannot be written or read."""


class DiskFullError(StorageError):
    """A disk without room for what is to be written."""


def check(
    condition: object,
    location: str,
    message: str,
    hint: str,
    error: type[HeedfulError] = ConfigError,
) -> None:
    """Raise an error that a user can act on unless the condition holds."""
    if not condition:
        raise error(location, message, hint)


def did_you_mean(got: str, allowed: Iterable[str]) -> str:
    """Name the nearest allowed word as the end of a sentence, or nothing if none is near."""
    near = get_close_matches(got, sorted(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def choices_hint(allowed: Iterable[str]) -> str:
    """List what is allowed, as a remedy."""
    return f"choose from: {', '.join(sorted(allowed))}"

"""Refusals: which settings of decoding cannot be kept to together?

A setting at its default is never refused. Each refusal names the setting, the reason, and what to
do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.config import DecodingConfig


def refuse_what_cannot_be(settings: DecodingConfig) -> None:
    """Refuse the first thing that does not go with the others."""
    for problem in _problems(settings):
        raise problem


def _problems(settings: DecodingConfig) -> Iterator[ConfigError]:
    yield from _of_counts(settings)
    if settings.drawing:
        yield from _of_drawing(settings, settings.drawing)
    else:
        yield from _of_beams(settings)
    yield from _of_lengths(settings)
    yield from _of_phrases(settings)
    if settings.dictionary and settings.unknowns == "keep":
        yield ConfigError(
            "decoding.dictionary",
            "it says what unknown words become, but decoding.unknowns keeps them",
            "set decoding.unknowns to copy, or leave the dictionary out",
        )


def _of_counts(settings: DecodingConfig) -> Iterator[ConfigError]:
    for name, count in (("beam", settings.beam), ("nbest", settings.nbest)):
        if count < 1:
            yield ConfigError(f"decoding.{name}", f"cannot be {count}", "give 1 or more")


def _of_drawing(settings: DecodingConfig, why: str) -> Iterator[ConfigError]:
    """Name what only a beam can do, where outputs are drawn."""
    only_of_beams = {
        "diversity.groups": settings.diversity.groups > 1,
        "coverage": settings.coverage is not None,
        "stopping": settings.stopping.kind != "settled",
        "must": bool(settings.must),
    }
    for name, is_set in only_of_beams.items():
        if is_set:
            yield ConfigError(
                f"decoding.{name}",
                f"only a beam can keep to it, and outputs are drawn (decoding.{why} is set)",
                f"leave it out, or set decoding.{why} to null",
            )
    if settings.consensus and settings.nbest > 1:
        yield ConfigError(
            "decoding.nbest",
            f"{settings.nbest} outputs are wanted, but a consensus is one "
            "(decoding.consensus is set)",
            "set nbest to 1, or set decoding.consensus to null",
        )


def _of_beams(settings: DecodingConfig) -> Iterator[ConfigError]:
    beam, groups = settings.beam, settings.diversity.groups
    if settings.nbest > beam:
        yield ConfigError(
            "decoding.nbest",
            f"{settings.nbest} outputs are wanted, but a beam of {beam} finds at most {beam}",
            f"set decoding.beam to {settings.nbest} or more, or nbest to {beam} or less",
        )
    if beam % groups:
        yield ConfigError(
            "decoding.diversity.groups",
            f"a beam of {beam} cannot be shared by {groups} groups",
            "choose a number of groups that divides decoding.beam",
        )


def _of_lengths(settings: DecodingConfig) -> Iterator[ConfigError]:
    least, most = settings.min_output_tokens, settings.max_output_tokens
    if most is not None and least > most:
        yield ConfigError(
            "decoding.min_output_tokens",
            f"outputs are to have at least {least} tokens and may have {most}",
            "lower it, or raise decoding.max_output_tokens",
        )


def _of_phrases(settings: DecodingConfig) -> Iterator[ConfigError]:
    required = [(each,) if isinstance(each, str) else each for each in settings.must]
    is_empty = {
        "must": not all(phrases and all(map(str.strip, phrases)) for phrases in required),
        "never": not all(map(str.strip, settings.never)),
    }
    for name in (name for name, is_so in is_empty.items() if is_so):
        yield ConfigError(f"decoding.{name}", "an empty phrase says nothing", "leave it out")

"""Choices: what a setting may be, and which choice a piece of settings speaks of.

A choice that belongs to a family has a `kind`; families stand in fields and in lists of
fields, and a choice may hold others. The functions below read that structure off the types, so
it is written down once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict

Settings = dict[str, Any]
Path = tuple[str | int, ...]


class Choice(BaseModel):
    """One choice with its settings; subclasses know how to `build` what they describe."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def assuming(kind: str) -> BeforeValidator:
    """Let a section that says no kind be of this one, which must come first in its family."""
    return BeforeValidator(lambda said: {"kind": kind, **said} if isinstance(said, dict) else said)


def naming(schema: Any) -> BeforeValidator:
    """Let a bare word stand for the choice of that kind with its defaults; `schema` has both."""
    return BeforeValidator(
        lambda said: {"kind": said} if isinstance(said, str) else said,
        json_schema_input_type=schema,
    )


class Place(NamedTuple):
    """A point in the settings."""

    path: Path  # as the user wrote it
    choices: Sequence[type[Choice]]  # that may stand there
    owners: Sequence[type[Choice]]  # whose setting it is


def types_in(annotation: Any) -> list[Any]:
    """List the plain types that an annotation is made of."""
    if get_origin(annotation) is Annotated:
        return types_in(get_args(annotation)[0])
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return [found for part in parts for found in types_in(part)] if parts else [annotation]


def choices_of(choice: type[Choice], name: str) -> list[type[Choice]]:
    """List the choices that one setting of a choice may hold."""
    field = choice.model_fields.get(name)
    types = types_in(field.annotation) if field else []
    return [each for each in types if isinstance(each, type) and issubclass(each, Choice)]


def kind_of(choice: type[Choice]) -> str | None:
    """Name a choice within its family, or None where it belongs to none."""
    field = choice.model_fields.get("kind")
    return get_args(field.annotation)[0] if field else None


def chosen(choices: Sequence[type[Choice]], section: Any) -> type[Choice] | None:
    """Find which of the choices a section speaks of: the first, if it says no kind."""
    if len(choices) == 1:
        return choices[0]
    assumed = kind_of(choices[0]) if choices else None
    kind = section.get("kind", assumed) if isinstance(section, Mapping) else None
    return next((each for each in choices if kind_of(each) == kind), None)


def locate(choice: type[Choice], settings: Settings, location: Sequence[str | int]) -> Place:
    """Turn a pydantic location into a place in the settings.

    A location also holds what no user wrote: after a family its kind, and at the end the
    members of a plain union such as `int | None`.
    """
    path: list[str | int] = []
    choices: Sequence[type[Choice]] = [choice]
    owners: Sequence[type[Choice]] = []
    value: Any = settings
    for part in location:
        if isinstance(value, Mapping) and len(choices) > 1:
            choices = [each for each in choices if kind_of(each) == part]
        elif isinstance(value, Mapping) and isinstance(part, str):
            owners, choices = (
                choices,
                [found for each in choices for found in choices_of(each, part)],
            )
            value = value.get(part)
            path.append(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
            path.append(part)
    return Place(tuple(path), choices, owners)

"""Choices: what a setting may be, and which choice a piece of settings speaks of.

A choice that belongs to a family has a `kind`; families stand in fields and in lists of
fields, and a choice may hold others. The functions below read that structure off the types, so
it is written down once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict

Settings = dict[str, Any]
SettingRole = Literal["limit", "execution", "seed"]
"""What a setting of training is for, where that is not to change what is learned per step: when
training stops, how it is run and monitored, or the random seed. A field of TrainingConfig has its
role as metadata: Annotated[int, "limit"]."""
SettingPath = tuple[str | int, ...]


class BaseConfig(BaseModel):
    """One choice with its settings; subclasses know how to `build` what they describe."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def options(self) -> dict[str, Any]:
        """Return the fields but for `type`: the keyword arguments of the class that is built."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}


def with_default_type(type_name: str) -> BeforeValidator:
    """Let a section that says no kind be of this one, which must come first in its family."""
    return BeforeValidator(
        lambda said: {"type": type_name, **said} if isinstance(said, dict) else said
    )


def allow_bare_type(schema: Any) -> BeforeValidator:
    """Let a bare word stand for the choice of that kind with its defaults; `schema` has both."""
    return BeforeValidator(
        lambda said: {"type": said} if isinstance(said, str) else said,
        json_schema_input_type=schema,
    )


class SettingLocation(NamedTuple):
    """A point in the settings."""

    path: SettingPath  # as the user wrote it
    candidates: Sequence[type[BaseConfig]]  # that may stand there
    parents: Sequence[type[BaseConfig]]  # whose setting it is


def types_in(annotation: Any) -> list[Any]:
    """List the plain types that an annotation is made of."""
    if get_origin(annotation) is Annotated:
        return types_in(get_args(annotation)[0])
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return [found for part in parts for found in types_in(part)] if parts else [annotation]


def configs_of(config_class: type[BaseConfig], name: str) -> list[type[BaseConfig]]:
    """List the choices that one setting of a choice may hold."""
    field = config_class.model_fields.get(name)
    types = types_in(field.annotation) if field else []
    return [each for each in types if isinstance(each, type) and issubclass(each, BaseConfig)]


def type_of(config_class: type[BaseConfig]) -> str | None:
    """Name a choice within its family, or None where it belongs to none."""
    field = config_class.model_fields.get("type")
    return get_args(field.annotation)[0] if field else None


def find_config(
    config_classes: Sequence[type[BaseConfig]], section: Any
) -> type[BaseConfig] | None:
    """Find which of the choices a section speaks of: the first, if it says no kind."""
    if len(config_classes) == 1:
        return config_classes[0]
    assumed = type_of(config_classes[0]) if config_classes else None
    kind = section.get("type", assumed) if isinstance(section, Mapping) else None
    return next((each for each in config_classes if type_of(each) == kind), None)


def locate(
    config_class: type[BaseConfig], settings: Settings, location: Sequence[str | int]
) -> SettingLocation:
    """Turn a pydantic location into a place in the settings.

    A location also holds what no user wrote: after a family its kind, and at the end the
    members of a plain union such as `int | None`.
    """
    path: list[str | int] = []
    choices: Sequence[type[BaseConfig]] = [config_class]
    owners: Sequence[type[BaseConfig]] = []
    value: Any = settings
    for part in location:
        if isinstance(value, Mapping) and len(choices) > 1:
            choices = [each for each in choices if type_of(each) == part]
        elif isinstance(value, Mapping) and isinstance(part, str):
            owners, choices = (
                choices,
                [found for each in choices for found in configs_of(each, part)],
            )
            value = value.get(part)
            path.append(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
            path.append(part)
    return SettingLocation(tuple(path), choices, owners)


class SettingChange(NamedTuple):
    """A setting with different values in two configs."""

    name: str  # dotted
    old: object
    new: object


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings by their dotted names; lists are values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(old: Any, new: Any, name: str = "") -> Iterator[SettingChange]:
    """Yield the settings in which two configs, or dumps of them, differ."""
    if isinstance(old, BaseConfig) and isinstance(new, BaseConfig):
        old, new = old.model_dump(), new.model_dump()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            inner = f"{name}.{key}" if name else str(key)
            yield from differences(old.get(key), new.get(key), inner)
    elif old != new:
        yield SettingChange(name, old, new)


def fields_with_role(config_class: type[BaseConfig], *roles: SettingRole) -> list[str]:
    """Return the names of the fields that have one of these roles."""
    fields = config_class.model_fields.items()
    return [name for name, field in fields if any(role in field.metadata for role in roles)]

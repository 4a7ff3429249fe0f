"""From settings and `--set` to a validated config, or to the first error in them.

Invariant: every error has location, value, allowed values and a remedy.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from heedful.config.base import (
    BaseConfig,
    SettingLocation,
    SettingPath,
    Settings,
    configs_of,
    find_config,
    locate,
    type_of,
)
from heedful.config.setting_aliases import ALIASES, OTHER_UNITS, option_of
from heedful.config.yaml_files import parse_value
from heedful.errors import ConfigError, check, choices_hint, did_you_mean
from heedful.storage.json_files import MAX_DEPTH

ConfigT = TypeVar("ConfigT", bound=BaseConfig)


class Override(NamedTuple):
    """One `--set a.b=c`."""

    path: tuple[str, ...]
    value: Any

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}={json.dumps(self.value)}"


class LocatedSettings(NamedTuple):
    """The settings of a file, and its name in errors."""

    location: str
    settings: Settings


SettingsArgument = str | Mapping[str, Any] | Sequence[str | Override]
"""Settings that change others: {"a.b": c}, which may be nested, or "a.b=c" as after `--set`."""


def validate_settings(
    config_class: type[ConfigT],
    settings: Settings,
    *,
    location: str,
    overrides: Sequence[Override] = (),
    bases: Sequence[LocatedSettings] = (),
) -> ConfigT:
    """Apply the overrides, validate the settings and fill in defaults.

    The settings extend the last of the `bases`, which extends the one before it. An error is
    located in the file of the setting, or in the `--set` that caused it.
    """
    layers = [*bases, LocatedSettings(location, settings)]
    merged: Settings = reduce(
        lambda base, layer: _merge([config_class], base, layer.settings), layers, {}
    )
    for path, value in overrides:
        merged = _set_in([config_class], merged, path, value, prefix=())
    try:
        config = config_class.model_validate(merged)
    except ValidationError as failure:
        error = _choose_error(failure.errors())
        setting = locate(config_class, merged, error["loc"])
        where = _describe_location(setting.path, layers, overrides)
        if error["type"] == "extra_forbidden":
            raise _unknown_setting_error(
                config_class, merged, setting, overrides, location=where
            ) from None
        raise to_config_error(error, setting, location=where) from None
    for setting_path, number in _booleans_as_numbers(merged, config):
        where = _describe_location(setting_path, layers, overrides)
        raise wrong_type_error("a number", number, location=where)
    return config


def _choose_error(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the first error, or the unknown name that may be a misspelled required setting."""
    first = errors[0]
    if first["type"] != "missing":
        return first
    section = first["loc"][:-1]
    unknown = (
        error
        for error in errors
        if error["type"] == "extra_forbidden" and error["loc"][:-1] == section
    )
    return next(unknown, first)


def _merge(config_classes: Sequence[type[BaseConfig]], base: Any, changes: Any) -> Any:
    """Return the base with these changes; a section of another type replaces the one in it."""
    types = list(filter(None, map(type_of, config_classes)))
    base, changes = ({"type": part} if part in types else part for part in (base, changes))
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    old = find_config(config_classes, base)
    new = find_config(config_classes, {**base, **changes})
    if old is not new:
        return changes
    inner = {name: configs_of(new, name) if new else [] for name in changes}
    merged = {
        name: _merge(inner[name], base[name], value) if name in base else value
        for name, value in changes.items()
    }
    return {**base, **merged}


def _booleans_as_numbers(
    settings: Any, value: Any, path: SettingPath = ()
) -> Iterator[tuple[SettingPath, bool]]:
    # To pydantic True is the number 1, so that `max_steps: yes` would mean one step.
    if isinstance(settings, bool) and not isinstance(value, bool):
        yield path, settings
    elif isinstance(settings, dict) and isinstance(value, BaseConfig):
        for name, inner in settings.items():
            yield from _booleans_as_numbers(inner, getattr(value, name), (*path, name))
    elif isinstance(settings, list) and isinstance(value, list | tuple):
        for index, (inner, item) in enumerate(zip(settings, value, strict=False)):
            yield from _booleans_as_numbers(inner, item, (*path, index))


def _describe_location(
    path: SettingPath, layers: Sequence[LocatedSettings], overrides: Sequence[Override]
) -> str:
    """Return where a setting was given: in a file, or in an override of it or around it."""
    location = layers[-1].location
    if not path:
        return location
    name = ".".join(map(str, path))
    for override, _ in overrides:
        # A new type affects all settings of its section.
        changed = override[:-1] if override[-1] == "type" else override
        length = min(len(path), len(changed))
        if path[:length] == changed[:length]:
            return f"--set {name}"
    files = [layer.location for layer in layers if _contains(layer.settings, path)]
    return f"{files[-1] if files else location}: {name}"


def _contains(settings: Any, path: SettingPath) -> bool:
    for name in path:
        try:
            settings = settings[name]
        except (LookupError, TypeError):
            return False
    return True


# ----- errors of pydantic as errors for users

_MAX_SEARCH_DEPTH = 5  # sections within sections
_SCHEMA_HINT = "`heedful recipes --schema` lists every setting and its values"
_QUOTES_HINT = "YAML reads yes, no, on and off as true and false: put a name in quotes"
_EXPECTED_TYPES = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "invalid_key": "a name",
    "list_type": "a list",
    "string_type": "a name",
    "tuple_type": "a list",
}


def to_config_error(error: ErrorDetails, setting: SettingLocation, *, location: str) -> ConfigError:
    """Turn an error of pydantic into one with location, cause and remedy."""
    value = error["input"]
    match error["type"]:
        case "model_type" | "model_attributes_type":
            return _not_a_section_error(value, setting, location=location)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_type_error(value.get("type"), setting, location=f"{location}.type")
        case expected if expected in _EXPECTED_TYPES:
            return wrong_type_error(_EXPECTED_TYPES[expected], value, location=location)
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", error["ctx"]["expected"])
            near = did_you_mean(value, allowed) if isinstance(value, str) else ""
            message = f"{_describe_value(value)} is not allowed{near}"
            hint = _QUOTES_HINT if isinstance(value, bool) else choices_hint(allowed)
        case "missing":
            message, hint = "this setting is required", "give it a value"
        case _:  # the message of a validator, which may concern several settings
            message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
            actual = "" if isinstance(value, Mapping) else f", got {_describe_value(value)}"
            message, hint = f"{message[:1].lower()}{message[1:]}{actual}", _SCHEMA_HINT
    return ConfigError(location, message, hint)


def wrong_type_error(expected: str, actual: Any, *, location: str) -> ConfigError:
    """Return the error for a value of the wrong type."""
    hint = _SCHEMA_HINT
    if expected == "a name" and isinstance(actual, int | float):
        hint = _QUOTES_HINT if isinstance(actual, bool) else "put it in quotes"
    return ConfigError(location, f"expected {expected}, got {_describe_value(actual)}", hint)


def _unknown_name_error(
    category: str, name: str, allowed: Sequence[str], *, location: str
) -> ConfigError:
    message = f"no {category} is called {name!r}{did_you_mean(name, allowed)}"
    return ConfigError(location, message, choices_hint(allowed, name=name, listing=_SCHEMA_HINT))


def _unknown_setting_error(
    config_class: type[BaseConfig],
    settings: Settings,
    setting: SettingLocation,
    overrides: Sequence[Override],
    *,
    location: str,
) -> ConfigError:
    """Return the error for an unknown setting; it names sections that have a setting like it."""
    *section, name = map(str, setting.path)
    paths = sorted(_setting_paths(config_class, settings), key=len)
    names = {path[-1]: None for path in paths}
    siblings = _setting_names(setting.parents)
    words = [other for other in names if name in other.split("_")]
    elsewhere = [name] if name in names else words or get_close_matches(name, names, 1, cutoff=0.8)
    alias = ALIASES.get(name)
    matches = [path for path in paths if path[-1] == alias]
    matches += [path for path in paths if path[-1] in elsewhere and (not alias or path[-1] == name)]
    if alias not in OTHER_UNITS:
        matches = [path for path in matches if [*path[: len(section)]] == section] or matches
    is_deep = len(section) > 1  # such a name is one of a component, not of another section
    is_near = alias not in names and get_close_matches(name, siblings, n=1)
    if not matches or (is_deep and alias not in siblings) or is_near:
        return _unknown_name_error("setting", name, siblings, location=location)
    override = next(
        (other for other in overrides if other.path[: len(section) + 1] == (*section, name)), None
    )
    rest = override.path[len(section) + 1 :] if override else ()
    full_names = [".".join((*path, *rest)) for path in matches[:3]]
    message = f"no setting is called {name!r}; did you mean {' or '.join(map(repr, full_names))}?"
    if override is None:
        target = ".".join(matches[0][:-1])
        hint = f"move it into the section {target!r}" if target else "move it to the top level"
        if matches[0][:-1] == tuple(section):
            hint = f"rename it to {matches[0][-1]!r}"
    else:
        value = override.value if isinstance(override.value, str) else json.dumps(override.value)
        value = OTHER_UNITS.get(matches[0][-1], value) if matches[0][-1] == alias else value
        hint = f"write --set {shlex.quote(f'{full_names[0]}={value}')}"
        if option := option_of(full_names[0]):
            hint += f", or {option} {value}"
    return ConfigError(location, message, hint)


def _setting_paths(
    config_class: type[BaseConfig], section: Any, depth: int = 0
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all settings, those of absent sections by their defaults."""
    for name in config_class.model_fields:
        yield (name,)
        inner = section.get(name) if isinstance(section, Mapping) else None
        inner_classes = configs_of(config_class, name)
        if inner in map(type_of, inner_classes):
            inner = {"type": inner}
        inner = _default(config_class, name) if inner is None else inner
        config = find_config(inner_classes, inner) if isinstance(inner, Mapping) else None
        if config and depth < _MAX_SEARCH_DEPTH:
            yield from ((name, *path) for path in _setting_paths(config, inner, depth + 1))


def _not_a_section_error(value: Any, setting: SettingLocation, *, location: str) -> ConfigError:
    type_names, expected = _type_names(setting.candidates), "a section"
    hint = choices_hint(_setting_names(setting.candidates))
    if len(type_names) > 1:
        expected = "a section with a `type`"
        hint = choices_hint(f"{{type: {name}}}" for name in type_names)
    return ConfigError(location, f"expected {expected}, got {_describe_value(value)}", hint)


def _unknown_type_error(name: Any, setting: SettingLocation, *, location: str) -> ConfigError:
    allowed = _type_names(setting.candidates)
    if name is None:
        return ConfigError(location, "the type is missing", choices_hint(allowed))
    if not isinstance(name, str):
        return wrong_type_error("a name", name, location=location)
    category = next(part for part in reversed(setting.path) if isinstance(part, str))
    return _unknown_name_error(category.replace("_", " "), name, allowed, location=location)


def _type_names(config_classes: Sequence[type[BaseConfig]]) -> list[str]:
    return [name for config in config_classes if (name := type_of(config))]


def _setting_names(config_classes: Sequence[type[BaseConfig]]) -> list[str]:
    return sorted({name for config in config_classes for name in config.model_fields})


def _describe_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes or on (true)" if value else "no or off (false)"
    if isinstance(value, Mapping):
        return "a section"
    return "nothing" if value is None else repr(value)


# ----- overrides
#
# They are applied to the settings before validation, in order. A new `type` has its own defaults:
# settings that only the old type has are dropped, those of both are kept.


def parse_override(text: str) -> Override:
    """Parse `a.b=c`; the value is YAML."""
    location = f"--set {text}"
    name, equals, value = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    message = "expected a setting and its value"
    is_setting = equals and all(path) and len(path) <= MAX_DEPTH
    check(is_setting, location, message, "write it as --set training.max_steps=500")
    try:
        return Override(path, parse_value(value, location=location))
    except ConfigError as error:  # located in a line, and there is only one
        raise ConfigError(location, error.message, "correct the value") from None


def to_overrides(settings: SettingsArgument) -> list[Override]:
    """Return settings as overrides, in their order; in a section the type comes first."""
    if isinstance(settings, Mapping):
        return list(_flatten(settings, ()))
    texts = [settings] if isinstance(settings, str) else settings
    return [parse_override(text) if isinstance(text, str) else text for text in texts]


def _flatten(settings: Mapping[str, Any], prefix: tuple[str, ...]) -> Iterator[Override]:
    for name, value in sorted(settings.items(), key=lambda item: item[0] != "type"):
        path = (*prefix, *name.split("."))
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, path)
        else:
            yield Override(path, os.fspath(value) if isinstance(value, os.PathLike) else value)


def _set_in(
    config_classes: Sequence[type[BaseConfig]],
    section: Any,
    path: Sequence[str],
    value: Any,
    prefix: tuple[str, ...],
) -> Settings:
    if section in map(type_of, config_classes):
        section = {"type": section}  # a bare type
    name = ".".join(prefix)
    kind = "a list" if isinstance(section, list) else "a single value"
    location, hint = f"--set {'.'.join((*prefix, *path))}", f"write --set {name}=VALUE"
    check(isinstance(section, dict), location, f"{name} is {kind}, not a section", hint)
    key, *rest = path
    config = find_config(config_classes, section)
    if rest:
        inner = section.get(key)
        if inner is None:
            inner = _default(config, key)
        inner_classes = configs_of(config, key) if config else []
        value = _set_in(inner_classes, inner, rest, value, (*prefix, key))
    changed = {**section, key: value}
    new = find_config(config_classes, changed)
    if key == "type" and not rest and config and new:
        dropped = config.model_fields.keys() - new.model_fields.keys()
        return {name: setting for name, setting in changed.items() if name not in dropped}
    return changed


def _default(config_class: type[BaseConfig] | None, name: str) -> Any:
    field = config_class.model_fields.get(name) if config_class else None
    if field is None or field.is_required():
        return {}
    default = field.get_default(call_default_factory=True, validated_data={})
    return {} if default is None else _to_settings(default)


def _to_settings(value: Any) -> Any:
    """Return a default as settings: its type, and all that differs from defaults of that type."""
    if isinstance(value, BaseConfig):
        explicit = {"type", *value.model_fields_set}
        names = [name for name in type(value).model_fields if name in explicit]
        return {name: _to_settings(getattr(value, name)) for name in names}
    return list(map(_to_settings, value)) if isinstance(value, list | tuple) else value

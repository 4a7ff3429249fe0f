"""Checking: from settings to a choice, or to the first thing that is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as PathlibPath
from typing import Any, NamedTuple, TypeVar

import yaml
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
from heedful.errors import ConfigError, choices_hint, did_you_mean

# Complaints: what is wrong with a setting, in words that help to mend it.
#
# A complaint says where the setting stands, what was found there and what is allowed.

_SCHEMA_HINT = "`heedful recipes --schema` lists every setting and what it takes"
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
    """Turn an error of pydantic into one that names the place, the finding and the remedy."""
    found = error["input"]
    match error["type"]:
        case "extra_forbidden":
            return _unknown_name_error(
                "setting", str(setting.path[-1]), _setting_names(setting.parents), location=location
            )
        case "model_type" | "model_attributes_type":
            return _not_a_section_error(found, setting, location=location)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_type_error(found, setting, location=location)
        case "literal_error":
            return _invalid_choice_error(
                found, re.findall(r"'([^']*)'", error["ctx"]["expected"]), location=location
            )
        case wanted if wanted in _EXPECTED_TYPES:
            return wrong_type_error(_EXPECTED_TYPES[wanted], found, location=location)
    return _invalid_value_error(error, location=location)


def wrong_type_error(expected: str, actual: Any, *, location: str) -> ConfigError:
    """Say that a value is of another type than the one wanted."""
    remedy = _quoting_hint(actual) if expected == "a name" else _SCHEMA_HINT
    return ConfigError(location, f"{expected} is wanted, found {_describe_value(actual)}", remedy)


def _unknown_name_error(
    category: str, name: str, allowed: Iterable[str], *, location: str
) -> ConfigError:
    problem = f"no {category} is called {name!r}{did_you_mean(name, allowed)}"
    return ConfigError(location, problem, choices_hint(allowed))


def _not_a_section_error(found: Any, setting: SettingLocation, *, location: str) -> ConfigError:
    kinds = _type_names(setting.candidates)
    if len(kinds) > 1:
        problem = f"a section with a `kind` is wanted, found {_describe_value(found)}"
        return ConfigError(location, problem, choices_hint(f"{{type: {kind}}}" for kind in kinds))
    problem = f"a section is wanted, found {_describe_value(found)}"
    return ConfigError(location, problem, choices_hint(_setting_names(setting.candidates)))


def _unknown_type_error(
    found: Mapping[str, Any], setting: SettingLocation, *, location: str
) -> ConfigError:
    location = f"{location}.type"
    kinds, kind = _type_names(setting.candidates), found.get("type")
    if kind is None:
        return ConfigError(location, "it is not said which kind", choices_hint(kinds))
    if not isinstance(kind, str):
        return wrong_type_error("a name", kind, location=location)
    family = next(name for name in reversed(setting.path) if isinstance(name, str))
    return _unknown_name_error(family.replace("_", " "), kind, kinds, location=location)


def _invalid_choice_error(found: Any, allowed: Sequence[str], *, location: str) -> ConfigError:
    near = did_you_mean(found, allowed) if isinstance(found, str) else ""
    remedy = _QUOTES_HINT if isinstance(found, bool) else choices_hint(allowed)
    return ConfigError(location, f"{_describe_value(found)} is not a choice{near}", remedy)


def _invalid_value_error(error: ErrorDetails, *, location: str) -> ConfigError:
    """Repeat what a check of one value, or of several together, said of them."""
    if error["type"] == "missing":
        return ConfigError(location, "this setting has no default", "give it a value")
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    found = error["input"]
    about = "" if isinstance(found, Mapping) else f", found {_describe_value(found)}"
    return ConfigError(location, f"{message[:1].lower()}{message[1:]}{about}", _SCHEMA_HINT)


def _type_names(choices: Sequence[type[BaseConfig]]) -> list[str]:
    return [kind for choice in choices if (kind := type_of(choice))]


def _setting_names(choices: Sequence[type[BaseConfig]]) -> list[str]:
    return sorted({name for choice in choices for name in choice.model_fields})


def _describe_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes or on (true)" if value else "no or off (false)"
    if isinstance(value, Mapping):
        return "a section"
    return "nothing" if value is None else repr(value)


def _quoting_hint(found: Any) -> str:
    if isinstance(found, bool):
        return _QUOTES_HINT
    return "put it in quotes" if isinstance(found, int | float) else _SCHEMA_HINT


# YAML text: what the files say, before it is checked.
#
# Two things differ from plain YAML 1.1: `1e-3` is a number and a date is text. What is written
# here reads back equal, and a key that stands twice is an error.

_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
_RESOLVERS = {
    first: [*(pair for pair in resolvers if pair[0] != _TIMESTAMP), (_FLOAT, _EXPONENT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} stands twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    def represent_text(self, text: str) -> yaml.ScalarNode:
        # Only between double quotes does a line break such as U+0085 come back as it was.
        style = None if text.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Loader.yaml_implicit_resolvers = _RESOLVERS
_Dumper.yaml_implicit_resolvers = _RESOLVERS
_Dumper.add_representer(str, _Dumper.represent_text)


def read_yaml(text: str, *, location: str) -> Settings:
    """Parse a YAML mapping, naming the file and line of a mistake."""
    settings = parse_value(text, location=location)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(
            location,
            f"expected settings of the form `key: value`, found {settings!r}",
            "write each setting on a line of its own",
        )
    return settings


def read_settings(path: PathlibPath) -> Settings:
    """Read a YAML file of settings."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(str(path), "no such file", "check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "the file is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror}"
        raise ConfigError(str(path), problem, "check the path and its permissions") from None
    return read_yaml(text, location=str(path))


def to_yaml(config: BaseConfig) -> str:
    """Say a choice as YAML that reads back to an equal one."""
    settings = config.model_dump(mode="json")
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_value(text: str, *, location: str) -> Any:
    """Parse any YAML value, naming the file and line of a mistake."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{location}:{mark.line + 1}" if mark else location
        raise ConfigError(at, f"not YAML: {error.problem}", "correct the line") from None
    except yaml.reader.ReaderError as error:
        at = f"{location}:{text.count(chr(10), 0, error.position) + 1}"
        problem = f"not YAML: the character {chr(error.character)!r} is not allowed"
        raise ConfigError(at, problem, "remove the character") from None
    except (ValueError, LookupError, AttributeError):  # a tag such as !!int before other text
        problem = "not YAML: a tag does not fit its value"
        raise ConfigError(location, problem, "remove what begins with !!") from None


# Overrides: settings changed from the command line, `--set a.b=c`.
#
# They are put into the settings before anything is checked, in the order given. A new `kind`
# brings its own defaults: what only the old kind knows is dropped, what both know is kept.


class Override(NamedTuple):
    """One `--set a.b=c`."""

    path: tuple[str, ...]
    value: Any


def parse_override(text: str) -> Override:
    """Read `a.b=c`; the value is YAML."""
    at = f"--set {text}"
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts):
        remedy = "write it as --set training.max_steps=500"
        raise ConfigError(at, "expected a setting and its value", remedy)
    try:
        return Override(parts, parse_value(value, location=at))
    except ConfigError as error:  # its place is a line, and there is only one
        raise ConfigError(at, error.message, "correct the value") from None


def apply_overrides(
    config_class: type[BaseConfig], settings: Settings, overrides: Iterable[Override]
) -> Settings:
    """Put the overrides into a copy of the settings of a choice."""
    for path, value in overrides:
        settings = _set_in([config_class], settings, path, value, prefix=())
    return settings


def _set_in(
    config_classes: Sequence[type[BaseConfig]],
    section: Any,
    path: Sequence[str],
    value: Any,
    prefix: tuple[str, ...],
) -> Settings:
    if section in map(type_of, config_classes):
        section = {"type": section}  # a choice that was named and not set
    if not isinstance(section, dict):
        raise _overrides_not_a_section_error(section, path, prefix)
    key, *rest = path
    if key == "type" and not rest:
        return _with_type(config_classes, section, value)
    if rest:
        current = find_config(config_classes, section)
        inner = section.get(key)
        if inner is None:
            inner = _default(current, key)
        inner_choices = configs_of(current, key) if current else []
        value = _set_in(inner_choices, inner, rest, value, (*prefix, key))
    return {**section, key: value}


def _with_type(
    config_classes: Sequence[type[BaseConfig]], section: Settings, type_name: Any
) -> Settings:
    changed = {**section, "type": type_name}
    old, new = find_config(config_classes, section), find_config(config_classes, changed)
    if old is None or new is None:
        return changed
    stale = old.model_fields.keys() - new.model_fields.keys()
    return {name: value for name, value in changed.items() if name not in stale}


def _default(config_class: type[BaseConfig] | None, name: str) -> Any:
    field = config_class.model_fields.get(name) if config_class else None
    if field is None or field.is_required():
        return {}
    default = field.get_default(call_default_factory=True, validated_data={})
    return {} if default is None else _default_to_settings(default)


def _default_to_settings(value: Any) -> Any:
    """Say a default as settings: its kind, and what differs from that kind's own defaults."""
    if isinstance(value, BaseConfig):
        names = [
            name
            for name in type(value).model_fields
            if name == "type" or name in value.model_fields_set
        ]
        return {name: _default_to_settings(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [_default_to_settings(each) for each in value]
    return value


def _overrides_not_a_section_error(
    found: Any, path: Sequence[str], prefix: tuple[str, ...]
) -> ConfigError:
    what = "a list" if isinstance(found, list) else "a single value"
    return ConfigError(
        f"--set {'.'.join((*prefix, *path))}",
        f"{'.'.join(prefix)} is {what}, not a section",
        f"write --set {'.'.join(prefix)}=VALUE",
    )


ConfigT = TypeVar("ConfigT", bound=BaseConfig)


def validate_settings(
    config_class: type[ConfigT],
    settings: Settings,
    *,
    location: str,
    overrides: Sequence[Override] = (),
) -> ConfigT:
    """Put the overrides into the settings, check them and fill in the defaults.

    A mistake is said to stand in `input_name`, or in the `--set` that made it.
    """
    settings = apply_overrides(config_class, settings, overrides)
    try:
        resolved = config_class.model_validate(settings)
    except ValidationError as failure:
        error = failure.errors()[0]
        setting = locate(config_class, settings, error["loc"])
        at = _describe_location(setting.path, location, overrides)
        raise to_config_error(error, setting, location=at) from None
    for path, switch in _booleans_as_numbers(settings, resolved):
        raise wrong_type_error(
            "a number", switch, location=_describe_location(path, location, overrides)
        )
    return resolved


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
        for index, (inner, part) in enumerate(zip(settings, value, strict=False)):
            yield from _booleans_as_numbers(inner, part, (*path, index))


def _describe_location(path: SettingPath, location: str, overrides: Sequence[Override]) -> str:
    if not path:
        return location
    name = ".".join(map(str, path))
    overridden = any(_overlaps(path, override.path) for override in overrides)
    return f"--set {name}" if overridden else f"{location}: {name}"


def _overlaps(path: SettingPath, override: SettingPath) -> bool:
    if override[-1] == "type":  # a new kind answers for all that stands beside it
        override = override[:-1]
    shared = min(len(path), len(override))
    return path[:shared] == override[:shared]

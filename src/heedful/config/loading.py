"""From YAML and `--set` to a validated config, or to the first error in them.

YAML differs from version 1.1 in two points: `1e-3` is a number and a date is a string. A
duplicate key is an error, and so is too much nesting or text. Invariants: `to_yaml` of a config
reads back equal; every error names its location, the value, what is allowed and what to do.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
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
from heedful.errors import ConfigError, check, choices_hint, did_you_mean
from heedful.storage.json_files import MAX_DEPTH

ConfigT = TypeVar("ConfigT", bound=BaseConfig)


class Override(NamedTuple):
    """One `--set a.b=c`."""

    path: tuple[str, ...]
    value: Any


def validate_settings(
    config_class: type[ConfigT],
    settings: Settings,
    *,
    location: str,
    overrides: Sequence[Override] = (),
) -> ConfigT:
    """Apply the overrides, validate the settings and fill in defaults.

    An error is located in `location`, or in the `--set` that caused it.
    """
    for path, value in overrides:
        settings = _set_in([config_class], settings, path, value, prefix=())
    try:
        config = config_class.model_validate(settings)
    except ValidationError as failure:
        error = failure.errors()[0]
        setting = locate(config_class, settings, error["loc"])
        where = _describe_location(setting.path, location, overrides)
        raise to_config_error(error, setting, location=where) from None
    for setting_path, number in _booleans_as_numbers(settings, config):
        where = _describe_location(setting_path, location, overrides)
        raise wrong_type_error("a number", number, location=where)
    return config


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


def _describe_location(path: SettingPath, location: str, overrides: Sequence[Override]) -> str:
    """Return where a setting was given: in the file, or in an override of it or around it."""
    if not path:
        return location
    name = ".".join(map(str, path))
    for override, _ in overrides:
        # A new type affects all settings of its section.
        changed = override[:-1] if override[-1] == "type" else override
        length = min(len(path), len(changed))
        if path[:length] == changed[:length]:
            return f"--set {name}"
    return f"{location}: {name}"


# ----- errors of pydantic as errors for users

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
    """Turn an error of pydantic into one that says where, what was found and what to do."""
    value = error["input"]
    match error["type"]:
        case "extra_forbidden":
            name, allowed = str(setting.path[-1]), _setting_names(setting.parents)
            return _unknown_name_error("setting", name, allowed, location=location)
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
    return ConfigError(location, message, choices_hint(allowed))


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


# ----- YAML

_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
_RESOLVERS = {
    first: [*(pair for pair in resolvers if pair[0] != _TIMESTAMP), (_FLOAT, _EXPONENT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


MAX_CHARACTERS, MAX_VALUES = 1_000_000, 100_000


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._num_values = 0
        self._num_values_of: dict[str | None, int] = {}  # by anchor

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count levels and values; an alias counts as all that it stands for."""
        event: Any = self.peek_event()
        before = self._num_values
        is_alias = isinstance(event, yaml.AliasEvent)
        is_cyclic = is_alias and event.anchor in self.anchors.keys() - self._num_values_of.keys()
        self._depth += 1
        self._num_values += self._num_values_of.get(event.anchor, 1) if is_alias else 1
        if is_cyclic or self._depth > MAX_DEPTH or self._num_values > MAX_VALUES:
            limits = f"{MAX_DEPTH} levels and {MAX_VALUES} values"
            message = f"more than {limits}, or a value within itself"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not is_alias:
            self._num_values_of[event.anchor] = self._num_values - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                message = f"duplicate key {key.value!r}"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        if abs(number := self.construct_yaml_int(node)) >= 2**63:
            message = "a number does not fit into 64 bits"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)
        return number


class _Dumper(yaml.SafeDumper):
    def represent_text(self, text: str) -> yaml.ScalarNode:
        # Only double quotes preserve a line break such as U+0085.
        style = None if text.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Loader.yaml_implicit_resolvers = _RESOLVERS
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Dumper.yaml_implicit_resolvers = _RESOLVERS
_Dumper.add_representer(str, _Dumper.represent_text)


def read_yaml(text: str, *, location: str) -> Settings:
    """Parse a YAML mapping; errors name file and line."""
    settings = parse_value(text, location=location)
    if settings is None:
        return {}
    message = f"expected settings of the form `key: value`, got {settings!r}"
    check(isinstance(settings, dict), location, message, "write each setting on a separate line")
    return settings


def read_settings(path: Path) -> Settings:
    """Read a YAML file of settings."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise ConfigError(str(path), "no such file", "check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "the file is not UTF-8", "save it as UTF-8") from None
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        raise ConfigError(str(path), message, "check the path and its permissions") from None
    return read_yaml(text, location=str(path))


def to_yaml(config: BaseConfig) -> str:
    """Return a config as YAML that reads back equal."""
    settings = config.model_dump(mode="json")
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_value(text: str, *, location: str) -> Any:
    """Parse any YAML value; errors name file and line."""
    message = f"more than {MAX_CHARACTERS} characters"
    check(len(text) <= MAX_CHARACTERS, location, message, "write only settings here")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{location}:{mark.line + 1}" if mark else location
        raise ConfigError(where, f"not YAML: {error.problem}", "correct the line") from None
    except yaml.reader.ReaderError as error:
        where = f"{location}:{text.count(chr(10), 0, error.position) + 1}"
        message = f"not YAML: the character {chr(error.character)!r} is not allowed"
        raise ConfigError(where, message, "remove the character") from None
    except (
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
    ):  # a tag such as !!int before other text
        message = "not YAML: a tag does not fit its value"
        raise ConfigError(location, message, "remove the tag that starts with !!") from None


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
    """Return a default as settings: its type, and what differs from the defaults of that type."""
    if isinstance(value, BaseConfig):
        explicit = {"type", *value.model_fields_set}
        names = [name for name in type(value).model_fields if name in explicit]
        return {name: _to_settings(getattr(value, name)) for name in names}
    return list(map(_to_settings, value)) if isinstance(value, list | tuple) else value

"""YAML, read with limits, and configs as YAML.

YAML differs from version 1.1 in two points: `1e-3` is a number and a date is a string. A
duplicate key is an error, and so is too much nesting or text. Invariant: `to_yaml` of a config
reads back equal.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from heedful.config.base import BaseConfig, Settings
from heedful.errors import ConfigError, check
from heedful.storage.json_files import MAX_DEPTH

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
        """Count levels and values; an alias counts as its whole contents."""
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
    return _dump(config.model_dump(mode="json"))


def _dump(settings: Settings) -> str:
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


COMMENT_WIDTH = 100  # columns


def to_commented_yaml(config: BaseConfig) -> str:
    """Return a config as YAML that reads back equal, with the help of each setting."""
    return "".join(f"{line}\n" for line in _commented_lines(config, COMMENT_WIDTH))


def _commented_lines(config: BaseConfig, width: int) -> Iterator[str]:
    dumped = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        lines = _dump({name: dumped[name]}).splitlines()
        if isinstance(value, BaseConfig) and dumped[name]:
            lines = [f"{name}:", *(f"  {line}" for line in _commented_lines(value, width - 2))]
        comment = " ".join((field.description or "").split())
        with_comment = f"{lines[0]}  # {comment}"
        # The lines of a long text have no room for comments.
        is_text = isinstance(dumped[name], str) and len(lines) > 1
        if comment and not is_text and len(with_comment) <= width:
            lines[0] = with_comment
        else:
            yield from (f"# {line}" for line in textwrap.wrap(comment, width - 2))
        yield from lines


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

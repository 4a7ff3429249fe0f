"""YAML text: what the files say, before it is checked.

Two things differ from plain YAML 1.1: `1e-3` is a number and a date is text. What is written
here reads back equal, and a key that stands twice is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from heedful.config.choice import Choice, Settings
from heedful.errors import ConfigError

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


def read_yaml(text: str, *, origin: str) -> Settings:
    """Parse a YAML mapping, naming the file and line of a mistake."""
    settings = parse_value(text, origin=origin)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(
            origin,
            f"expected settings of the form `key: value`, found {settings!r}",
            "write each setting on a line of its own",
        )
    return settings


def read_settings(path: Path) -> Settings:
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
    return read_yaml(text, origin=str(path))


def write_yaml(choice: Choice) -> str:
    """Say a choice as YAML that reads back to an equal one."""
    settings = choice.model_dump(mode="json")
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_value(text: str, *, origin: str) -> Any:
    """Parse any YAML value, naming the file and line of a mistake."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{origin}:{mark.line + 1}" if mark else origin
        raise ConfigError(at, f"not YAML: {error.problem}", "correct the line") from None
    except yaml.reader.ReaderError as error:
        at = f"{origin}:{text.count(chr(10), 0, error.position) + 1}"
        problem = f"not YAML: the character {chr(error.character)!r} is not allowed"
        raise ConfigError(at, problem, "remove the character") from None
    except (ValueError, LookupError, AttributeError):  # a tag such as !!int before other text
        problem = "not YAML: a tag does not fit its value"
        raise ConfigError(origin, problem, "remove what begins with !!") from None

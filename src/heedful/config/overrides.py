"""Overrides: settings changed from the command line, `--set a.b=c`.

They are put into the settings before anything is checked, in the order given. A new `kind`
brings its own defaults: what only the old kind knows is dropped, what both know is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from heedful.config.choice import Choice, Settings, choices_of, chosen, kind_of
from heedful.config.yaml_text import parse_value
from heedful.errors import ConfigError


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
        return Override(parts, parse_value(value, origin=at))
    except ConfigError as error:  # its place is a line, and there is only one
        raise ConfigError(at, error.problem, "correct the value") from None


def apply(choice: type[Choice], settings: Settings, overrides: Iterable[Override]) -> Settings:
    """Put the overrides into a copy of the settings of a choice."""
    for path, value in overrides:
        settings = _put([choice], settings, path, value, done=())
    return settings


def _put(
    choices: Sequence[type[Choice]],
    section: Any,
    path: Sequence[str],
    value: Any,
    done: tuple[str, ...],
) -> Settings:
    if section in map(kind_of, choices):
        section = {"kind": section}  # a choice that was named and not set
    if not isinstance(section, dict):
        raise _not_a_section(section, path, done)
    key, *rest = path
    if key == "kind" and not rest:
        return _with_kind(choices, section, value)
    if rest:
        current = chosen(choices, section)
        inner = section.get(key)
        if inner is None:
            inner = _default(current, key)
        inner_choices = choices_of(current, key) if current else []
        value = _put(inner_choices, inner, rest, value, (*done, key))
    return {**section, key: value}


def _with_kind(choices: Sequence[type[Choice]], section: Settings, kind: Any) -> Settings:
    changed = {**section, "kind": kind}
    old, new = chosen(choices, section), chosen(choices, changed)
    if old is None or new is None:
        return changed
    stale = old.model_fields.keys() - new.model_fields.keys()
    return {name: value for name, value in changed.items() if name not in stale}


def _default(choice: type[Choice] | None, name: str) -> Any:
    field = choice.model_fields.get(name) if choice else None
    if field is None or field.is_required():
        return {}
    default = field.get_default(call_default_factory=True, validated_data={})
    return {} if default is None else _said(default)


def _said(value: Any) -> Any:
    """Say a default as settings: its kind, and what differs from that kind's own defaults."""
    if isinstance(value, Choice):
        names = [
            name
            for name in type(value).model_fields
            if name == "kind" or name in value.model_fields_set
        ]
        return {name: _said(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [_said(each) for each in value]
    return value


def _not_a_section(found: Any, path: Sequence[str], done: tuple[str, ...]) -> ConfigError:
    what = "a list" if isinstance(found, list) else "a single value"
    return ConfigError(
        f"--set {'.'.join((*done, *path))}",
        f"{'.'.join(done)} is {what}, not a section",
        f"write --set {'.'.join(done)}=VALUE",
    )

"""Complaints: what is wrong with a setting, in words that help to mend it.

A complaint says where the setting stands, what was found there and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from heedful.config.choice import Choice, Place, kind_of
from heedful.errors import ConfigError, choose_from, did_you_mean

_SCHEMA = "`heedful recipes --schema` lists every setting and what it takes"
_QUOTES = "YAML reads yes, no, on and off as true and false: put a name in quotes"
_WANTED = {
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


def explain(error: ErrorDetails, place: Place, *, at: str) -> ConfigError:
    """Turn an error of pydantic into one that names the place, the finding and the remedy."""
    found = error["input"]
    match error["type"]:
        case "extra_forbidden":
            return _unknown("setting", str(place.path[-1]), _settings(place.owners), at=at)
        case "model_type" | "model_attributes_type":
            return _no_section(found, place, at=at)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_kind(found, place, at=at)
        case "literal_error":
            return _unknown_word(found, re.findall(r"'([^']*)'", error["ctx"]["expected"]), at=at)
        case wanted if wanted in _WANTED:
            return unwanted(_WANTED[wanted], found, at=at)
    return _unfit(error, at=at)


def unwanted(wanted: str, found: Any, *, at: str) -> ConfigError:
    """Say that a value is of another type than the one wanted."""
    remedy = _quoting(found) if wanted == "a name" else _SCHEMA
    return ConfigError(at, f"{wanted} is wanted, found {_words(found)}", remedy)


def _unknown(family: str, name: str, allowed: Iterable[str], *, at: str) -> ConfigError:
    problem = f"no {family} is called {name!r}{did_you_mean(name, allowed)}"
    return ConfigError(at, problem, choose_from(allowed))


def _no_section(found: Any, place: Place, *, at: str) -> ConfigError:
    kinds = _kinds(place.choices)
    if len(kinds) > 1:
        problem = f"a section with a `kind` is wanted, found {_words(found)}"
        return ConfigError(at, problem, choose_from(f"{{kind: {kind}}}" for kind in kinds))
    problem = f"a section is wanted, found {_words(found)}"
    return ConfigError(at, problem, choose_from(_settings(place.choices)))


def _unknown_kind(found: Mapping[str, Any], place: Place, *, at: str) -> ConfigError:
    at = f"{at}.kind"
    kinds, kind = _kinds(place.choices), found.get("kind")
    if kind is None:
        return ConfigError(at, "it is not said which kind", choose_from(kinds))
    if not isinstance(kind, str):
        return unwanted("a name", kind, at=at)
    family = next(name for name in reversed(place.path) if isinstance(name, str))
    return _unknown(family.replace("_", " "), kind, kinds, at=at)


def _unknown_word(found: Any, allowed: Sequence[str], *, at: str) -> ConfigError:
    near = did_you_mean(found, allowed) if isinstance(found, str) else ""
    remedy = _QUOTES if isinstance(found, bool) else choose_from(allowed)
    return ConfigError(at, f"{_words(found)} is not a choice{near}", remedy)


def _unfit(error: ErrorDetails, *, at: str) -> ConfigError:
    """Repeat what a check of one value, or of several together, said of them."""
    if error["type"] == "missing":
        return ConfigError(at, "this setting has no default", "give it a value")
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    found = error["input"]
    about = "" if isinstance(found, Mapping) else f", found {_words(found)}"
    return ConfigError(at, f"{message[:1].lower()}{message[1:]}{about}", _SCHEMA)


def _kinds(choices: Sequence[type[Choice]]) -> list[str]:
    return [kind for choice in choices if (kind := kind_of(choice))]


def _settings(choices: Sequence[type[Choice]]) -> list[str]:
    return sorted({name for choice in choices for name in choice.model_fields})


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes or on (true)" if value else "no or off (false)"
    if isinstance(value, Mapping):
        return "a section"
    return "nothing" if value is None else repr(value)


def _quoting(found: Any) -> str:
    if isinstance(found, bool):
        return _QUOTES
    return "put it in quotes" if isinstance(found, int | float) else _SCHEMA

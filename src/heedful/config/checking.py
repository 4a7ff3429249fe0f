"""Checking: from settings to a choice, or to the first thing that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from heedful.config.choice import Choice, Path, Settings, locate
from heedful.config.complaints import explain, unwanted
from heedful.config.overrides import Override, apply

Chosen = TypeVar("Chosen", bound=Choice)


def resolve(
    choice: type[Chosen], settings: Settings, *, origin: str, overrides: Sequence[Override] = ()
) -> Chosen:
    """Put the overrides into the settings, check them and fill in the defaults.

    A mistake is said to stand in `origin`, or in the `--set` that made it.
    """
    settings = apply(choice, settings, overrides)
    try:
        resolved = choice.model_validate(settings)
    except ValidationError as failure:
        error = failure.errors()[0]
        place = locate(choice, settings, error["loc"])
        at = _where(place.path, origin, overrides)
        raise explain(error, place, at=at) from None
    for path, switch in _switches_as_numbers(settings, resolved):
        raise unwanted("a number", switch, at=_where(path, origin, overrides))
    return resolved


def _switches_as_numbers(settings: Any, value: Any, path: Path = ()) -> Iterator[tuple[Path, bool]]:
    # To pydantic True is the number 1, so that `max_steps: yes` would mean one step.
    if isinstance(settings, bool) and not isinstance(value, bool):
        yield path, settings
    elif isinstance(settings, dict) and isinstance(value, Choice):
        for name, inner in settings.items():
            yield from _switches_as_numbers(inner, getattr(value, name), (*path, name))
    elif isinstance(settings, list) and isinstance(value, list | tuple):
        for index, (inner, part) in enumerate(zip(settings, value, strict=False)):
            yield from _switches_as_numbers(inner, part, (*path, index))


def _where(path: Path, origin: str, overrides: Sequence[Override]) -> str:
    if not path:
        return origin
    name = ".".join(map(str, path))
    overridden = any(_meet(path, override.path) for override in overrides)
    return f"--set {name}" if overridden else f"{origin}: {name}"


def _meet(path: Path, override: Path) -> bool:
    if override[-1] == "kind":  # a new kind answers for all that stands beside it
        override = override[:-1]
    shared = min(len(path), len(override))
    return path[:shared] == override[:shared]

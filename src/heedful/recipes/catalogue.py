"""The catalogue: recipes by name, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from heedful.config import Settings, parse_override, read_settings, read_yaml, resolve
from heedful.errors import ConfigError, choose_from, did_you_mean
from heedful.recipes.schema import Recipe


class System(NamedTuple):
    """A recipe, and the same system at other sizes: `form` stands for the recipe `name-form`."""

    name: str
    forms: tuple[str, ...]


def recipe_names() -> list[str]:
    """The names of the recipes that come with heedful."""
    files = resources.files("heedful.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def systems() -> list[System]:
    """The recipes by system: first those of one size, then those that have other forms."""
    names = recipe_names()
    forms = {
        name: [each.removeprefix(f"{name}-") for each in names if each.startswith(f"{name}-")]
        for name in names
    }
    others = {f"{name}-{form}" for name in names for form in forms[name]}
    found = [System(name, tuple(forms[name])) for name in names if name not in others]
    return sorted(found, key=lambda system: bool(system.forms))


def recipe_text(name: str) -> str:
    """The YAML of a recipe that comes with heedful."""
    return resources.files("heedful.recipes").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Find a recipe by name or file, check it, and apply `a.b=c` overrides."""
    settings = _settings(name_or_path)
    changes = [parse_override(text) for text in overrides]
    return resolve(Recipe, settings, origin=name_or_path, overrides=changes)


def _settings(name_or_path: str) -> Settings:
    if name_or_path.endswith((".yaml", ".yml")):
        return read_settings(Path(name_or_path))
    names = recipe_names()
    if name_or_path in names:
        return read_yaml(recipe_text(name_or_path), origin=name_or_path)
    raise ConfigError(
        name_or_path,
        f"no recipe has this name{did_you_mean(name_or_path, names)}",
        f"{choose_from(names)}; or give a file that ends in .yaml",
    )

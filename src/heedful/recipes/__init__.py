"""Recipes: whole experiments, each a YAML file that says what to do from data to decoding."""

from heedful.recipes.catalogue import load_recipe, recipe_names
from heedful.recipes.schema import DataConfig, Recipe

__all__ = ["DataConfig", "Recipe", "load_recipe", "recipe_names"]

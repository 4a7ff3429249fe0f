"""Recipes: whole experiments as YAML files, from data to decoding."""

from heedful.recipes.recipe import DataConfig, Recipe, load_recipe, recipe_names

__all__ = ["DataConfig", "Recipe", "load_recipe", "recipe_names"]

"""Recipes: whole experiments as YAML files, from data to decoding; `recipe` has their schema."""

from heedful.recipes.recipe import DataConfig, Recipe, load_recipe, recipe_names

__all__ = ["DataConfig", "Recipe", "load_recipe", "recipe_names"]

"""Recipes: every file that comes with heedful can be used."""

import pytest

from heedful.config import read_yaml, resolve, write_yaml
from heedful.recipes import load_recipe, recipe_names
from tests.documents.markdown import ROOT

FILES = sorted((ROOT / "src" / "heedful" / "recipes").glob("*.yaml"))


def test_every_file_is_a_recipe_with_a_name():
    assert FILES
    assert recipe_names() == sorted(file.stem for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_loads_the_same_by_name_and_by_file(file):
    assert load_recipe(file.stem) == load_recipe(str(file))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_written_out_whole_is_the_same_recipe(file):
    recipe = load_recipe(file.stem)
    settings = read_yaml(write_yaml(recipe), origin="written")
    assert resolve(type(recipe), settings, origin="written") == recipe


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_says_what_it_is_for(file):
    assert load_recipe(file.stem).about.summary.endswith(".")

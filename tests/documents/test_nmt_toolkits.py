"""Every setting in the tables of docs/from-nmt-toolkits.md exists."""

import re

import pytest

from heedful.errors import HeedfulError
from heedful.recipes import load_recipe
from tests.documents.markdown import ROOT

PAGE = (ROOT / "docs" / "from-nmt-toolkits.md").read_text(encoding="utf-8")
ROWS = "\n".join(re.findall(r"^\|.*", PAGE, re.MULTILINE))
SETTINGS = sorted(
    set(re.findall(r"`((?:training|model|decoding|data|tokenizers)\.[a-z_.]+=[^`]*)`", ROWS))
)
BASES = ("luong-2015-general-small", "transformer-2017-small", "pointer-generator-2017-small")


def test_tables_have_settings():
    assert len(SETTINGS) > 40


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_valid_for_a_recipe(setting):
    errors = []
    for base in BASES:
        try:
            load_recipe(base, [setting])
        except HeedfulError as error:
            errors.append(str(error))
        else:
            return
    pytest.fail("\n".join(errors))


def test_recipes_of_the_tables_exist():
    names = re.findall(r"`((?:transformer|luong|see)-20\d\d[a-z0-9-]*)`", PAGE)
    assert names
    for name in names:
        load_recipe(name)

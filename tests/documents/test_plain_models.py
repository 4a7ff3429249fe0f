"""Pages that write a whole model in plain torch and assert that it equals its recipe."""

import pytest

from tests.documents.markdown import ROOT, python_of

PAGES = [ROOT / "docs" / "attention" / name for name in ("bahdanau.md", "transformer.md")]
each_page = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])


@each_page
def test_plain_model_equals_the_recipe(page):
    exec(compile(python_of(page.read_text("utf-8")), page, "exec"), {"__name__": page.stem})


@each_page
def test_model_of_page_is_plain_torch_that_can_be_read_at_once(page):
    model, comparison = page.read_text("utf-8").split("## The same numbers as the recipe")
    lines = [line for line in python_of(model + comparison).splitlines() if line]
    assert "heedful" not in python_of(model)
    assert len(lines) <= 120

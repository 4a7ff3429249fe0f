"""Recipes named after a paper have its numbers, and every other setting has a reason."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest

from heedful.recipes import load_recipe, recipe_names
from tests.documents import paper_numbers
from tests.documents.caption_numbers import CAPTION_NUMBERS
from tests.documents.mechanism_numbers import MECHANISM_NUMBERS
from tests.documents.paper_numbers import NOT_IN_PAPER
from tests.documents.parameter_counts import POINTER_GATE, PRINTED_COUNTS, num_parameters
from tests.documents.text_numbers import TEXT_NUMBERS

PAPER_NUMBERS = paper_numbers.PAPER_NUMBERS | MECHANISM_NUMBERS | CAPTION_NUMBERS | TEXT_NUMBERS
# Settings of this toolkit that no paper has.
ALWAYS_OURS = {
    "training.validate_every",
    "training.patience",
    "model.type",
    "evaluation.metrics",
}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings below a section with their dotted paths."""
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        items = enumerate(value)
    if not items:
        yield path, value
    for name, item in items:
        yield from leaves(item, f"{path}.{name}" if path else str(name))


def check_section(recipe, name, section):
    """Assert that a recipe has the numbers of one section of its paper."""
    settings = dict(leaves(recipe.model_dump()))
    for pattern, expected in PAPER_NUMBERS[name][section].items():
        matching = {path: value for path, value in settings.items() if fnmatchcase(path, pattern)}
        assert matching, f"{pattern}: no such setting"
        assert matching == dict.fromkeys(matching, expected), section


@pytest.mark.parametrize("name", PAPER_NUMBERS)
def test_recipe_has_the_numbers_of_the_paper(name):
    recipe = load_recipe(name)
    for section in PAPER_NUMBERS[name].keys() - {NOT_IN_PAPER}:
        check_section(recipe, name, section)


def test_every_recipe_named_after_a_paper_is_in_the_table():
    named = {name for name in recipe_names() if re.search(r"-20\d\d\b", name)}
    scaled = {name for name in named if re.search(r"-(small|tiny|multi30k|flickr8k)$", name)}
    assert PAPER_NUMBERS.keys() == named - scaled


@pytest.mark.parametrize("name", PAPER_NUMBERS)
def test_every_setting_of_a_paper_recipe_is_printed_or_has_a_reason(name):
    patterns = {pattern for rows in PAPER_NUMBERS[name].values() for pattern in rows}
    recipe = load_recipe(name).model_dump(exclude_unset=True, exclude={"info"})
    unexplained = [
        path
        for path, _ in leaves(recipe)
        if not any(fnmatchcase(path, pattern) for pattern in patterns | ALWAYS_OURS)
    ]
    assert unexplained == []


@pytest.mark.parametrize(
    ("name", "setting", "section"),
    [
        ("transformer-2017-base", "model.encoder.num_layers=5", "3.1"),
        ("transformer-2017-base", "training.label_smoothing=0.3", "5.4"),
        ("gnmt-2016", "model.decoder.first_residual_layer=2", "3.1"),
        ("gnmt-2016", "model.encoder.connection.first_residual_layer=2", "3.1"),
        ("gnmt-2016", "decoding.pruning.token_threshold=null", "7"),
        ("moe-2017", "model.encoder.experts.gating=noisy-top-k", "appendix F"),
        ("moe-2017", "model.decoder.experts.num_experts=1024", "appendix E"),
        ("moe-2017", "model.decoder.cell.cell_state_size=1024", "appendix E"),
        ("moe-2017", "model.decoder.attention.score.type=additive", "appendix G"),
        ("dmca-2018", "training.max_grad_norm=1", "4.2.3"),
        ("gpt-2018", "model.lm_head_bias=true", "authors' code"),
    ],
)
def test_changed_number_is_noticed(name, setting, section):
    with pytest.raises(AssertionError):
        check_section(load_recipe(name, [setting]), name, section)


@pytest.mark.parametrize("name", PRINTED_COUNTS)
def test_parameter_count_is_derived_from_the_matrices_and_that_of_the_paper(name):
    count = PRINTED_COUNTS[name]
    assert num_parameters(name) == count.derived
    is_close = count.derived == pytest.approx(count.printed, rel=0.01)
    assert is_close == (count.reason is None), f"{count.derived:,} of {count.source}"


def test_pointer_adds_as_many_parameters_as_in_the_paper():
    names = ("pointer-generator-2017", "see-2017-coverage")
    with_pointer, without = map(num_parameters, names)
    assert with_pointer - without == POINTER_GATE == 1_153  # section 5

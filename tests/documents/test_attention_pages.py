"""Pages of mechanisms: each kind has one, and what it says is so."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from heedful.attention.additive_scores import ScoreFeatureConfig
from heedful.attention.auxiliary_losses import AttentionLossConfig
from heedful.attention.composite_scores import ScoreConfig
from heedful.attention.config import AlignmentConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.attention.readouts import ReadoutConfig
from heedful.config import BaseConfig, read_yaml, validate_settings
from heedful.config.base import configs_of, type_of, types_in
from heedful.recipes import Recipe
from tests.documents.markdown import ROOT, blocks, links, name_of
from tools.draw_attention import MASKS, PAGES, SOURCE, as_feed_forward, picture_of

FAMILIES = {
    "scores": ScoreConfig,
    "features": ScoreFeatureConfig,
    "alignments": AlignmentConfig,
    "readouts": ReadoutConfig,
    "positions": PositionalEncodingConfig,
    "penalties": AttentionLossConfig,
}
KINDS = {
    PAGES / family / f"{type_of(member)}.md": member
    for family, union in FAMILIES.items()
    for member in types_in(union)
}
HEADS = PAGES / "heads.md"
WRITTEN = sorted(page for family in FAMILIES for page in (PAGES / family).glob("*.md"))
# Quick to draw, and between them every way of drawing.
REDRAWN = [
    *(PAGES / "scores" / name for name in ("dot.md", "gaussian.md", "linear.md")),
    PAGES / "features" / "last-context.md",
    PAGES / "alignments" / "sparsemax.md",
    PAGES / "positions" / "sinusoidal.md",
    MASKS,
]
NEAR = 0.02  # fitted elsewhere, a weight may differ in its last digits

each_kind = pytest.mark.parametrize("page", WRITTEN, ids=name_of)
each_page = pytest.mark.parametrize("page", [*WRITTEN, HEADS], ids=name_of)
each_page_and_masks = pytest.mark.parametrize("page", [*WRITTEN, HEADS, MASKS], ids=name_of)


@cache
def tokenizer_from(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def settings_of(page: Path) -> list[dict[str, Any]]:
    texts = [block.text for block in blocks(tokenizer_from(page)) if block.language == "yaml"]
    return [read_yaml(text, location=name_of(page)) for text in texts]


def kinds_in(settings: Any) -> set[str]:
    """All kinds that settings name, however deep."""
    inner = settings.values() if isinstance(settings, dict) else settings
    if not isinstance(settings, dict | list):
        return set()
    own = {settings["kind"]} if isinstance(settings, dict) and "kind" in settings else set()
    return own.union(*map(kinds_in, inner))


def paragraph(page: Path, name: str) -> str:
    found = re.search(
        rf"^\*\*{name}\*\*(.*?)(?=\n\n|\Z)", tokenizer_from(page), re.MULTILINE | re.DOTALL
    )
    assert found, f"no paragraph begins with **{name}**"
    return found[1]


def table_of(page: Path) -> dict[str, str]:
    """The settings that a page lists, with their defaults."""
    found = re.search(
        r"^\| setting \| default \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)",
        tokenizer_from(page),
        re.MULTILINE,
    )
    rows = found[1].splitlines() if found else []
    cells = [[cell.strip().strip("`") for cell in row.split("|")[1:3]] for row in rows]
    return dict(cells)


def has_setting(choice: type[BaseConfig], path: list[str]) -> bool:
    """Whether a choice, or one that it holds, has a setting: `baseline.momentum`, say."""
    if len(path) == 1:
        return path[0] in choice.model_fields
    return any(has_setting(inner, path[1:]) for inner in configs_of(choice, path[0]))


def test_every_kind_has_a_page_and_every_page_is_of_a_kind():
    assert [name_of(page) for page in WRITTEN] == sorted(map(name_of, KINDS))


@each_page
def test_a_page_has_all_its_parts_in_order(page):
    text = tokenizer_from(page)
    parts = [r"# \w", "```text", r"!\[", r"\*\*Good at\*\*", r"\*\*Bad at\*\*", r"\*\*Source\*\*"]
    parts += [r"\*\*Choose it\*\*", "```yaml", r"\*\*In code\*\*"]
    places = [re.search(rf"^{part}", text, re.MULTILINE) for part in parts]
    assert [part for part, place in zip(parts, places, strict=True) if place is None] == []
    starts = [place.start() for place in places]
    assert starts == sorted(starts)
    assert starts[0] == 0


@each_page
def test_a_page_shows_its_picture(page):
    shown = [page.parent / link for link in links(tokenizer_from(page)) if link.endswith(".svg")]
    assert [picture.resolve() for picture in shown] == [picture_of(page)]
    assert picture_of(page).exists()


@each_kind
def test_the_yaml_of_a_page_chooses_its_kind(page):
    assert settings_of(page)
    for settings in settings_of(page):
        assert page.stem in kinds_in(settings)


@each_page
def test_a_model_can_be_built_from_the_yaml_of_a_page(page):
    for settings in settings_of(page):
        recipe = validate_settings(Recipe, settings, location=name_of(page))
        recipe.model.build(source_vocab_size=9, target_vocab_size=9)


@each_page
def test_a_page_lists_the_settings_of_its_kind_with_their_defaults(page):
    choice = MultiHeadConfig if page == HEADS else KINDS[page]
    fields = {name: field for name, field in choice.model_fields.items() if name != "kind"}
    table = table_of(page)
    assert [name for name in table if "." not in name] == list(fields)
    for name in table:
        assert has_setting(choice, name.split(".")), name
    for name, field in fields.items():
        if isinstance(field.default, bool | int | float | str):
            assert yaml.safe_load(table[name]) == field.default, name


@each_page_and_masks
def test_the_code_that_a_page_names_exists(page):
    told = paragraph(page, "In code")
    places = re.findall(r"`(\w+)` in\s+`([\w/]+\.py)`", told)
    assert places
    for name, file in places:
        source = (ROOT / "src" / "heedful" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:class|def) {name}\b", source, re.MULTILINE), name
    tests = re.findall(r"tests/[\w/]+\.py", told)
    assert tests
    assert [test for test in tests if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("page", REDRAWN, ids=name_of)
def test_pictures_are_what_is_drawn_today(page):
    drawn = dict(as_feed_forward(page))
    assert drawn
    for picture, attention_map in drawn.items():
        shown = re.findall(r'data-weight="([^"]+)"', picture.read_text(encoding="utf-8"))
        today = attention_map.weights.flatten().tolist()
        assert [float(weight) for weight in shown] == pytest.approx(today, abs=NEAR)


def test_every_picture_is_shown_and_every_mask_has_one():
    shown = {
        (page.parent / link).resolve()
        for page in PAGES.rglob("*.md")
        for link in links(tokenizer_from(page))
        if link.endswith(".svg")
    }
    assert {picture for picture in (PAGES / "images").iterdir() if picture not in shown} == set()
    assert {picture for picture, _ in as_feed_forward(MASKS) if picture not in shown} == set()


def test_the_pictures_of_masks_are_as_wide_as_the_sentence():
    for _, attention_map in as_feed_forward(MASKS):
        assert attention_map.weights.shape == (len(SOURCE), len(SOURCE))

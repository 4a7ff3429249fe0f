"""Pages of docs/attention: one for every type, with right YAML, settings, code and figure."""

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from heedful.attention.additive_scores import ScoreFeatureConfig
from heedful.attention.auxiliary_losses import AttentionLossConfig
from heedful.attention.config import AlignmentConfig, ScoreConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.attention.readouts import ReadoutConfig
from heedful.config import BaseConfig, read_yaml, validate_settings
from heedful.config.base import configs_of, type_of, types_in
from heedful.models.recurrent.adaptive import AdaptiveWiringConfig
from heedful.recipes import Recipe
from tests.documents.markdown import ROOT, blocks, links, name_of
from tools.draw_attention import MASKS, PAGES, SOURCE, figure_path, figures_of, value_figures
from tools.draw_captions import PAGE as CAPTIONS_PAGE
from tools.draw_captions import decoders_of_page

FAMILIES = {
    "scores": ScoreConfig,
    "features": ScoreFeatureConfig,
    "alignments": AlignmentConfig,
    "readouts": ReadoutConfig,
    "positions": PositionalEncodingConfig,
    "auxiliary-losses": AttentionLossConfig,
}
CONFIGS = {
    PAGES / family / f"{type_of(member)}.md": member
    for family, union in FAMILIES.items()
    for member in types_in(union)
}
# Pages of mechanisms that are no member of a family.
OTHER_CONFIGS = {
    PAGES / "multi-head.md": MultiHeadConfig,
    PAGES / "sentinel.md": AdaptiveWiringConfig,
}
TYPE_PAGES = sorted(page for family in FAMILIES for page in (PAGES / family).glob("*.md"))
# Quick to draw, and together they cover all kinds of figures.
REDRAWN_PAGES = [
    *(PAGES / "scores" / name for name in ("dot.md", "gaussian.md", "linear.md")),
    PAGES / "sentinel.md",
    PAGES / "features" / "last-context.md",
    PAGES / "alignments" / "sparsemax.md",
    PAGES / "positions" / "sinusoidal.md",
    MASKS,
]
TOLERANCE = 0.02  # weights fitted on another machine differ slightly

each_type_page = pytest.mark.parametrize("page", TYPE_PAGES, ids=name_of)
each_page = pytest.mark.parametrize("page", [*TYPE_PAGES, *OTHER_CONFIGS], ids=name_of)
each_page_and_masks = pytest.mark.parametrize(
    "page", [*TYPE_PAGES, *OTHER_CONFIGS, MASKS], ids=name_of
)


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def settings_of(page: Path) -> list[dict[str, Any]]:
    texts = [block.text for block in blocks(text_of(page)) if block.language == "yaml"]
    return [read_yaml(text, location=name_of(page)) for text in texts]


def types_in_settings(settings: Any) -> set[str]:
    """Return all `type` values in nested settings."""
    inner = settings.values() if isinstance(settings, dict) else settings
    if not isinstance(settings, dict | list):
        return set()
    types = {settings["type"]} if isinstance(settings, dict) and "type" in settings else set()
    return types.union(*map(types_in_settings, inner))


def paragraph(page: Path, name: str) -> str:
    match = re.search(rf"^\*\*{name}\*\*(.*?)(?=\n\n|\Z)", text_of(page), re.MULTILINE | re.DOTALL)
    assert match, f"no paragraph begins with **{name}**"
    return match[1]


def table_of(page: Path) -> dict[str, str]:
    """Return the settings in the table of a page, with their defaults."""
    match = re.search(
        r"^\| setting \| default \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)",
        text_of(page),
        re.MULTILINE,
    )
    rows = match[1].splitlines() if match else []
    cells = [[cell.strip().strip("`") for cell in row.split("|")[1:3]] for row in rows]
    return dict(cells)


def has_setting(config_class: type[BaseConfig], path: list[str]) -> bool:
    """Return whether a config or a nested one has a setting such as `baseline.momentum`."""
    if len(path) == 1:
        return path[0] in config_class.model_fields
    return any(has_setting(inner, path[1:]) for inner in configs_of(config_class, path[0]))


def test_every_type_has_a_page_and_every_page_a_type():
    assert [name_of(page) for page in TYPE_PAGES] == sorted(map(name_of, CONFIGS))


@each_page
def test_page_has_all_parts_in_order(page):
    text = text_of(page)
    parts = [
        r"# \w",
        "```math",
        r"!\[",
        r"\*\*Strengths\*\*",
        r"\*\*Weaknesses\*\*",
        r"\*\*Source\*\*",
    ]
    parts += [r"\*\*Configuration\*\*", "```yaml", r"\*\*In code\*\*"]
    matches = [re.search(rf"^{part}", text, re.MULTILINE) for part in parts]
    assert [part for part, match in zip(parts, matches, strict=True) if match is None] == []
    starts = [match.start() for match in matches]
    assert starts == sorted(starts)
    assert starts[0] == 0


@each_page
def test_page_shows_the_figure(page):
    shown = [page.parent / link for link in links(text_of(page)) if link.endswith(".svg")]
    first, *others = [path.resolve() for path in shown]
    assert first == figure_path(page)
    assert [path for path in others if not path.stem.startswith(first.stem)] == []
    assert all(path.exists() for path in (first, *others))


@each_type_page
def test_yaml_of_page_selects_type(page):
    assert settings_of(page)
    for settings in settings_of(page):
        assert page.stem in types_in_settings(settings)


@each_page
def test_yaml_of_page_builds_a_model(page):
    for settings in settings_of(page):
        recipe = validate_settings(Recipe, settings, location=name_of(page))
        model = recipe.model.build(source_vocab_size=9, target_vocab_size=9)
        assert any(parameter.numel() for parameter in model.parameters())


@each_page
def test_page_lists_settings_with_defaults(page):
    config_class = {**CONFIGS, **OTHER_CONFIGS}[page]
    fields = {name: field for name, field in config_class.model_fields.items() if name != "type"}
    table = table_of(page)
    assert [name for name in table if "." not in name] == list(fields)
    for name in table:
        assert has_setting(config_class, name.split(".")), name
    for name, field in fields.items():
        if isinstance(field.default, bool | int | float | str):
            assert yaml.safe_load(table[name]) == field.default, name


@each_page_and_masks
def test_code_named_on_page_exists(page):
    code = paragraph(page, "In code")
    matches = re.findall(r"`(\w+)` in\s+`([\w/]+\.py)`", code)
    assert matches
    for name, file in matches:
        source = (ROOT / "src" / "heedful" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:class|def) {name}\b", source, re.MULTILINE), name
    tests = re.findall(r"tests/[\w/]+\.py", code)
    assert tests
    assert [test for test in tests if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("page", REDRAWN_PAGES, ids=name_of)
def test_figures_match_current_code(page):
    figures = dict(figures_of(page))
    assert figures
    for path, attention_map in figures.items():
        shown = re.findall(r'data-weight="([^"]+)"', path.read_text(encoding="utf-8"))
        current = attention_map.weights.flatten().tolist()
        assert [float(weight) for weight in shown] == pytest.approx(current, abs=TOLERANCE)


def test_sines_drawn_dimension_against_position():
    ((path, drawing),) = value_figures(PAGES / "positions" / "sinusoidal.md")
    assert path.read_text(encoding="utf-8") == drawing
    cells = re.findall(r'd="M(\d+) (\d+)h8v8h-8z" fill="(\S+)" opacity="(\S+)"', drawing)
    assert len(cells) == 40 * 32
    for x, y, color, opacity in cells:
        position, dimension = int(x) // 8, int(y) // 8
        angle = position / 10000 ** (dimension // 2 * 2 / 32)
        value = math.cos(angle) if dimension % 2 else math.sin(angle)
        assert float(opacity) == pytest.approx(abs(value), abs=0.006)
        assert abs(value) < 0.01 or (value > 0) == (color == "#e66100")


def test_every_figure_is_shown():
    shown = {
        (page.parent / link).resolve()
        for page in PAGES.rglob("*.md")
        for link in links(text_of(page))
        if link.endswith(".svg")
    }
    assert {path for path in (PAGES / "images").iterdir() if path not in shown} == set()
    assert {path for path, _ in figures_of(MASKS) if path not in shown} == set()


def test_caption_figures_are_those_of_the_decoders_on_page():
    images = CAPTIONS_PAGE.parent / "images"
    drawn = {images / f"captioning-{name}.svg" for name in decoders_of_page()}
    assert drawn == set(images.glob("captioning-*.svg"))
    for path in drawn:
        assert "a green and a red square" in path.read_text(encoding="utf-8")


def test_mask_figures_have_size_of_sentence():
    for _, attention_map in figures_of(MASKS):
        assert attention_map.weights.shape == (len(SOURCE), len(SOURCE))

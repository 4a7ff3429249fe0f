import re
from xml.etree import ElementTree

import numpy as np
import pytest

from heedful.inspection.attention_map import (
    MAX_COLUMNS,
    MAX_COLUMNS_WITH_DIGITS,
    AttentionMap,
    render_svg,
)
from heedful.plotting.svg import DARK, LIGHT, join_documents

NAMESPACE = "{http://www.w3.org/2000/svg}"


def parse(attention_map):
    return ElementTree.fromstring(render_svg(attention_map))


def of_class(root, tag, name):
    return [node for node in root.iter(NAMESPACE + tag) if name in node.get("class", "").split()]


def cells_of(root):
    return [node for node in of_class(root, "rect", "full-cell") if "data-weight" in node.attrib]


def test_cells_carry_weights(latin):
    cells = cells_of(parse(latin))
    weights = np.array([float(cell.get("data-weight")) for cell in cells])
    np.testing.assert_allclose(weights.reshape(latin.weights.shape), latin.weights, rtol=5e-4)
    assert [cell.get("fill-opacity") for cell in cells] == [c.get("data-weight") for c in cells]


def test_rows_are_target_tokens_and_columns_source_tokens(latin):
    all_cells = cells_of(parse(latin))
    cells = [all_cells[start : start + 7] for start in range(0, 70, 7)]
    for row in cells:
        assert len({cell.get("y") for cell in row}) == 1
        assert [float(cell.get("x")) for cell in row] == sorted(float(c.get("x")) for c in row)
    assert cells[1][4].find(f"{NAMESPACE}title").text == "girl \u2192 puella: 0.93"
    heights = [float(row[0].get("y")) for row in cells]
    assert heights == sorted(heights)


def test_tokens_and_percentages_are_labels(latin):
    root = parse(latin)
    assert [node.text for node in of_class(root, "text", "source")] == latin.source
    assert [node.text for node in of_class(root, "text", "target")] == latin.target
    digits = [node.text for node in of_class(root, "text", "digits")]
    assert digits[14:21] == ["3", "1", "1", "2", "8", "82", "3"]
    assert digits[-7:] == [None, None, None, None, None, None, "100"]


def test_svg_has_a_title_and_a_description(latin):
    root = parse(latin)
    assert root.get("role") == "img"
    assert root[0].tag == f"{NAMESPACE}title"
    assert root[0].text == "Latin to English"
    assert root[1].text.startswith(
        "The largest attention weight of each output token. The: puella 88%; girl: puella 93%;"
    )


def test_svg_markup_in_tokens_is_escaped(hostile):
    root = parse(hostile)
    assert {node.tag.removeprefix(NAMESPACE) for node in root.iter()} == {
        *("svg", "title", "desc", "style", "rect", "text", "g")
    }
    sources = [node.text for node in of_class(root, "text", "source")]
    assert sources[2:7] == ["&amp;", "]]>", "\\u202eevil", "\\x00\\x1b[31m\\n\\t", "\\ud800"]
    assert sources[-1] == "w" * 23 + "\u2026"
    assert root[0].text == "<script>& \\u202e"
    last = cells_of(root)[-1].find(f"{NAMESPACE}title")
    assert last.text == f"<b>'bold'</b> \u2192 {'w' * 200}: 0.06"


def test_document_has_no_external_references(latin):
    text = render_svg(latin)
    assert re.findall(r"\w+://[^\"\s]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|<script", text)


def test_style_has_both_palettes(latin):
    light, dark = parse(latin).find(f"{NAMESPACE}style").text.split("prefers-color-scheme: dark")
    assert f".full-cell {{ fill: {LIGHT.full_cell}; }}" in light
    assert f".full-cell {{ fill: {DARK.full_cell}; }}" in dark


@pytest.mark.parametrize("columns", [MAX_COLUMNS_WITH_DIGITS, MAX_COLUMNS_WITH_DIGITS + 1])
def test_wide_map_keeps_weights_without_digits(columns):
    root = parse(AttentionMap(["a"] * columns, ["x"], np.full((1, columns), 1 / columns)))
    assert len(cells_of(root)) == columns
    digits = of_class(root, "text", "digits")
    assert len(digits) == (columns if columns <= MAX_COLUMNS_WITH_DIGITS else 0)


def test_single_cell_is_drawn():
    (cell,) = cells_of(parse(AttentionMap(["a"], ["x"], np.ones((1, 1)))))
    assert cell.get("data-weight") == "1"


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 2), (3, 0)])
def test_empty_map_has_a_note(rows, columns):
    root = parse(AttentionMap(["a"] * columns, ["x"] * rows, np.zeros((rows, columns))))
    assert [node.text for node in root.iter(f"{NAMESPACE}text")] == ["nothing to draw"]


def test_long_source_is_cut_into_bands_with_all_weights():
    size = 2 * MAX_COLUMNS + 22
    weights = np.random.default_rng(0).dirichlet(np.ones(size), size=3)
    source = [f"word{index}" for index in range(size)]
    long = AttentionMap(source, ["a", "b", "c"], weights, title="A text", caption="mean of heads")
    root = parse(long)
    bands = [node for node in root if node.tag == f"{NAMESPACE}svg"]
    drawn = [[float(cell.get("data-weight")) for cell in cells_of(band)] for band in bands]
    joined = np.concatenate([np.reshape(cells, (3, -1)) for cells in drawn], axis=1)
    np.testing.assert_allclose(joined, weights, rtol=5e-4, atol=5e-5)
    assert [node.text for node in of_class(root, "text", "source")] == source
    assert [node.text for node in of_class(root, "text", "title")] == ["A text"]
    assert [node.text for node in of_class(root, "text", "note") if "tokens" in node.text] == [
        "mean of heads, source tokens 1 to 64",
        "source tokens 65 to 128",
        "source tokens 129 to 150",
    ]
    both = ElementTree.fromstring(join_documents([render_svg(long), render_svg(long)]))
    assert len(cells_of(both)) == 2 * 3 * size


def test_mark_of_a_space_is_faint():
    root = parse(AttentionMap(["\u2581a", "b"], ["\u2581"], np.array([[0.5, 0.5]])))
    (marked, plain), (alone,) = (of_class(root, "text", name) for name in ("source", "target"))
    (mark,) = marked
    assert (mark.get("class"), mark.text, mark.tail, marked.text) == (
        "space-mark",
        "\u2581",
        "a",
        None,
    )
    assert (plain.text, alone.text) == ("b", "\u2581")


def test_description_and_bands_name_the_axes():
    names = ("query", "key")
    weights = np.full((1, MAX_COLUMNS + 1), 1 / (MAX_COLUMNS + 1))
    words = ["a"] * (MAX_COLUMNS + 1)
    svg = render_svg(AttentionMap(words, ["x"], weights, axis_names=names))
    assert "key tokens 1 to 64" in svg
    assert "The largest attention weight of each query token." in svg

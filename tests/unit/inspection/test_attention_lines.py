"""Lines between tokens: their thickness, their ends, and what fits into a terminal."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.cells import cell_len

from heedful.inspection.attention_lines import MAX_THICKNESS, render_svg, terminal_lines
from heedful.inspection.attention_map import AttentionMap
from heedful.plotting.svg import NOTHING_TO_DRAW

NAMESPACE = "{http://www.w3.org/2000/svg}"
PAIR = AttentionMap(["x", "y"], ["u"], np.array([[0.25, 0.75]]))
BRAILLE = re.compile("[\u2801-\u28ff]")


def of_class(root, tag, name):
    return [node for node in root.iter(NAMESPACE + tag) if node.get("class") == name]


def lines_of(root):
    return [line for line in of_class(root, "path", "line") if line.get("data-weight")]


def test_thickness_is_proportional_to_the_weight(latin):
    lines = lines_of(ElementTree.fromstring(render_svg(latin)))
    drawn = sorted(float(line.get("data-weight")) for line in lines)
    assert drawn == sorted(weight for weight in latin.weights.flatten() if weight >= 0.005)
    for line in lines:
        expected = MAX_THICKNESS * float(line.get("data-weight"))
        assert float(line.get("stroke-width")) == pytest.approx(expected, rel=1e-3)


def test_lines_join_the_steps_of_tokens(latin):
    root = ElementTree.fromstring(render_svg(latin))
    boxes = [
        [float(box.get(side)) for side in ("x", "y", "width", "height")]
        for box in of_class(root, "rect", "step")
    ]
    sources, outputs = boxes[: len(latin.source)], boxes[len(latin.source) :]
    assert [node.text for node in of_class(root, "text", "token")] == latin.source + latin.target
    for line in lines_of(root):
        pair = line.find(f"{NAMESPACE}title").text
        x1, y1, *_, x2, y2 = map(float, re.findall(r"-?[\d.]+", line.get("d")))
        output = next(box for box in outputs if abs(box[0] + box[2] / 2 - x1) < 0.11)
        source = next(box for box in sources if abs(box[0] + box[2] / 2 - x2) < 0.11)
        row, column = outputs.index(output), sources.index(source)
        weight = latin.weights[row, column]
        assert pair == f"{latin.target[row]} \u2192 {latin.source[column]}: {weight:.2f}"
        assert (y1, y2) == (pytest.approx(output[1]), pytest.approx(source[1] + source[3]))


def test_rows_have_the_names_of_the_axes():
    self_attention = AttentionMap(["x"], ["x"], np.ones((1, 1)), axis_names=("query", "key"))
    for attention, names in ((PAIR, ["source", "output"]), (self_attention, ["key", "query"])):
        notes = of_class(ElementTree.fromstring(render_svg(attention)), "text", "note")
        assert [note.text for note in notes][:2] == names


def test_heaviest_line_is_drawn_last(latin):
    weights = [
        float(line.get("data-weight"))
        for line in lines_of(ElementTree.fromstring(render_svg(latin)))
    ]
    assert weights == sorted(weights)


def test_markup_in_tokens_is_escaped(hostile):
    root = ElementTree.fromstring(render_svg(hostile))
    assert len(lines_of(root)) == hostile.weights.size
    assert not root.findall(f".//{NAMESPACE}script")


def test_empty_map_has_a_note():
    empty = AttentionMap.empty("a title")
    assert NOTHING_TO_DRAW in render_svg(empty)
    assert terminal_lines(empty, width=80).plain == NOTHING_TO_DRAW


def test_terminal_draws_rows_of_tokens_with_lines_between(latin):
    first, *canvas, last = terminal_lines(latin, width=100).plain.split("\n")[:12]
    assert first.split() == latin.source
    assert last.split() == latin.target
    assert len(canvas) == 10
    assert all(BRAILLE.search(line) for line in canvas)


def test_narrow_terminal_has_columns_of_tokens(latin):
    lines = terminal_lines(latin, width=40).plain.split("\n")[:19]
    outputs, sources = lines[::2], lines[3:16:2]  # of ten and seven tokens, centered
    assert [line.split()[-1] for line in outputs] == latin.target
    assert [line.split()[0] for line in sources] == latin.source


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_no_terminal_line_is_too_wide(latin, hostile, width):
    for attention_map in (latin, hostile, PAIR):
        lines = terminal_lines(attention_map, width=width).plain.split("\n")
        assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("weight", "dots"), [(1.0, 3), (0.8, 3), (0.79, 2), (0.5, 2), (0.49, 1), (0.2, 1), (0.04, 0)]
)
def test_terminal_thickness_grows_with_the_weight(weight, dots):
    drawn = terminal_lines(AttentionMap(["x"], ["u"], np.array([[weight]])), width=40).plain
    codes = [ord(character) - 0x2800 for character in BRAILLE.findall(drawn.split("\n\n")[0])]
    assert sum(code.bit_count() for code in codes) == dots * 40  # a vertical line of 40 dots


def test_light_weights_dotted():
    drawn = terminal_lines(AttentionMap(["x"], ["u"], np.array([[0.1]])), width=40).plain
    codes = [ord(character) - 0x2800 for character in BRAILLE.findall(drawn.split("\n\n")[0])]
    assert sum(code.bit_count() for code in codes) == 14  # every third of 40 dots

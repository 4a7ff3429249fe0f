"""Search trees as figures: positions, scores, and the path of the output."""

from xml.etree import ElementTree

import pytest

from heedful.decoding.search_tree import render_html, render_svg
from heedful.plotting.svg import NOTHING_TO_DRAW
from tests.unit.cli.test_show import TREE
from tests.unit.tasks.translation.test_output_files import build_translation

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def nodes():
    """The class, label, note and box of each node."""
    root = ElementTree.fromstring(render_svg(build_translation("a c", tree=TREE)))
    found = []
    for group in root.iter(f"{SVG}g"):
        box = [float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height")]
        label, note = (text.text or "" for text in group.findall(f"{SVG}text"))
        found.append((group.get("class"), label, note, box))
    return found


def test_nodes_have_tokens_scores_and_the_end(nodes):
    assert [node[:3] for node in nodes] == [
        ("node output", "(start)", ""),
        ("node output", "a", "-0.10"),
        ("node pruned", "b", "-2.00, pruned at -2.00"),
        ("node output", "c", "-0.20"),
        ("node continued", "[bold]", "-0.50"),
        ("node output", "(end)", "-1.00, finished at -1.30"),
        ("node finished", "(end)", "-0.10, finished at -0.90"),
    ]


def test_path_of_the_output_is_one_line_and_no_boxes_overlap(nodes):
    assert len({box[1] for css_class, *_, box in nodes if css_class == "node output"}) == 1
    boxes = [box for *_, box in nodes]
    for index, (x, y, width, height) in enumerate(boxes):
        for left, top, other_width, other_height in boxes[:index]:
            is_beside = x >= left + other_width or left >= x + width
            assert is_beside or y >= top + other_height or top >= y + height


def test_children_stand_one_step_to_the_right_of_parent(nodes):
    centers = [box[0] + box[2] / 2 for *_, box in nodes]
    depths = [0, 1, 1, 2, 3, 3, 4]
    columns = dict(zip(depths, centers, strict=True))
    assert centers == pytest.approx([columns[depth] for depth in depths], abs=0.11)
    assert list(columns.values()) == sorted(columns.values())


def test_empty_text_has_no_tree():
    empty = build_translation("", tree=[])
    assert NOTHING_TO_DRAW in render_svg(empty)
    assert NOTHING_TO_DRAW in render_html([empty], title="Search")

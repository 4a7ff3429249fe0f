"""Axes with names in place of numbers."""

import itertools
from xml.etree import ElementTree

import pytest

from heedful.plotting.axes import WIDTH, CategoryTick
from heedful.plotting.charts import LineSeries, render_line_chart

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(count, **options):
    ticks = [
        CategoryTick(place, f"{5 * place + 1}-{5 * place + 5}", f"n={place}")
        for place in range(count)
    ]
    line = LineSeries("a", [(place, place) for place in range(count)])
    root = ElementTree.fromstring(render_line_chart([line], category_ticks=ticks, **options))
    return [node for node in root.iter(f"{NAMESPACE}text") if node.get("class") == "tick middle"]


def test_category_ticks_are_evenly_spaced_below_points():
    names = [node for node in texts(4) if "data-value" in node.attrib]
    assert [node.text for node in names] == ["1-5", "6-10", "11-15", "16-20"]
    xs = [float(node.get("x")) for node in names]
    steps = [later - earlier for earlier, later in itertools.pairwise(xs)]
    assert steps == [pytest.approx(WIDTH / 4, abs=0.2)] * 3  # half a step of room on either side


def test_sublabel_is_below_the_tick():
    result = texts(3)
    for name, note in zip(result[::2], result[1::2], strict=True):
        assert note.text == f"n={name.get('data-value')}"
        assert note.get("x") == name.get("x")
        assert float(note.get("y")) > float(name.get("y")) + 10


def test_overlapping_category_ticks_thinned_evenly():
    result = [int(node.get("data-value")) for node in texts(60) if "data-value" in node.attrib]
    assert result == list(range(0, 60, result[1]))
    assert 5 < len(result) < 20

import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from heedful.errors import DataError
from heedful.plotting.charts import ScatterPoint, render_scatter_plot

NAMESPACE = "{http://www.w3.org/2000/svg}"
TOLERANCE = 0.11  # lengths are written to a tenth of a pixel


def draw(*points, **options):
    return ElementTree.fromstring(render_scatter_plot(points, **options))


def group(root, name):
    (result,) = [node for node in root.iter(f"{NAMESPACE}g") if node.get("data-name") == name]
    return result


def place(root, name):
    (mark,) = [node for node in group(root, name) if "data-x" in node.attrib]
    return tuple(map(float, re.match(r"translate\((\S+) (\S+)\)", mark.get("transform")).groups()))


def paths(root, css_class):
    return [
        node.get("d") for node in root.iter(f"{NAMESPACE}path") if node.get("class") == css_class
    ]


def test_equal_ratios_equal_distances_on_a_logarithmic_axis():
    root = draw(*(ScatterPoint(str(n), 3e13 * 2**n, n, n) for n in range(8)), is_logarithmic=True)
    xs = [place(root, str(n))[0] for n in range(8)]
    steps = [later - earlier for earlier, later in itertools.pairwise(xs)]
    assert steps == [pytest.approx(steps[0], abs=2 * TOLERANCE)] * 7
    assert steps[0] > 10


def test_equal_differences_equal_distances_on_linear_axes():
    root = draw(*(ScatterPoint(str(n), 5 * n, 7 - 3 * n, n) for n in range(4)))
    places = [place(root, str(n)) for n in range(4)]
    for axis in (0, 1):
        steps = [two[axis] - one[axis] for one, two in itertools.pairwise(places)]
        assert steps == [pytest.approx(steps[0], abs=2 * TOLERANCE)] * 3


def test_error_bars_span_the_errors():
    root = draw(
        ScatterPoint("a", 10, 4, 0, x_error=5, y_error=2),
        ScatterPoint("low", 5, 2, 1),
        ScatterPoint("high", 15, 6, 2),
    )
    low, high = place(root, "low"), place(root, "high")
    across, _, up, _ = paths(root, "error-bar")
    left, right = re.fullmatch(r"M(\S+),\S+ H(\S+)", across).groups()
    bottom, top = re.fullmatch(r"M\S+,(\S+) V(\S+)", up).groups()
    assert (float(left), float(right)) == pytest.approx((low[0], high[0]), abs=TOLERANCE)
    assert (float(bottom), float(top)) == pytest.approx((low[1], high[1]), abs=TOLERANCE)


def test_point_without_errors_has_no_error_bars():
    assert paths(draw(ScatterPoint("a", 1, 1, 0)), "error-bar") == []


def test_error_bar_to_zero_ends_at_the_edge_of_a_logarithmic_plot():
    root = draw(
        ScatterPoint("a", 10, 1, 0, x_error=10), ScatterPoint("b", 1, 1, 1), is_logarithmic=True
    )
    left, right = map(
        float, re.fullmatch(r"M(\S+),\S+ H(\S+)", paths(root, "error-bar")[0]).groups()
    )
    edge = min(
        float(node.get("x"))
        for node in root.iter(f"{NAMESPACE}text")
        if "middle" in node.get("class") and "data-value" in node.attrib
    )
    assert left == pytest.approx(edge, abs=TOLERANCE)
    distance = place(root, "a")[0] - place(root, "b")[0]
    assert right - place(root, "a")[0] == pytest.approx(distance * math.log10(2), abs=2 * TOLERANCE)


def test_guide_line_passes_through_the_points():
    root = draw(
        ScatterPoint("a", 1, 1, 0), ScatterPoint("b", 2, 5, 1), guide_line=[(1, 1), (2, 1), (2, 5)]
    )
    (path,) = paths(root, "guide")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+),([\d.]+)", path)]
    (left, low), (right, high) = place(root, "a"), place(root, "b")
    assert corners == [(left, low), (right, low), (right, high)]
    assert paths(draw(ScatterPoint("a", 1, 1, 0), guide_line=[(1, 1)]), "guide") == []


def test_plot_has_a_description():
    root = draw(
        ScatterPoint("one", 1e14, 30.5, 0),
        ScatterPoint("<two>", 2e14, 31, 1),
        x_label="FLOPs",
        y_label="BLEU",
    )
    assert root[1].text == "BLEU against FLOPs. one: 30.5 at 1e+14; <two>: 31 at 2e+14."
    assert group(root, "<two>").find(f"{NAMESPACE}text").text == "<two>"


def test_plot_without_points_has_a_note():
    root = draw(title="Nothing")
    assert [node.text for node in root.iter(f"{NAMESPACE}text")] == ["Nothing", "nothing to draw"]


def test_invalid_points_reported():
    with pytest.raises(DataError) as error:
        draw(ScatterPoint("a", 0, 1, 0), is_logarithmic=True)
    assert str(error.value) == (
        "chart, point 'a': x must be positive on a logarithmic axis, but is 0\n"
        "  leave the point out, or make the x axis linear"
    )
    with pytest.raises(DataError, match="31 points cannot be told apart"):
        draw(*(ScatterPoint(str(n), n, n, n) for n in range(31)))

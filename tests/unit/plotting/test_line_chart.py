import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from heedful.errors import DataError
from heedful.plotting.axes import NAME_HEIGHT, PlotFrame, format_ticks
from heedful.plotting.charts import (
    DARK_LINE_COLORS,
    LIGHT_LINE_COLORS,
    MARKER_PATHS,
    MAX_LINES,
    ChartEvent,
    LineSeries,
    render_line_chart,
)
from heedful.plotting.svg import DARK, LIGHT
from tests.unit.plotting.colors import contrast, linear_rgb

NAMESPACE = "{http://www.w3.org/2000/svg}"
TOLERANCE = 0.051  # lengths are written to a tenth of a pixel


def draw(*lines, **options):
    return ElementTree.fromstring(render_line_chart(lines, **options))


def of_class(root, tag, name):
    return [node for node in root.iter(NAMESPACE + tag) if name in node.get("class", "").split()]


def groups(root):
    return [node for node in root.iter(f"{NAMESPACE}g") if "data-name" in node.attrib]


def points(group):
    return [node for node in of_class(group, "path", "marker") if "data-x" in node.attrib]


def place(mark):
    return tuple(
        map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", mark.get("transform")).groups())
    )


def ticks(root, side):
    """Value, x and y of each tick: those below the plot are in the middle of their place."""
    result = of_class(root, "text", {"x": "middle", "y": "end"}[side])
    return [
        (float(node.get("data-value")), float(node.get("x")), float(node.get("y")))
        for node in result
        if "data-value" in node.attrib
    ]


def values(root, side):
    return [value for value, _, _ in ticks(root, side)]


def labels(root, side):
    result = of_class(root, "text", {"x": "middle", "y": "end"}[side])
    return [node.text for node in result if "data-value" in node.attrib]


def between(value, low, high, start, end):
    return start + (end - start) * (value - low) / (high - low)


def expected_places(root, xs, ys, scale_x=float, scale_y=float):
    (low_x, left, _), *_, (high_x, right, _) = ticks(root, "x")
    (low_y, _, bottom), *_, (high_y, _, top) = ticks(root, "y")
    return [
        (
            between(scale_x(x), scale_x(low_x), scale_x(high_x), left, right),
            # Letters stand 4 pixels below the middle of their line.
            between(scale_y(y), scale_y(low_y), scale_y(high_y), bottom, top) - 4,
        )
        for x, y in zip(xs, ys, strict=True)
    ]


# --- where points stand --------------------------------------------------------------------


def test_markers_are_at_values():
    xs, ys = [0, 1, 2.5, 4], [-3, 7, 0, 2.2]
    root = draw(LineSeries("a", list(zip(xs, ys, strict=True))))
    (group,) = groups(root)
    result = points(group)
    assert [(float(p.get("data-x")), float(p.get("data-y"))) for p in result] == [
        *zip(xs, ys, strict=True)
    ]
    for mark, expected in zip(points(group), expected_places(root, xs, ys), strict=True):
        assert place(mark) == pytest.approx(expected, abs=2 * TOLERANCE)


def test_equal_ratios_equal_distances_on_logarithmic_axes():
    xs, ys = [10, 20, 40, 80], [1e-9, 1e-6, 1e-3, 1]
    root = draw(LineSeries("a", list(zip(xs, ys, strict=True))), log_axes=(True, True))
    places = [place(mark) for mark in points(groups(root)[0])]
    for mark, expected in zip(
        places, expected_places(root, xs, ys, math.log, math.log), strict=True
    ):
        assert mark == pytest.approx(expected, abs=2 * TOLERANCE)
    steps = [
        (later[0] - earlier[0], later[1] - earlier[1])
        for earlier, later in itertools.pairwise(places)
    ]
    assert steps == [pytest.approx(steps[0], abs=0.3)] * 3


def test_line_passes_through_the_markers():
    root = draw(LineSeries("a", [(0, 1), (1, 3), (2, 2)]))
    (group,) = groups(root)
    path = of_class(group, "path", "line")[0].get("d")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+),([\d.]+)", path)]
    assert corners == [place(mark) for mark in points(group)]


def test_missing_y_leaves_a_gap():
    root = draw(LineSeries("a", [(0, 1), (1, 2), (2, None), (3, 4), (4, 5)]))
    (group,) = groups(root)
    assert [mark.get("data-x") for mark in points(group)] == ["0", "1", "3", "4"]
    path = of_class(group, "path", "line")[0].get("d")
    assert re.sub(r"[^ML]", "", path) == "MLML"


@pytest.mark.parametrize("logarithmic", [(False, False), (True, True)])
@pytest.mark.parametrize("value", [1, 10, 0.37, 5000, 1e-30])
def test_single_point_is_inside_the_plot(value, logarithmic):
    root = draw(LineSeries("a", [(value, value)]), log_axes=logarithmic)
    (mark,) = points(groups(root)[0])
    for side in "xy":
        result = values(root, side)
        assert result[0] <= value <= result[-1]
        assert result[0] < result[-1]
    assert place(mark)[0] >= ticks(root, "x")[0][1] - TOLERANCE


@pytest.mark.parametrize("value", [0, -4, 1e9])
def test_constant_line_is_level_and_away_from_the_edges(value):
    root = draw(LineSeries("a", [(0, value), (1, value)]))
    (first, _), (second, _) = (place(mark)[::-1] for mark in points(groups(root)[0]))
    assert first == second
    assert values(root, "y")[0] < value < values(root, "y")[-1]


# --- axes ----------------------------------------------------------------------------------


def test_ticks_labeled():
    root = draw(LineSeries("a", [(0, 20_000), (1, 0)]))
    assert (
        labels(root, "x")
        == format_ticks(values(root, "x"))
        == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    )
    assert labels(root, "y") == ["0", "5,000", "10,000", "15,000", "20,000"]


def test_zero_has_an_axis_line_among_negative_values():
    root = draw(LineSeries("a", [(0, -1), (1, 1)]))
    (zero,) = [y - 4 for value, _, y in ticks(root, "y") if value == 0]
    heights = [float(p.get("d").split(",")[1].split()[0]) for p in of_class(root, "path", "axis")]
    assert zero in heights


# --- how lines are told apart --------------------------------------------------------------


def spread(*ends):
    root = draw(*(LineSeries(f"line {end}", [(0, 0), (1, end)]) for end in ends))
    return root, [float(node.get("y")) for node in of_class(root, "text", "name")]


@pytest.mark.parametrize(
    "ends", [(1, 1, 1), (1, 1.01, 5, 5.02, 5.03), (0, 0, 0), tuple(range(20)), (3,) * 20]
)
def test_names_do_not_overlap_and_are_right_of_the_plot(ends):
    root, heights = spread(*ends)
    gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(heights))]
    assert all(gap >= NAME_HEIGHT - 2 * TOLERANCE for gap in gaps)
    (_, _, bottom), *_, (_, _, top) = ticks(root, "y")
    assert top - 2 <= min(heights) <= max(heights) <= bottom + 2


def test_names_ordered_by_the_ends_of_lines():
    _, heights = spread(5, 1, 4.9, 5.1)
    assert sorted(range(4), key=heights.__getitem__) == [3, 0, 2, 1]


def test_name_is_at_the_end_of_the_line_if_there_is_space():
    root, (height, _) = spread(5, 0)
    assert height - 5 == pytest.approx(place(points(groups(root)[0])[-1])[1], abs=2 * TOLERANCE)


def test_line_styles_are_unique():
    root = draw(*(LineSeries(str(i), [(0, i)]) for i in range(MAX_LINES)))
    styles = {(group.get("class"), points(group)[0].get("d")) for group in groups(root)}
    assert len(styles) == MAX_LINES == 30
    assert len({*MARKER_PATHS}) == len(MARKER_PATHS)


def test_dashed_line_is_dashed_in_the_legend():
    dashed, plain = groups(draw(LineSeries("a", [(0, 1)], dashed=True), LineSeries("b", [(0, 2)])))
    assert [node.get("class") for node in of_class(dashed, "path", "line")] == ["line dashed"] * 2
    assert [node.get("class") for node in of_class(plain, "path", "line")] == ["line"] * 2


# Linear RGB as seen without the red or the green cones (Vienot, Brettel & Mollon 1999).
CONE_TYPES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def lab_color(color, matrix):
    """A color as L*, a*, b* (CIE 1976), after the eye that sees it."""
    rgb = linear_rgb(color)
    rgb = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in matrix]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        math.cbrt(max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True))) / w)
        for row, w in zip(to_xyz, white, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("matrix", CONE_TYPES.values(), ids=CONE_TYPES)
@pytest.mark.parametrize("colors", [LIGHT_LINE_COLORS, DARK_LINE_COLORS], ids=["light", "dark"])
def test_colors_differ_with_color_vision_deficiency(colors, matrix):
    for one, other in itertools.combinations(colors, 2):
        assert math.dist(lab_color(one, matrix), lab_color(other, matrix)) > 15, (one, other)


@pytest.mark.parametrize(
    ("colors", "palette"), [(LIGHT_LINE_COLORS, LIGHT), (DARK_LINE_COLORS, DARK)]
)
def test_colors_contrast_with_the_background(colors, palette):
    assert min(contrast(color, palette.background) for color in colors) >= 3


# --- words ---------------------------------------------------------------------------------


def test_chart_has_a_title_and_a_description():
    root = draw(
        LineSeries("rnn", [(0, 1), (50, 1e-20), (60, None)]),
        LineSeries("gru", [(0, 2)]),
        title="Fading",
        x_label="steps",
        y_label="norm",
        log_axes=(False, True),
    )
    assert root.get("role") == "img"
    assert root[0].text == "Fading"
    assert root[1].text == (
        "norm over steps. rnn: from 1 at 0 to 1e-20 at 50; gru: from 2 at 0 to 2 at 0."
    )
    assert [node.text for node in of_class(root, "text", "axis-label")] == ["steps", "norm"]
    assert points(groups(root)[0])[1].find(f"{NAMESPACE}title").text == "rnn: 1e-20 at 50"


def test_markup_in_labels_is_escaped_and_long_names_truncated():
    root = draw(
        LineSeries("</text><script>", [(0, 1)]),
        LineSeries("w" * 200, [(0, 2)]),
        title="<b>&\u202e",
        x_label="]]>",
        y_label="\x00",
    )
    assert {node.tag.removeprefix(NAMESPACE) for node in root.iter()} == {
        *("svg", "title", "desc", "style", "rect", "text", "path", "g")
    }
    names = [node.text for node in of_class(root, "text", "name")]
    assert names == ["</text><script>", "w" * 31 + "\u2026"]
    assert groups(root)[1].get("data-name") == "w" * 200
    assert root[0].text == "<b>&\\u202e"


def test_long_title_widens_the_document():
    widths = [
        float(draw(LineSeries("a", [(0, 1)]), title="w" * cells).get("width")) for cells in (5, 200)
    ]
    assert widths[1] > 200 * 8 > widths[0]


def test_style_has_both_palettes():
    styles = [node.text for node in draw(LineSeries("a", [(0, 1)])).iter(f"{NAMESPACE}style")]
    light, dark = styles[1].split("prefers-color-scheme: dark")
    assert f".line-0 {{ stroke: {LIGHT_LINE_COLORS[0]}; fill: {LIGHT_LINE_COLORS[0]}; }}" in light
    assert f".line-5 {{ stroke: {DARK_LINE_COLORS[5]}; fill: {DARK_LINE_COLORS[5]}; }}" in dark


def test_document_has_no_external_references():
    text = render_line_chart([LineSeries("a", [(0, 1)])])
    assert re.findall(r"\w+://[^\"\s]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|<script", text)


@pytest.mark.parametrize(
    "lines", [[], [LineSeries("a", [])], [LineSeries("a", [(0, None), (1, None)])]]
)
def test_chart_without_points_has_a_note(lines):
    root = draw(*lines, title="Empty")
    assert [node.text for node in root.iter(f"{NAMESPACE}text")] == ["Empty", "nothing to draw"]


def test_line_without_points_is_skipped():
    root = draw(LineSeries("nothing", [(0, None)]), LineSeries("a", [(0, 1)]))
    assert [group.get("data-name") for group in groups(root)] == ["a"]


# --- what cannot be drawn ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "logarithmic", "message"),
    [
        (
            (1, 0.0),
            (False, True),
            "chart, line 'rnn', point 2: y must be positive on a logarithmic axis, but is 0\n"
            "  leave the point out, or make the y axis linear",
        ),
        (
            (-1, 2),
            (True, False),
            "chart, line 'rnn', point 2: x must be positive on a logarithmic axis, but is -1\n"
            "  leave the point out, or make the x axis linear",
        ),
        (
            (1, math.nan),
            (False, False),
            "chart, line 'rnn', point 2: y must be a finite number, but is nan\n"
            "  leave the point out, or give None for a y that is missing",
        ),
        (
            (math.inf, 1),
            (False, False),
            "chart, line 'rnn', point 2: x must be a finite number, but is inf\n"
            "  leave the point out, or give None for a y that is missing",
        ),
    ],
)
def test_invalid_number_raises(point, logarithmic, message):
    with pytest.raises(DataError) as error:
        render_line_chart([LineSeries("rnn", [(3, 4), point])], log_axes=logarithmic)
    assert str(error.value) == message


def test_too_many_lines_reported():
    with pytest.raises(DataError) as error:
        render_line_chart([LineSeries(str(i), [(0, i)]) for i in range(31)])
    assert str(error.value) == (
        "chart: 31 lines cannot be told apart; there are styles for 30\n"
        "  leave some out, or draw several charts"
    )


# --- looks, strands and fewer marks --------------------------------------------------------


def test_style_index_defaults_to_the_index_of_the_line():
    styles = [
        (group.get("class"), points(group)[0].get("d"))
        for group in groups(draw(*(LineSeries(str(i), [(0, i)]) for i in range(8))))
    ]
    (chosen,) = groups(draw(LineSeries("a", [(0, 1)], style_index=7)))
    assert (chosen.get("class"), points(chosen)[0].get("d")) == styles[7]


def test_axes_cover_run_curves():
    root = draw(
        LineSeries(
            "a", [(0, 1), (1, 2)], run_curves=[[(0, 0), (1, 5)], [(0, 1), (1, None), (2, 1)]]
        )
    )
    strands = [node.get("d") for node in of_class(root, "path", "run-curve")]
    assert [re.sub(r"[^ML]", "", path) for path in strands] == ["ML", "MM"]
    assert (values(root, "y")[-1], values(root, "x")[-1]) >= (5, 2)
    assert len(points(groups(root)[0])) == 2


def test_invalid_number_in_run_curve_raises():
    with pytest.raises(DataError, match="y must be a finite number, but is inf"):
        draw(LineSeries("a", [(0, 1)], run_curves=[[(0, math.inf)]]))


@pytest.mark.parametrize(("count", "most"), [(100, 8), (9, 8), (8, 8), (3, 8), (2, 2)])
def test_max_markers_keeps_the_ends_and_even_spacing(count, most):
    root = draw(LineSeries("a", [(x, x) for x in range(count)], max_markers=most))
    result = [int(mark.get("data-x")) for mark in points(groups(root)[0])]
    assert len(result) == min(count, most)
    assert (result[0], result[-1]) == (0, count - 1)
    gaps = {later - earlier for earlier, later in itertools.pairwise(result)}
    assert max(gaps) - min(gaps) <= 1
    path = of_class(groups(root)[0], "path", "line")[0].get("d")
    assert path.count("L") == count - 1


# --- compact charts, units, events ---------------------------------------------------------


def test_compact_chart_has_no_names_and_no_labels():
    frame = PlotFrame(400, 120, is_compact=True)
    root = draw(LineSeries("a", [(0, 1), (9, 2)]), title="T", x_label="x", frame=frame)
    assert root.get("width") == "400"
    assert root[0].text == "T"
    assert {node.get("class") for node in root.iter(f"{NAMESPACE}text")} == {
        "tick end",
        "tick middle",
    }


@pytest.mark.parametrize(
    ("unit", "highest", "label"),
    [
        ("seconds", 170, "150 s"),
        ("seconds", 600, "10 min"),
        ("seconds", 36_000, "10 h"),
        ("bytes", 2**30, "1 GiB"),
        ("bytes", 50 * 2**20, "50 MiB"),
        ("fraction", 0.5, "50 %"),
    ],
)
def test_ticks_are_round_in_the_unit_shown(unit, highest, label):
    frame = PlotFrame(units=("", unit))
    assert label in labels(draw(LineSeries("a", [(0, 0), (1, highest)]), frame=frame), "y")


def test_included_values_covered_by_the_axes():
    frame = PlotFrame(included=((0.0, 50.0), (0.0,)))
    root = draw(LineSeries("a", [(10, 7), (20, 8)]), frame=frame)
    assert (values(root, "x")[0], values(root, "x")[-1], values(root, "y")[0]) == (0, 50, 0)


def test_events_and_the_best_point_marked():
    line = LineSeries("a", [(0, 1), (10, 3), (20, 2)], best=(10, 3), max_markers=0)
    events = [ChartEvent(10, "resumed", "resumed at 10"), ChartEvent(0, "skipped", "skipped")]
    root = draw(line, events=events)
    (best,) = of_class(root, "path", "best")
    x, _ = place(best)
    resumed, skipped = of_class(root, "path", "event")
    assert resumed.get("d").startswith(f"M{x:g},")
    assert [node.find(f"{NAMESPACE}title").text for node in (resumed, skipped)] == [
        "resumed at 10",
        "skipped",
    ]
    assert of_class(groups(root)[0], "path", "marker")[:-1] == []


def test_scales_are_attributes_for_the_script():
    root = draw(LineSeries("a", [(0, 1), (10, 100)]), log_axes=(False, True))
    for side, scale in (("x", "linear"), ("y", "log")):
        low, high, start, end, kind = root.get(f"data-{side}-scale").split()
        assert (float(low), float(high), kind) == (
            values(root, side)[0],
            values(root, side)[-1],
            scale,
        )
        assert float(start) != float(end)

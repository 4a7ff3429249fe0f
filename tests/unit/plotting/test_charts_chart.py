import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from heedful.errors import DataError
from heedful.plotting.axes import NAME_HEIGHT, format_ticks
from heedful.plotting.charts import (
    DARK_LINE_COLORS,
    LIGHT_LINE_COLORS,
    MARKER_PATHS,
    MAX_LINES,
    LineSeries,
    render_line_chart,
)
from heedful.plotting.svg import DARK, LIGHT

NAMESPACE = "{http://www.w3.org/2000/svg}"
SLACK = 0.051  # lengths are written to a tenth of a pixel


def draw(*lines, **options):
    return ElementTree.fromstring(render_line_chart(lines, **options))


def of_class(root, tag, name):
    return [node for node in root.iter(NAMESPACE + tag) if name in node.get("class", "").split()]


def groups(root):
    return [node for node in root.iter(f"{NAMESPACE}g") if "data-name" in node.attrib]


def points(group):
    return [node for node in of_class(group, "path", "mark") if "data-x" in node.attrib]


def place(mark):
    return tuple(
        map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", mark.get("transform")).groups())
    )


def ticks(root, side):
    """Value, x and y of each tick: those below the plot are in the middle of their place."""
    found = of_class(root, "text", {"x": "middle", "y": "end"}[side])
    return [
        (float(node.get("data-value")), float(node.get("x")), float(node.get("y")))
        for node in found
        if "data-value" in node.attrib
    ]


def values(root, side):
    return [value for value, _, _ in ticks(root, side)]


def labels(root, side):
    found = of_class(root, "text", {"x": "middle", "y": "end"}[side])
    return [node.text for node in found if "data-value" in node.attrib]


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


def test_points_stand_where_their_numbers_say():
    xs, ys = [0, 1, 2.5, 4], [-3, 7, 0, 2.2]
    root = draw(LineSeries("a", list(zip(xs, ys, strict=True))))
    (group,) = groups(root)
    found = points(group)
    assert [(float(p.get("data-x")), float(p.get("data-y"))) for p in found] == [
        *zip(xs, ys, strict=True)
    ]
    for mark, expected in zip(points(group), expected_places(root, xs, ys), strict=True):
        assert place(mark) == pytest.approx(expected, abs=2 * SLACK)


def test_on_logarithmic_axes_equal_ratios_are_equally_far_apart():
    xs, ys = [10, 20, 40, 80], [1e-9, 1e-6, 1e-3, 1]
    root = draw(LineSeries("a", list(zip(xs, ys, strict=True))), log_axes=(True, True))
    places = [place(mark) for mark in points(groups(root)[0])]
    for mark, expected in zip(
        places, expected_places(root, xs, ys, math.log, math.log), strict=True
    ):
        assert mark == pytest.approx(expected, abs=2 * SLACK)
    steps = [
        (later[0] - earlier[0], later[1] - earlier[1])
        for earlier, later in itertools.pairwise(places)
    ]
    assert steps == [pytest.approx(steps[0], abs=0.3)] * 3


def test_the_path_goes_through_the_points():
    root = draw(LineSeries("a", [(0, 1), (1, 3), (2, 2)]))
    (group,) = groups(root)
    path = of_class(group, "path", "line")[0].get("d")
    corners = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+),([\d.]+)", path)]
    assert corners == [place(mark) for mark in points(group)]


def test_a_missing_point_leaves_a_gap():
    root = draw(LineSeries("a", [(0, 1), (1, 2), (2, None), (3, 4), (4, 5)]))
    (group,) = groups(root)
    assert [mark.get("data-x") for mark in points(group)] == ["0", "1", "3", "4"]
    path = of_class(group, "path", "line")[0].get("d")
    assert re.sub(r"[^ML]", "", path) == "MLML"


@pytest.mark.parametrize("logarithmic", [(False, False), (True, True)])
@pytest.mark.parametrize("value", [1, 10, 0.37, 5000, 1e-30])
def test_one_point_is_drawn_inside_the_plot(value, logarithmic):
    root = draw(LineSeries("a", [(value, value)]), log_axes=logarithmic)
    (mark,) = points(groups(root)[0])
    for side in "xy":
        found = values(root, side)
        assert found[0] <= value <= found[-1]
        assert found[0] < found[-1]
    assert place(mark)[0] >= ticks(root, "x")[0][1] - SLACK


@pytest.mark.parametrize("value", [0, -4, 1e9])
def test_equal_values_make_a_level_line_away_from_the_edges(value):
    root = draw(LineSeries("a", [(0, value), (1, value)]))
    (first, _), (second, _) = (place(mark)[::-1] for mark in points(groups(root)[0]))
    assert first == second
    assert values(root, "y")[0] < value < values(root, "y")[-1]


# --- axes ----------------------------------------------------------------------------------


def test_numbers_along_an_axis_are_written_below_and_beside_it():
    root = draw(LineSeries("a", [(0, 20_000), (1, 0)]))
    assert (
        labels(root, "x")
        == format_ticks(values(root, "x"))
        == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    )
    assert labels(root, "y") == ["0", "5,000", "10,000", "15,000", "20,000"]


def test_zero_has_a_line_of_its_own_among_negative_values():
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
def test_names_never_overlap_and_stay_beside_the_plot(ends):
    root, heights = spread(*ends)
    gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(heights))]
    assert all(gap >= NAME_HEIGHT - 2 * SLACK for gap in gaps)
    (_, _, bottom), *_, (_, _, top) = ticks(root, "y")
    assert top - 2 <= min(heights) <= max(heights) <= bottom + 2


def test_names_stand_in_the_order_of_the_ends_of_their_lines():
    _, heights = spread(5, 1, 4.9, 5.1)
    assert sorted(range(4), key=heights.__getitem__) == [3, 0, 2, 1]


def test_a_name_with_room_stands_beside_the_end_of_its_line():
    root, (height, _) = spread(5, 0)
    assert height - 5 == pytest.approx(place(points(groups(root)[0])[-1])[1], abs=2 * SLACK)


def test_names_stand_right_of_every_point():
    root, _ = spread(5, 0, 3)
    right = max(place(mark)[0] for group in groups(root) for mark in points(group))
    assert all(float(node.get("x")) > right + 20 for node in of_class(root, "text", "name"))


def test_no_two_lines_look_alike():
    root = draw(*(LineSeries(str(i), [(0, i)]) for i in range(MAX_LINES)))
    attention_records = {(group.get("class"), points(group)[0].get("d")) for group in groups(root)}
    assert len(attention_records) == MAX_LINES == 30
    assert len({*MARKER_PATHS}) == len(MARKER_PATHS)


def test_a_dashed_line_is_dashed_beside_its_name_too():
    dashed, plain = groups(draw(LineSeries("a", [(0, 1)], dashed=True), LineSeries("b", [(0, 2)])))
    assert [node.get("class") for node in of_class(dashed, "path", "line")] == ["line dashed"] * 2
    assert [node.get("class") for node in of_class(plain, "path", "line")] == ["line"] * 2


def linear(colour):
    channels = [byte / 255 for byte in bytes.fromhex(colour.removeprefix("#"))]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def contrast(one, other):
    def luminance(colour):
        red, green, blue = linear(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


# Linear RGB as seen without the red or the green cones (Vienot, Brettel & Mollon 1999).
SEEN = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def seen(colour, matrix):
    """A colour as L*, a*, b* (CIE 1976), after the eye that sees it."""
    rgb = linear(colour)
    rgb = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in matrix]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        math.cbrt(max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True))) / w)
        for row, w in zip(to_xyz, white, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("matrix", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("colours", [LIGHT_LINE_COLORS, DARK_LINE_COLORS], ids=["light", "dark"])
def test_colours_differ_to_every_kind_of_eye(colours, matrix):
    for one, other in itertools.combinations(colours, 2):
        assert math.dist(seen(one, matrix), seen(other, matrix)) > 15, (one, other)


@pytest.mark.parametrize(
    ("colours", "palette"), [(LIGHT_LINE_COLORS, LIGHT), (DARK_LINE_COLORS, DARK)]
)
def test_every_colour_stands_out_from_the_paper(colours, palette):
    assert min(contrast(colour, palette.background) for colour in colours) >= 3


# --- words ---------------------------------------------------------------------------------


def test_the_picture_says_in_words_what_it_shows():
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


def test_hostile_words_are_text_and_long_names_are_cut():
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


def test_a_long_title_widens_the_page():
    widths = [
        float(draw(LineSeries("a", [(0, 1)]), title="w" * cells).get("width")) for cells in (5, 200)
    ]
    assert widths[1] > 200 * 8 > widths[0]


def test_the_style_holds_both_palettes():
    styles = [node.text for node in draw(LineSeries("a", [(0, 1)])).iter(f"{NAMESPACE}style")]
    light, dark = styles[1].split("prefers-color-scheme: dark")
    assert f".line-0 {{ stroke: {LIGHT_LINE_COLORS[0]}; fill: {LIGHT_LINE_COLORS[0]}; }}" in light
    assert f".line-5 {{ stroke: {DARK_LINE_COLORS[5]}; fill: {DARK_LINE_COLORS[5]}; }}" in dark


def test_the_document_stands_alone():
    text = render_line_chart([LineSeries("a", [(0, 1)])])
    assert re.findall(r"\w+://[^\"\s]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|<script", text)


@pytest.mark.parametrize(
    "lines", [[], [LineSeries("a", [])], [LineSeries("a", [(0, None), (1, None)])]]
)
def test_lines_without_points_say_so(lines):
    root = draw(*lines, title="Empty")
    assert [node.text for node in root.iter(f"{NAMESPACE}text")] == ["Empty", "nothing to draw"]


def test_a_line_without_points_leaves_the_looks_of_others():
    root = draw(LineSeries("nothing", [(0, None)]), LineSeries("a", [(0, 1)]))
    assert [group.get("data-name") for group in groups(root)] == ["a"]


# --- what cannot be drawn ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "logarithmic", "message"),
    [
        (
            (1, 0.0),
            (False, True),
            "chart, line 'rnn', point 2: y is 0, but a logarithmic axis holds only numbers above "
            "zero\n  leave the point out, or make the y axis an ordinary one",
        ),
        (
            (-1, 2),
            (True, False),
            "chart, line 'rnn', point 2: x is -1, but a logarithmic axis holds only numbers above "
            "zero\n  leave the point out, or make the x axis an ordinary one",
        ),
        (
            (1, math.nan),
            (False, False),
            "chart, line 'rnn', point 2: y is nan, which has no place on an axis\n"
            "  leave the point out, or give None for a y that is missing",
        ),
        (
            (math.inf, 1),
            (False, False),
            "chart, line 'rnn', point 2: x is inf, which has no place on an axis\n"
            "  leave the point out, or give None for a y that is missing",
        ),
    ],
)
def test_a_number_without_a_place_is_refused(point, logarithmic, message):
    with pytest.raises(DataError) as refusal:
        render_line_chart([LineSeries("rnn", [(3, 4), point])], log_axes=logarithmic)
    assert str(refusal.value) == message


def test_more_lines_than_looks_are_refused():
    with pytest.raises(DataError) as refusal:
        render_line_chart([LineSeries(str(i), [(0, i)]) for i in range(31)])
    assert str(refusal.value) == (
        "chart: 31 lines cannot be told apart; there are looks for 30\n"
        "  leave some out, or draw several charts"
    )


# --- looks, strands and fewer marks --------------------------------------------------------


def test_a_look_can_be_chosen_and_is_that_of_its_place_otherwise():
    attention_records = [
        (group.get("class"), points(group)[0].get("d"))
        for group in groups(draw(*(LineSeries(str(i), [(0, i)]) for i in range(8))))
    ]
    (chosen,) = groups(draw(LineSeries("a", [(0, 1)], style_index=7)))
    assert (chosen.get("class"), points(chosen)[0].get("d")) == attention_records[7]


def test_strands_are_thin_lines_that_the_axes_cover():
    root = draw(
        LineSeries(
            "a", [(0, 1), (1, 2)], run_curves=[[(0, 0), (1, 5)], [(0, 1), (1, None), (2, 1)]]
        )
    )
    strands = [node.get("d") for node in of_class(root, "path", "strand")]
    assert [re.sub(r"[^ML]", "", path) for path in strands] == ["ML", "MM"]
    assert (values(root, "y")[-1], values(root, "x")[-1]) >= (5, 2)
    assert len(points(groups(root)[0])) == 2


def test_what_has_no_place_is_refused_on_strands_too():
    with pytest.raises(DataError, match="y is inf"):
        draw(LineSeries("a", [(0, 1)], run_curves=[[(0, math.inf)]]))


@pytest.mark.parametrize(("count", "most"), [(100, 8), (9, 8), (8, 8), (3, 8), (2, 2)])
def test_marks_can_be_fewer_than_points_and_the_ends_keep_theirs(count, most):
    root = draw(LineSeries("a", [(x, x) for x in range(count)], max_markers=most))
    found = [int(mark.get("data-x")) for mark in points(groups(root)[0])]
    assert len(found) == min(count, most)
    assert (found[0], found[-1]) == (0, count - 1)
    gaps = {later - earlier for earlier, later in itertools.pairwise(found)}
    assert max(gaps) - min(gaps) <= 1
    path = of_class(groups(root)[0], "path", "line")[0].get("d")
    assert path.count("L") == count - 1

import itertools
import math
import random
import re
from xml.etree import ElementTree

import pytest

from heedful.comparison.figures import (
    length_groups,
    main_metric_label,
    main_metric_name,
    missing_system_notes,
    pareto_front,
    plot_quality_by_length,
    plot_quality_vs_flops,
    plot_quality_vs_speed,
    step_line,
)
from heedful.comparison.results import RunStatistics
from heedful.plotting.charts import MAX_LINES
from tests.example_comparisons import (
    NAMESPACE,
    bare_system,
    example_comparison,
    example_system,
    groups,
)


def test_main_metric_is_the_first_and_has_a_direction():
    assert main_metric_name(example_comparison(2)) == "BLEU"
    assert main_metric_label(example_comparison(2)) == "BLEU (higher is better)"


def test_missing_systems_have_a_note():
    comparison = example_comparison(3)
    assert (
        list(missing_system_notes(comparison, ["system-0", "system-1", "system-2"], "no reason"))
        == []
    )
    assert list(missing_system_notes(comparison, ["system-1"], "too small")) == [
        "Left out: system-0, system-2: too small."
    ]


def dominates(one, other):
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@pytest.mark.parametrize("seed", range(50))
def test_pareto_front_is_what_nothing_dominates(seed):
    draw = random.Random(seed)
    points = [(draw.randint(0, 5), draw.randint(0, 5)) for _ in range(draw.randint(0, 12))]
    front = pareto_front([cost for cost, _ in points], [gain for _, gain in points])
    expected = {
        index
        for index, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    }
    assert set(front) == expected
    assert len(front) == len(expected)
    costs = [points[index][0] for index in front]
    assert costs == sorted(costs)


def test_other_points_dominated_by_the_front():
    points = [(1, 1), (2, 3), (2, 2), (3, 3), (4, 9), (5, 8)]
    front = pareto_front(*zip(*points, strict=True))
    for index in set(range(len(points))) - set(front):
        assert any(dominates(points[best], points[index]) for best in front)


def test_step_line_is_horizontal_then_vertical():
    assert step_line([(1, 1), (3, 5), (4, 6)]) == [(1, 1), (3, 1), (3, 5), (4, 5), (4, 6)]
    for one, two in itertools.pairwise(step_line([(1, 1), (3, 5), (4, 6), (9, 7)])):
        assert (one[0] == two[0]) != (one[1] == two[1])


@pytest.mark.parametrize("front", [[], [(2, 3)]])
def test_step_line_of_one_point_is_that_point(front):
    assert step_line(front) == front


PLOTS = [plot_quality_vs_flops, plot_quality_vs_speed, plot_quality_by_length]
TOLERANCE = 0.11

each_plot = pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)


def points(group):
    """Numbers and places of the points of a group."""
    return [
        (
            (float(node.get("data-x")), float(node.get("data-y"))),
            tuple(map(float, re.findall(r"[\d.]+", node.get("transform"))[:2])),
        )
        for node in group
        if "data-x" in node.attrib
    ]


def paths(figure, css_class):
    root = ElementTree.fromstring(figure.svg)
    return [
        node.get("d") for node in root.iter(f"{NAMESPACE}path") if node.get("class") == css_class
    ]


# --- every system, everywhere, in one look -------------------------------------------------


@each_plot
@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_system_is_in_every_plot(plot, count):
    result = groups(plot(example_comparison(count)))
    assert list(result) == [f"system-{place}" for place in range(count)]
    assert all(points(group) for group in result.values())


def styles_of(figure):
    return {
        name: (group.get("class"), next(node.get("d") for node in group if "data-x" in node.attrib))
        for name, group in groups(figure).items()
    }


def test_system_style_does_not_depend_on_the_plot():
    systems = [example_system(place) for place in range(12)]
    systems[0] = bare_system(systems[0])
    comparison = example_comparison(systems=systems)
    by_plot = [styles_of(plot(comparison)) for plot in PLOTS]
    for name in (system.name for system in systems[1:]):
        assert len({result[name] for result in by_plot}) == 1
    assert len(set(by_plot[1].values())) == 12


def test_lines_of_the_same_color_differ_in_dashes():
    result = groups(plot_quality_by_length(example_comparison(12)))
    styles = [
        (group.get("class"), group.find(f"{NAMESPACE}path").get("class"))
        for group in result.values()
    ]
    assert len(set(styles)) == 12


@each_plot
def test_too_many_systems_have_a_note(plot):
    figure = plot(example_comparison(MAX_LINES + 2, seeds=1))
    assert len(groups(figure)) == MAX_LINES
    assert figure.notes[-1] == "Only the first 30 systems are drawn: more cannot be told apart."


# --- where they stand ----------------------------------------------------------------------


def test_flops_axis_is_logarithmic():
    result = groups(plot_quality_vs_flops(example_comparison(6)))
    xs = [points(group)[0][1][0] for group in result.values()]
    steps = [later - earlier for earlier, later in itertools.pairwise(xs)]
    assert steps == [pytest.approx(steps[0], abs=2 * TOLERANCE)] * 5


def test_point_is_the_mean_and_error_bar_one_standard_deviation():
    figure = plot_quality_vs_flops(example_comparison(1))
    ((numbers, (x, y)),) = points(groups(figure)["system-0"])
    assert numbers == pytest.approx((1.1e13, 20.1))
    across, _, up, _ = paths(figure, "error-bar")
    left, level, right = map(float, re.fullmatch(r"M(\S+),(\S+) H(\S+)", across).groups())
    assert level == y
    # The runs lie at 1, 1.1 and 1.2 times as much: their deviation is a tenth.
    assert (x - left) / (right - x) == pytest.approx(math.log(1.1) / math.log(1.2 / 1.1), abs=0.02)
    middle, bottom, top = map(float, re.fullmatch(r"M(\S+),(\S+) V(\S+)", up).groups())
    assert (middle, bottom - y) == (x, pytest.approx(y - top, abs=2 * TOLERANCE))


def is_dominated(mine, other, signs):
    turned = [
        tuple(sign * n for sign, n in zip(signs, each, strict=True)) for each in (mine, other)
    ]
    return turned[1][0] <= turned[0][0] and turned[1][1] >= turned[0][1] and mine != other


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(("plot", "cost"), [(PLOTS[0], 1), (PLOTS[1], -1)], ids=["FLOPs", "speed"])
def test_guide_line_is_the_pareto_front(plot, cost, better):
    scores, costs = [20, 26, 24, 22, 26, 31], [5, 2, 1, 3, 4, 6]
    systems = []
    for place, (score, size) in enumerate(zip(scores, costs, strict=True)):
        system = example_system(place, seeds=1)
        judged = [
            each._replace(stats=RunStatistics(score), direction=better) for each in system.scores
        ]
        training_costs = system.cost._replace(
            training_flops=RunStatistics(1e9 * size), sentences_per_second=RunStatistics(size)
        )
        systems.append(system._replace(scores=judged, cost=training_costs))
    figure = plot(example_comparison(systems=systems))
    signs = (cost, 1 if better == "higher" else -1)
    places = list(zip(costs, scores, strict=True))
    front = {
        f"system-{place}"
        for place, mine in enumerate(places)
        if not any(is_dominated(mine, other, signs) for other in places)
    }
    assert set(re.findall(r"system-\d", figure.notes[0])) == front
    drawn = [points(group)[0][1] for name, group in groups(figure).items() if name in front]
    corners = [
        tuple(map(float, pair))
        for path in paths(figure, "guide")
        for pair in re.findall(r"([\d.]+),([\d.]+)", path)
    ]
    assert len(corners) == (2 * len(drawn) - 1 if len(drawn) > 1 else 0)
    assert set(drawn) <= set(corners) or len(drawn) == 1


def test_length_groups_ordered_and_show_sizes():
    figure = plot_quality_by_length(example_comparison(2))
    root = ElementTree.fromstring(figure.svg)
    ticks = [n.text for n in root.iter(f"{NAMESPACE}text") if n.get("class") == "tick middle"]
    assert ticks == ["1-5", "n=600", "6-10", "n=300", "11-15", "n=100"]
    scores = [numbers for numbers, _ in points(groups(figure)["system-1"])]
    assert scores == [(0, pytest.approx(21.1)), (1, pytest.approx(24.1)), (2, pytest.approx(26.1))]


def test_systems_may_have_different_length_groups():
    systems = [example_system(place) for place in range(2)]
    few = [each._replace(by_length=each.by_length[1:]) for each in systems[0].scores]
    systems[0] = systems[0]._replace(scores=few)
    comparison = example_comparison(systems=systems)
    assert list(length_groups(comparison)) == ["1-5", "6-10", "11-15"]
    result = groups(plot_quality_by_length(comparison))
    assert [numbers[0] for numbers, _ in points(result["system-0"])] == [1, 2]


# --- what is missing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", [None, RunStatistics(0.0), RunStatistics(math.nan), RunStatistics(math.inf)], ids=str
)
def test_system_without_cost_has_a_note(odd):
    systems = [example_system(place) for place in range(3)]
    systems[1] = systems[1]._replace(cost=systems[1].cost._replace(training_flops=odd))
    figure = plot_quality_vs_flops(example_comparison(systems=systems))
    assert list(groups(figure)) == ["system-0", "system-2"]
    assert figure.notes[-1] == ("Left out: system-1: score or training FLOPs unknown.")


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("plot", PLOTS[:2])
def test_system_without_score_has_a_note(plot, value):
    systems = [example_system(place) for place in range(3)]
    judged = [each._replace(stats=RunStatistics(value)) for each in systems[1].scores]
    systems[1] = systems[1]._replace(scores=judged)
    figure = plot(example_comparison(systems=systems))
    assert list(groups(figure)) == ["system-0", "system-2"]
    assert "Left out: system-1" in figure.notes[-1]


def test_without_numbers_there_is_a_note_and_no_figure():
    comparison = example_comparison(
        systems=[bare_system(example_system(place)) for place in range(2)]
    )
    for plot in (plot_quality_vs_flops, plot_quality_by_length):
        figure = plot(comparison)
        assert figure.svg is None
        assert figure.notes[0].startswith("Left out: system-0, system-1: ")


def test_group_without_score_is_a_gap():
    system = example_system(0)
    (name, size, _), *others = system.scores[0].by_length
    judged = [each._replace(by_length=[(name, size, None), *others]) for each in system.scores]
    result = groups(
        plot_quality_by_length(example_comparison(systems=[system._replace(scores=judged)]))
    )
    assert [numbers[0] for numbers, _ in points(result["system-0"])] == [1, 2]


def test_single_runs_have_no_error_bars_and_a_note():
    figure = plot_quality_vs_flops(example_comparison(3, seeds=1))
    assert paths(figure, "error-bar") == []
    assert figure.notes[1] == "No error bars: one run per system, or runs that do not differ."


def test_single_system_has_no_guide_line():
    figure = plot_quality_vs_flops(example_comparison(1))
    assert paths(figure, "guide") == []
    assert figure.notes[0] == "No system that needs fewer training FLOPs is as good as system-0."

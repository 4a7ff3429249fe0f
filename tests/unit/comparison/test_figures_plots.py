import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from heedful.comparison.figures import (
    length_groups,
    plot_quality_by_length,
    plot_quality_vs_flops,
    plot_quality_vs_speed,
)
from heedful.comparison.results import RunStatistics
from heedful.plotting.charts import MAX_LINES
from tests.made_comparisons import bare_system, made_comparison, made_system

NAMESPACE = "{http://www.w3.org/2000/svg}"
PLOTS = [plot_quality_vs_flops, plot_quality_vs_speed, plot_quality_by_length]
SLACK = 0.11

each_plot = pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)


def groups(figure):
    root = ElementTree.fromstring(figure.svg)
    return {
        node.get("data-name"): node
        for node in root.iter(f"{NAMESPACE}g")
        if node.get("data-name") is not None
    }


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


def paths(figure, look):
    root = ElementTree.fromstring(figure.svg)
    return [node.get("d") for node in root.iter(f"{NAMESPACE}path") if node.get("class") == look]


# --- every system, everywhere, in one look -------------------------------------------------


@each_plot
@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_system_is_in_every_plot(plot, count):
    found = groups(plot(made_comparison(count)))
    assert list(found) == [f"system-{place}" for place in range(count)]
    assert all(points(group) for group in found.values())


def attention_records(figure):
    return {
        name: (group.get("class"), next(node.get("d") for node in group if "data-x" in node.attrib))
        for name, group in groups(figure).items()
    }


def test_a_system_looks_alike_in_every_plot_though_others_are_missing_there():
    systems = [made_system(place) for place in range(12)]
    systems[0] = bare_system(systems[0])
    comparison = made_comparison(systems=systems)
    by_plot = [attention_records(plot(comparison)) for plot in PLOTS]
    for name in (system.name for system in systems[1:]):
        assert len({found[name] for found in by_plot}) == 1
    assert len(set(by_plot[1].values())) == 12


def test_lines_of_the_same_colour_differ_in_their_dashes():
    found = groups(plot_quality_by_length(made_comparison(12)))
    styles = [
        (group.get("class"), group.find(f"{NAMESPACE}path").get("class"))
        for group in found.values()
    ]
    assert len(set(styles)) == 12


@each_plot
def test_more_systems_than_can_be_told_apart_are_left_out_aloud(plot):
    figure = plot(made_comparison(MAX_LINES + 2, seeds=1))
    assert len(groups(figure)) == MAX_LINES
    assert figure.notes[-1] == "Only the first 30 systems are drawn: more cannot be told apart."


# --- where they stand ----------------------------------------------------------------------


def test_twice_the_operations_are_a_fixed_distance_to_the_right():
    found = groups(plot_quality_vs_flops(made_comparison(6)))
    xs = [points(group)[0][1][0] for group in found.values()]
    steps = [later - earlier for earlier, later in itertools.pairwise(xs)]
    assert steps == [pytest.approx(steps[0], abs=2 * SLACK)] * 5


def test_a_dot_is_the_mean_of_its_runs_and_its_whisker_one_deviation():
    figure = plot_quality_vs_flops(made_comparison(1))
    ((numbers, (x, y)),) = points(groups(figure)["system-0"])
    assert numbers == pytest.approx((1.1e13, 20.1))
    across, _, up, _ = paths(figure, "whisker")
    left, level, right = map(float, re.fullmatch(r"M(\S+),(\S+) H(\S+)", across).groups())
    assert level == y
    # The runs lie at 1, 1.1 and 1.2 times as much: their deviation is a tenth.
    assert (x - left) / (right - x) == pytest.approx(math.log(1.1) / math.log(1.2 / 1.1), abs=0.02)
    middle, bottom, top = map(float, re.fullmatch(r"M(\S+),(\S+) V(\S+)", up).groups())
    assert (middle, bottom - y) == (x, pytest.approx(y - top, abs=2 * SLACK))


def beaten(mine, other, signs):
    turned = [
        tuple(sign * n for sign, n in zip(signs, each, strict=True)) for each in (mine, other)
    ]
    return turned[1][0] <= turned[0][0] and turned[1][1] >= turned[0][1] and mine != other


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(("plot", "cost"), [(PLOTS[0], 1), (PLOTS[1], -1)], ids=["FLOPs", "speed"])
def test_the_front_goes_through_what_nothing_beats(plot, cost, better):
    scores, costs = [20, 26, 24, 22, 26, 31], [5, 2, 1, 3, 4, 6]
    systems = []
    for place, (score, size) in enumerate(zip(scores, costs, strict=True)):
        system = made_system(place, seeds=1)
        judged = [
            each._replace(stats=RunStatistics(score), direction=better) for each in system.scores
        ]
        training_costs = system.cost._replace(
            training_flops=RunStatistics(1e9 * size), sentences_per_second=RunStatistics(size)
        )
        systems.append(system._replace(scores=judged, cost=training_costs))
    figure = plot(made_comparison(systems=systems))
    signs = (cost, 1 if better == "higher" else -1)
    places = list(zip(costs, scores, strict=True))
    unbeaten = {
        f"system-{place}"
        for place, mine in enumerate(places)
        if not any(beaten(mine, other, signs) for other in places)
    }
    assert set(re.findall(r"system-\d", figure.notes[0])) == unbeaten
    drawn = [points(group)[0][1] for name, group in groups(figure).items() if name in unbeaten]
    corners = [
        tuple(map(float, pair))
        for path in paths(figure, "guide")
        for pair in re.findall(r"([\d.]+),([\d.]+)", path)
    ]
    assert len(corners) == (2 * len(drawn) - 1 if len(drawn) > 1 else 0)
    assert set(drawn) <= set(corners) or len(drawn) == 1


def test_lengths_stand_in_their_order_with_the_number_of_their_sentences():
    figure = plot_quality_by_length(made_comparison(2))
    root = ElementTree.fromstring(figure.svg)
    ticks = [n.text for n in root.iter(f"{NAMESPACE}text") if n.get("class") == "tick middle"]
    assert ticks == ["1-5", "n=600", "6-10", "n=300", "11-15", "n=100"]
    scores = [numbers for numbers, _ in points(groups(figure)["system-1"])]
    assert scores == [(0, pytest.approx(21.1)), (1, pytest.approx(24.1)), (2, pytest.approx(26.1))]


def test_groups_of_one_system_may_be_fewer_than_those_of_another():
    systems = [made_system(place) for place in range(2)]
    few = [each._replace(by_length=each.by_length[1:]) for each in systems[0].scores]
    systems[0] = systems[0]._replace(scores=few)
    comparison = made_comparison(systems=systems)
    assert list(length_groups(comparison)) == ["1-5", "6-10", "11-15"]
    found = groups(plot_quality_by_length(comparison))
    assert [numbers[0] for numbers, _ in points(found["system-0"])] == [1, 2]


# --- what is missing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", [None, RunStatistics(0.0), RunStatistics(math.nan), RunStatistics(math.inf)], ids=str
)
def test_a_system_whose_cost_is_not_known_is_left_out_aloud(odd):
    systems = [made_system(place) for place in range(3)]
    systems[1] = systems[1]._replace(cost=systems[1].cost._replace(training_flops=odd))
    figure = plot_quality_vs_flops(made_comparison(systems=systems))
    assert list(groups(figure)) == ["system-0", "system-2"]
    assert figure.notes[-1] == (
        "Left out: system-1: its quality or the FLOPs of its training are not known."
    )


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("plot", PLOTS[:2])
def test_a_system_without_a_score_is_left_out_aloud(plot, value):
    systems = [made_system(place) for place in range(3)]
    judged = [each._replace(stats=RunStatistics(value)) for each in systems[1].scores]
    systems[1] = systems[1]._replace(scores=judged)
    figure = plot(made_comparison(systems=systems))
    assert list(groups(figure)) == ["system-0", "system-2"]
    assert "Left out: system-1" in figure.notes[-1]


def test_where_nothing_is_known_there_is_no_picture_but_a_reason():
    comparison = made_comparison(systems=[bare_system(made_system(place)) for place in range(2)])
    for plot in (plot_quality_vs_flops, plot_quality_by_length):
        figure = plot(comparison)
        assert figure.svg is None
        assert figure.notes[0].startswith("Left out: system-0, system-1: ")


def test_a_group_that_was_not_measured_is_a_gap():
    system = made_system(0)
    (name, size, _), *others = system.scores[0].by_length
    judged = [each._replace(by_length=[(name, size, None), *others]) for each in system.scores]
    found = groups(
        plot_quality_by_length(made_comparison(systems=[system._replace(scores=judged)]))
    )
    assert [numbers[0] for numbers, _ in points(found["system-0"])] == [1, 2]


def test_single_runs_have_no_whiskers_and_a_note_says_why():
    figure = plot_quality_vs_flops(made_comparison(3, seeds=1))
    assert paths(figure, "whisker") == []
    assert figure.notes[1] == "No bars: the systems have one run each, or runs that do not differ."


def test_one_system_has_a_front_without_a_line():
    figure = plot_quality_vs_flops(made_comparison(1))
    assert paths(figure, "guide") == []
    assert figure.notes[0] == "Nothing that took fewer FLOPs of training is as good as system-0."

import math
import re
from xml.etree import ElementTree

import pytest

from heedful.comparison.figures import (
    AXES,
    MAX_MARKERS,
    mean_curve,
    plot_learning_curves,
    validation_metrics,
)
from heedful.comparison.results import ValidationPoint
from heedful.inspection.training_curves import CurvePoint as Place
from tests.made_comparisons import STEPS, made_comparison, made_system

NAMESPACE = "{http://www.w3.org/2000/svg}"
STEP, SECONDS, OPERATIONS = AXES

each_axis = pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)


def groups(figure):
    root = ElementTree.fromstring(figure.svg)
    return {
        node.get("data-name"): node
        for node in root.iter(f"{NAMESPACE}g")
        if node.get("data-name") is not None
    }


def points(group):
    return [
        (float(node.get("data-x")), float(node.get("data-y")))
        for node in group
        if "data-x" in node.attrib
    ]


def labels(figure):
    root = ElementTree.fromstring(figure.svg)
    found = [node for node in root.iter(f"{NAMESPACE}text") if "axis-label" in node.get("class")]
    return [node.text for node in found]


def strands(group):
    return [node.get("d") for node in group if node.get("class") == "strand"]


def of_one(curves):
    return made_comparison(systems=[made_system(0)._replace(curves=curves)])


@each_axis
@pytest.mark.parametrize("count", [1, 5, 12])
def test_every_system_and_every_run_is_drawn_over_every_axis(axis, count):
    comparison = made_comparison(count)
    for score in validation_metrics(comparison):
        found = groups(plot_learning_curves(comparison, score, axis))
        assert list(found) == [f"system-{place}" for place in range(count)]
        assert {len(strands(group)) for group in found.values()} == {3}


def test_the_loss_comes_first_and_every_score_is_there():
    assert validation_metrics(made_comparison(2)) == ["loss", "accuracy", "bleu"]
    assert validation_metrics(of_one([])) == []


def test_the_thick_line_is_the_mean_of_the_runs_in_height_and_in_place():
    comparison = made_comparison(1)
    by_time = points(groups(plot_learning_curves(comparison, "loss", SECONDS))["system-0"])
    # Runs lose 500 / step + 0, 0.1 and 0.2, and take 0.2, 0.22 and 0.24 seconds a step.
    assert by_time == [
        (pytest.approx(0.22 * step), pytest.approx(500 / step + 0.1, abs=1e-4)) for step in STEPS
    ]


def test_the_mean_ends_where_the_first_run_does_and_strands_go_on():
    short, long = (
        [Place(step, None, None, value) for step in range(1, last)]
        for last, value in ((3, 4.0), (6, 2.0))
    )
    assert mean_curve([short, long]) == [Place(step, None, None, 3.0) for step in (1, 2)]


def test_runs_that_have_no_step_in_common_leave_the_first():
    one, other = [Place(1, 1.0, None, 4.0)], [Place(2, 1.0, None, 2.0)]
    assert mean_curve([one, other]) == one


def test_what_not_all_have_told_has_no_mean():
    one, other = Place(1, 3.0, 8.0, 4.0), Place(1, None, 4.0, 2.0)
    assert mean_curve([[one], [other]]) == [Place(1, None, 6.0, 3.0)]


def test_shares_are_drawn_in_percent():
    figure = plot_learning_curves(made_comparison(1), "accuracy", STEP)
    assert labels(figure) == ["steps of training", "Accuracy (%)"]
    assert points(groups(figure)["system-0"])[-1] == (500, 50)


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"),
    [(100, "seconds", 100), (600, "minutes", 10), (36_000, "hours", 10)],
)
def test_time_is_told_in_the_unit_that_suits_it(seconds, unit, shown):
    curve = [
        ValidationPoint(1, 0.0, None, {"loss": 2.0}),
        ValidationPoint(2, seconds, None, {"loss": 1.0}),
    ]
    figure = plot_learning_curves(of_one([curve]), "loss", SECONDS)
    assert labels(figure)[0] == f"{unit} of training"
    assert points(groups(figure)["system-0"])[-1] == (shown, 1)


def test_one_run_has_no_strands():
    figure = plot_learning_curves(made_comparison(2, seeds=1), "loss", STEP)
    assert [strands(group) for group in groups(figure).values()] == [[], []]
    assert figure.notes == ["Each system is one run."]


def test_a_long_training_makes_a_small_picture():
    curve = [ValidationPoint(step, None, None, {"loss": math.sin(step)}) for step in range(10_000)]
    figure = plot_learning_curves(of_one([curve, curve]), "loss", STEP)
    assert len(figure.svg) < 20_000
    assert len(points(groups(figure)["system-0"])) == MAX_MARKERS


# --- what is missing -----------------------------------------------------------------------


def test_a_system_that_has_not_told_its_operations_is_left_out_over_them_alone():
    systems = [made_system(place) for place in range(2)]
    silent = [[point._replace(flops=None) for point in run] for run in systems[0].curves]
    systems[0] = systems[0]._replace(curves=silent)
    comparison = made_comparison(systems=systems)
    assert list(groups(plot_learning_curves(comparison, "loss", STEP))) == ["system-0", "system-1"]
    figure = plot_learning_curves(comparison, "loss", OPERATIONS)
    assert list(groups(figure)) == ["system-1"]
    assert figure.notes[-1] == "Left out: system-0: no Loss was told over that."


def test_what_is_no_number_is_left_out():
    odd = (math.nan, math.inf, -math.inf)
    curve = [
        ValidationPoint(step, step, None, {"loss": value})
        for step, value in enumerate((3, *odd, 1))
    ]
    figure = plot_learning_curves(of_one([curve]), "loss", STEP)
    assert points(groups(figure)["system-0"]) == [(0, 3), (4, 1)]
    assert not re.search(r"nan|inf", figure.svg)


@pytest.mark.parametrize("curves", [[], [[]], [[ValidationPoint(1, None, None, {})]]], ids=str)
def test_without_points_there_is_no_picture_but_a_reason(curves):
    figure = plot_learning_curves(of_one(curves), "loss", STEP)
    assert (figure.svg, figure.notes) == (
        None,
        ["Left out: system-0: no Loss was told over that."],
    )

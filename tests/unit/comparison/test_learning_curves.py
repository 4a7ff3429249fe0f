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
from heedful.inspection.training_curves import CurvePoint
from tests.example_comparisons import NAMESPACE, STEPS, example_comparison, example_system, groups

STEP, SECONDS, FLOPS = AXES

each_axis = pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)


def points(group):
    return [
        (float(node.get("data-x")), float(node.get("data-y")))
        for node in group
        if "data-x" in node.attrib
    ]


def labels(figure):
    root = ElementTree.fromstring(figure.svg)
    result = [node for node in root.iter(f"{NAMESPACE}text") if "axis-label" in node.get("class")]
    return [node.text for node in result]


def tick_labels(figure):
    root = ElementTree.fromstring(figure.svg)
    return [node.text for node in root.iter(f"{NAMESPACE}text") if "tick" in node.get("class")]


def run_curves(group):
    return [node.get("d") for node in group if node.get("class") == "run-curve"]


def with_curves(curves):
    return example_comparison(systems=[example_system(0)._replace(curves=curves)])


@each_axis
@pytest.mark.parametrize("count", [1, 5, 12])
def test_every_run_is_drawn_over_every_axis(axis, count):
    comparison = example_comparison(count)
    for score in validation_metrics(comparison):
        result = groups(plot_learning_curves(comparison, score, axis))
        assert list(result) == [f"system-{place}" for place in range(count)]
        assert {len(run_curves(group)) for group in result.values()} == {3}


def test_validation_metrics_start_with_the_loss():
    assert validation_metrics(example_comparison(2)) == ["loss", "accuracy", "bleu"]
    assert validation_metrics(with_curves([])) == []


def test_line_is_the_mean_of_the_runs_in_x_and_y():
    comparison = example_comparison(1)
    by_time = points(groups(plot_learning_curves(comparison, "loss", SECONDS))["system-0"])
    # Runs lose 500 / step + 0, 0.1 and 0.2, and take 0.2, 0.22 and 0.24 seconds a step.
    assert by_time == [
        (pytest.approx(0.22 * step), pytest.approx(500 / step + 0.1, abs=1e-4)) for step in STEPS
    ]


def test_mean_curve_ends_with_the_shortest_run():
    short, long = (
        [CurvePoint(step, None, None, value) for step in range(1, last)]
        for last, value in ((3, 4.0), (6, 2.0))
    )
    assert mean_curve([short, long]) == [CurvePoint(step, None, None, 3.0) for step in (1, 2)]


def test_mean_curve_without_common_steps_is_the_first_run():
    one, other = [CurvePoint(1, 1.0, None, 4.0)], [CurvePoint(2, 1.0, None, 2.0)]
    assert mean_curve([one, other]) == one


def test_mean_curve_of_unknown_positions_is_unknown():
    one, other = CurvePoint(1, 3.0, 8.0, 4.0), CurvePoint(1, None, 4.0, 2.0)
    assert mean_curve([[one], [other]]) == [CurvePoint(1, None, 6.0, 3.0)]


def test_fractions_shown_in_percent():
    figure = plot_learning_curves(example_comparison(1), "accuracy", STEP)
    assert labels(figure) == ["steps of training", "Accuracy"]
    assert points(groups(figure)["system-0"])[-1] == (500, 0.5)
    assert "50 %" in tick_labels(figure)


@pytest.mark.parametrize(("seconds", "label"), [(100, "100 s"), (600, "10 min"), (36_000, "10 h")])
def test_time_is_shown_in_a_suitable_unit(seconds, label):
    curve = [
        ValidationPoint(1, 0.0, None, {"loss": 2.0}),
        ValidationPoint(2, seconds, None, {"loss": 1.0}),
    ]
    figure = plot_learning_curves(with_curves([curve]), "loss", SECONDS)
    assert labels(figure)[0] == "time of training"
    assert label in tick_labels(figure)
    assert points(groups(figure)["system-0"])[-1] == (seconds, 1)


def test_one_run_has_no_run_curves():
    figure = plot_learning_curves(example_comparison(2, seeds=1), "loss", STEP)
    assert [run_curves(group) for group in groups(figure).values()] == [[], []]
    assert figure.notes == ["Each system has one run."]


def test_long_training_makes_a_small_figure():
    curve = [ValidationPoint(step, None, None, {"loss": math.sin(step)}) for step in range(10_000)]
    figure = plot_learning_curves(with_curves([curve, curve]), "loss", STEP)
    assert len(figure.svg) < 20_000
    assert len(points(groups(figure)["system-0"])) == MAX_MARKERS


# --- what is missing -----------------------------------------------------------------------


def test_system_without_flops_is_skipped_over_flops_only():
    systems = [example_system(place) for place in range(2)]
    silent = [[point._replace(flops=None) for point in run] for run in systems[0].curves]
    systems[0] = systems[0]._replace(curves=silent)
    comparison = example_comparison(systems=systems)
    assert list(groups(plot_learning_curves(comparison, "loss", STEP))) == ["system-0", "system-1"]
    figure = plot_learning_curves(comparison, "loss", FLOPS)
    assert list(groups(figure)) == ["system-1"]
    assert figure.notes[-1] == "Left out: system-0: no Loss over FLOPs."


def test_nonfinite_scores_skipped():
    odd = (math.nan, math.inf, -math.inf)
    curve = [
        ValidationPoint(step, step, None, {"loss": value})
        for step, value in enumerate((3, *odd, 1))
    ]
    figure = plot_learning_curves(with_curves([curve]), "loss", STEP)
    assert points(groups(figure)["system-0"]) == [(0, 3), (4, 1)]
    assert not re.search(r"nan|inf", figure.svg)


@pytest.mark.parametrize("curves", [[], [[]], [[ValidationPoint(1, None, None, {})]]], ids=str)
def test_without_points_there_is_a_note_and_no_figure(curves):
    figure = plot_learning_curves(with_curves(curves), "loss", STEP)
    assert (figure.svg, figure.notes) == (
        None,
        ["Left out: system-0: no Loss over steps."],
    )

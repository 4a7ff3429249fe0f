"""Curves: a number stands where its line says, and thinning keeps what matters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.experiment.validation import METRIC_DIRECTIONS
from heedful.inspection.training_curves import (
    CURVE_STYLES,
    CurvePoint,
    Timeline,
    curve_style,
    downsample,
    entries_of_type,
    make_charts,
    smooth,
)


def training(step, **facts):
    return {"kind": "training", "step": step, "loss": 1.0, "seconds": 2.0 * step, **facts}


def validation(step, **scores):
    return {"kind": "validation", "step": step, "loss": 2.0, **scores}


def points(values):
    return [CurvePoint(step, None, None, value) for step, value in enumerate(values)]


def chart_of(entries, name):
    (found,) = [chart for chart in make_charts(entries) if chart["id"] == name]
    return found


def test_every_number_of_every_line_is_a_point():
    entries = [training(step, grad_norm=step / 2) for step in (1, 10, 20)]
    (line,) = chart_of(entries, "grad_norm")["lines"]
    assert line["columns"] == [[1, 10, 20], [2, 20, 40], [None] * 3, [0.5, 5, 10]]


def test_the_loss_comes_first_with_what_was_learned_from_and_what_was_held_out():
    charts = make_charts([training(1), validation(1, bleu=3.0), training(2)])
    assert [chart["id"] for chart in charts] == ["loss", "bleu"]
    assert [line["look"] for line in charts[0]["lines"]] == ["raw", "smooth", "held-out"]


def test_every_score_and_whatever_else_was_logged_has_a_chart():
    facts = {"learning_rate": 0.1, "memory": 5, "dropped_by_experts": 0.2, "tokens_per_second": 9.0}
    entries = [
        training(1, auxiliary_losses={"coverage_penalty": 0.5}, **facts),
        validation(1, accuracy=0.5, chrf=7.0, other=1.0),
    ]
    names = [chart["name"] for chart in make_charts(entries)]
    assert names == [
        *("Loss", "Accuracy", "chrF", "Other"),
        *("Learning rate", "Tokens per second", "Peak memory", "Dropped by experts"),
        "Penalties",
    ]


def test_a_validation_is_placed_in_time_between_the_lines_around_it():
    timeline = Timeline([training(10, operations=100.0), training(20, operations=300.0)])
    assert timeline.locate({"step": 10}) == (10, 20, 100)
    assert timeline.locate({"step": 15}) == (15, 30, 200)
    assert timeline.locate({"step": 5}) == (5, 10, 50)
    assert timeline.locate({"step": 99}) == (99, 40, 300)
    assert timeline.locate({"step": 15, "seconds": 31}) == (15, 31, 200)


def test_what_nobody_said_is_not_known():
    assert Timeline([{"step": 1}]).locate({"step": 1}) == (1, None, None)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, "nan", True, [1]])
def test_what_is_no_finite_number_is_counted_and_not_drawn(bad):
    chart = chart_of([training(1), training(2, loss=bad), training(3)], "loss")
    assert chart["lines"][0]["columns"][0] == [1, 3]
    assert chart["missing"] == 1


def test_of_several_lines_for_a_step_the_last_counts():
    entries = [training(2, loss=9), training(1), training(2, loss=7), {"kind": "training"}]
    assert [entry["loss"] for entry in entries_of_type(entries, "training")] == [1, 7]


def test_the_gradient_norm_is_drawn_by_its_logarithm_unless_it_is_zero():
    assert chart_of([training(1, grad_norm=0.1)], "grad_norm")["is_logarithmic"]
    assert not chart_of([training(1, grad_norm=0.0)], "grad_norm")["is_logarithmic"]


@given(st.lists(st.floats(-1e6, 1e6), max_size=400), st.integers(6, 40))
def test_thinning_keeps_ends_extremes_and_order(values, most):
    every = points(values)
    kept = downsample(every, most)
    assert len(kept) <= max(most, 0)
    assert kept == sorted(kept, key=lambda point: point.step)
    assert set(kept) <= set(every)
    if values:
        assert kept[0] == every[0]
        assert kept[-1] == every[-1]
        assert min(values) == min(point.value for point in kept)
        assert max(values) == max(point.value for point in kept)


def test_few_points_are_all_kept():
    assert downsample(points(range(10)), 10) == points(range(10))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60))
def test_smoothing_stays_within_what_is_smoothed(values):
    smoothed = [point.value for point in smooth(points(values))]
    assert len(smoothed) == len(values)
    assert min(values) - 1e-6 <= min(smoothed)
    assert max(smoothed) <= max(values) + 1e-6


def test_smoothing_a_straight_line_gives_that_line_inside():
    smoothed = [point.value for point in smooth(points(range(100)))]
    assert smoothed[10:90] == pytest.approx(range(10, 90))


def test_a_long_run_is_still_few_points():
    entries = [training(step, grad_norm=math.sin(step) + 2) for step in range(1, 5000)]
    for chart in make_charts(entries):
        assert all(len(line["columns"][0]) <= 2000 for line in chart["lines"])


def test_every_metric_that_can_judge_has_a_look_that_falls_if_lower_is_better():
    for name, better in METRIC_DIRECTIONS.items():
        assert name in CURVE_STYLES, name
        assert curve_style(name).lower_is_better == (better == "lower"), name

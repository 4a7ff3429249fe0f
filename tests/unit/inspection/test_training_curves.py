"""Training curves: every logged number is a point, and downsampling keeps the extremes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.inspection.training_curves import (
    CurvePoint,
    Timeline,
    curve_style,
    downsample,
    entries_of_type,
    make_charts,
    smooth,
)
from heedful.tasks.registry import all_metrics

METRICS = all_metrics()


def training(step, **facts):
    return {"type": "training", "step": step, "loss": 1.0, "seconds": 2.0 * step, **facts}


def validation(step, **scores):
    return {"type": "validation", "step": step, "loss": 2.0, **scores}


def points(values):
    return [CurvePoint(step, None, None, value) for step, value in enumerate(values)]


def chart_of(entries, name):
    (chart,) = [chart for chart in make_charts(entries, METRICS) if chart.id == name]
    return chart


def test_every_logged_number_is_a_point():
    entries = [training(step, grad_norm=step / 2) for step in (1, 10, 20)]
    (curve,) = chart_of(entries, "grad_norm").curves
    assert curve.points == [(1, 2, None, 0.5), (10, 20, None, 5), (20, 40, None, 10)]
    assert curve.over(1) == [(2, 0.5), (20, 5), (40, 10)]
    assert curve.over(2) == []


def test_loss_chart_is_first_with_training_and_validation_curves():
    charts = make_charts([training(1), validation(1, bleu=3.0), training(2)], METRICS)
    assert [chart.id for chart in charts] == ["loss", "bleu"]
    assert [curve.type for curve in charts[0].curves] == ["raw", "smoothed", "validation"]


def test_every_logged_value_has_a_chart():
    facts = {
        "learning_rate": 0.1,
        "peak_memory": 5,
        "dropped_by_experts": 0.2,
        "tokens_per_second": 9.0,
    }
    entries = [
        training(1, auxiliary_losses={"coverage_penalty": 0.5}, **facts),
        validation(1, accuracy=0.5, chrf=7.0, other=1.0),
    ]
    names = [chart.style.name for chart in make_charts(entries, METRICS)]
    assert names == [
        *("Loss", "Accuracy", "chrF", "Other"),
        *("Learning rate", "Tokens per second", "Peak memory", "Dropped by experts"),
        "Auxiliary losses",
    ]


def test_timeline_interpolates_between_entries():
    timeline = Timeline([training(10, flops=100.0), training(20, flops=300.0)])
    assert timeline.locate({"step": 10}) == (10, 20, 100)
    assert timeline.locate({"step": 15}) == (15, 30, 200)
    assert timeline.locate({"step": 5}) == (5, 10, 50)
    assert timeline.locate({"step": 99}) == (99, 40, 300)
    assert timeline.locate({"step": 15, "seconds": 31}) == (15, 31, 200)


def test_timeline_without_times_returns_none():
    assert Timeline([{"step": 1}]).locate({"step": 1}) == (1, None, None)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e305, None, "nan", True, [1]])
def test_nonfinite_values_counted_and_not_drawn(bad):
    chart = chart_of([training(1), training(2, loss=bad), training(3)], "loss")
    assert [point.step for point in chart.curves[0].points] == [1, 3]
    assert chart.num_missing == 1


def test_last_entry_of_a_step_counts():
    entries = [training(2, loss=9), training(1), training(2, loss=7), {"type": "training"}]
    assert [entry["loss"] for entry in entries_of_type(entries, "training")] == [1, 7]


def test_gradient_norm_is_logarithmic_unless_zero():
    assert chart_of([training(1, grad_norm=0.1)], "grad_norm").style.is_logarithmic
    assert not chart_of([training(1, grad_norm=0.0)], "grad_norm").style.is_logarithmic


@given(st.lists(st.floats(-1e6, 1e6), max_size=400), st.integers(6, 40))
def test_downsampling_keeps_ends_extremes_and_order(values, max_points):
    original = points(values)
    kept = downsample(original, max_points)
    assert len(kept) <= max(max_points, 0)
    assert kept == sorted(kept, key=lambda point: point.step)
    assert set(kept) <= set(original)
    if values:
        assert kept[0] == original[0]
        assert kept[-1] == original[-1]
        assert min(values) == min(point.value for point in kept)
        assert max(values) == max(point.value for point in kept)


def test_few_points_not_downsampled():
    assert downsample(points(range(10)), 10) == points(range(10))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60))
def test_smoothed_values_stay_in_range(values):
    smoothed = [point.value for point in smooth(points(values))]
    assert len(smoothed) == len(values)
    assert min(values) - 1e-6 <= min(smoothed)
    assert max(smoothed) <= max(values) + 1e-6


def test_smoothing_keeps_a_straight_line():
    smoothed = [point.value for point in smooth(points(range(100)))]
    assert smoothed[10:90] == pytest.approx(range(10, 90))


def test_smoothed_curve_starts_where_the_raw_one_does():
    values = [9.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0] * 10
    smoothed = [point.value for point in smooth(points(values))]
    assert smoothed[0] == values[0]
    assert smoothed[1] == pytest.approx((9 + 6 + 4) / 3)


def test_long_run_is_downsampled():
    entries = [training(step, grad_norm=math.sin(step) + 2) for step in range(1, 5000)]
    for chart in make_charts(entries, METRICS):
        assert all(len(curve.points) <= 2000 for curve in chart.curves)


def test_curve_style_of_a_metric_is_that_of_the_task():
    for name, spec in METRICS.items():
        style = curve_style(name, METRICS)
        assert (style.name, style.lower_is_better) == (spec.label, not spec.higher_is_better)

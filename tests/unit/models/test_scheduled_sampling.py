"""Schedules of the teacher's share, against the formulas of Bengio et al. (2015)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.config.base import types_in
from heedful.models.scheduled_sampling import (
    ExponentialSamplingConfig,
    InverseSigmoidSamplingConfig,
    LinearSamplingConfig,
    ScheduledSamplingConfig,
    TeacherForcingConfig,
)

EACH = types_in(ScheduledSamplingConfig)
each_schedule = pytest.mark.parametrize("schedule", EACH)


@each_schedule
@given(step=st.integers(1, 10**7))
def test_ratio_is_probability_that_never_increases(schedule, step):
    now, later = (
        schedule().teacher_forcing_ratio(current_step) for current_step in (step, step + 1)
    )
    assert 0 <= later <= now <= 1


@each_schedule
def test_schedule_starts_near_teacher_forcing(schedule):
    assert schedule().teacher_forcing_ratio(1) > 0.99


def test_teacher_forcing_ratio_is_always_one():
    assert TeacherForcingConfig().teacher_forcing_ratio(10**9) == 1
    assert TeacherForcingConfig().token_choice == "sample"


def test_linear_schedule_falls_to_the_minimum():
    schedule = LinearSamplingConfig(k=0.9, c=0.01, min_ratio=0.2)
    ratios = [schedule.teacher_forcing_ratio(step) for step in (1, 2, 11, 71, 500)]
    assert ratios == pytest.approx([0.9, 0.89, 0.8, 0.2, 0.2])


def test_exponential_schedule_falls_by_factor():
    schedule = ExponentialSamplingConfig(k=0.5)
    assert [schedule.teacher_forcing_ratio(step) for step in (1, 2, 3, 4)] == [1, 0.5, 0.25, 0.125]


def test_inverse_sigmoid_schedule_same_as_formula():
    schedule = InverseSigmoidSamplingConfig(k=20)
    for done in (0, 1, 30, 100, 400):
        expected = 20 / (20 + math.exp(done / 20))
        assert schedule.teacher_forcing_ratio(done + 1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "settings"),
    [
        (LinearSamplingConfig, {"k": 1.5}),
        (LinearSamplingConfig, {"c": -0.1}),
        (LinearSamplingConfig, {"minimum": 1.1}),
        (ExponentialSamplingConfig, {"k": 1.0}),
        (ExponentialSamplingConfig, {"k": 0.0}),
        (InverseSigmoidSamplingConfig, {"k": 0.5}),
        (InverseSigmoidSamplingConfig, {"token_choice": "worst"}),
        (TeacherForcingConfig, {"token_choice": "argmax"}),
    ],
    ids=str,
)
def test_invalid_schedules_raise(schedule, settings):
    with pytest.raises(ValidationError):
        schedule(**settings)

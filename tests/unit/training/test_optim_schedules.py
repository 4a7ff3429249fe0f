import itertools
import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.training.config import TrainingConfig
from heedful.training.optim import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    InverseSqrtScheduleConfig,
    LinearScheduleConfig,
    LRSchedule,
    PlateauScheduleConfig,
    StepDecayScheduleConfig,
)

SCHEDULES = [
    ConstantScheduleConfig,
    InverseSqrtScheduleConfig,
    LinearScheduleConfig,
    CosineScheduleConfig,
    partial(StepDecayScheduleConfig, start_decay_step=100, decay_steps=7),
    PlateauScheduleConfig,
]
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@each_schedule
@given(warmup=st.integers(1, 100), more_steps=st.integers(1, 500))
def test_schedule_warms_up_linearly_then_never_increases(schedule, warmup, more_steps):
    config, last = schedule(warmup_steps=warmup), warmup + more_steps
    factors = [config.lr_factor(step, last) for step in range(1, last + 1)]
    for step in range(1, warmup + 1):
        assert factors[step - 1] == pytest.approx(step / warmup)
    decay = factors[warmup - 1 :]
    assert all(a >= b > 0 for a, b in itertools.pairwise(decay))


def test_inverse_sqrt_is_the_transformer_formula_with_peak_one():
    schedule = InverseSqrtScheduleConfig(warmup_steps=4000)
    peak = 4000**-0.5
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        expected = min(step**-0.5, step * 4000**-1.5) / peak
        assert schedule.lr_factor(step, 1) == pytest.approx(expected)


def test_linear_and_cosine_are_half_at_half_time():
    for schedule in (LinearScheduleConfig(), CosineScheduleConfig()):
        assert schedule.lr_factor(50, 99) == pytest.approx(0.5)


def test_cosine_schedule_follows_the_cosine():
    factor = CosineScheduleConfig(warmup_steps=10).lr_factor(35, 109)
    assert factor == pytest.approx((1 + math.cos(math.pi * 25 / 100)) / 2)


def test_step_decay_halves_at_every_interval():
    schedule = StepDecayScheduleConfig(start_decay_step=10, decay_steps=5)
    factors = [schedule.lr_factor(step, 99) for step in (1, 10, 11, 15, 16, 20, 21)]
    assert factors == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_learning_rate_is_peak_rate_times_factor():
    config = TrainingConfig.model_validate(
        {
            "optimizer": {"type": "adamw", "learning_rate": 0.5},
            "lr_scheduler": {"type": "linear", "warmup_steps": 10},
            "max_steps": 100,
        }
    )
    schedule = LRSchedule(config.lr_scheduler, 0.5, lambda step: 100)
    assert schedule(5) == pytest.approx(0.25)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warmup_ratio_is_a_number_of_warmup_steps(schedule):
    ratio, steps = schedule(warmup_ratio=0.1), schedule(warmup_steps=20)
    for step in (1, 10, 20, 21, 100, 200):
        assert ratio.lr_factor(step, 200) == steps.lr_factor(step, 200)


def test_schedule_follows_the_planned_steps():
    linear = LinearScheduleConfig()
    schedule = LRSchedule(linear, 1.0, lambda step: 10 * step)
    assert [schedule(step) for step in (1, 7)] == [
        linear.lr_factor(1, 10),
        linear.lr_factor(7, 70),
    ]


@given(scores=st.lists(st.floats(0, 1), max_size=30), step=st.integers(1, 200))
def test_schedule_never_increases_with_a_further_validation(scores, step):
    for schedule in SCHEDULES:
        config = schedule(warmup_steps=10)
        factors = [config.lr_factor(step, 200, scores[:count]) for count in range(len(scores))]
        assert all(a >= b for a, b in itertools.pairwise(factors))


def plateau(scores, **settings):
    return PlateauScheduleConfig(**settings).lr_factor(1, 99, scores)


def test_plateau_reduces_after_patience_and_again():
    scores = [5, 4, 4, 4.5, 4, 3, 3, 3, 3, 3, 3, 3]
    factors = [plateau(scores[:count]) for count in range(len(scores) + 1)]
    assert factors == [1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_better_score_resets_patience():
    assert plateau([4, 4, 4, 3, 3, 3, 2]) == 1
    assert plateau([4, 4, 3, 3], patience=1, factor=0.1) == pytest.approx(0.01)


def test_plateau_stops_at_min_lr_ratio_but_warms_up_from_zero():
    config = PlateauScheduleConfig(patience=1, min_lr_ratio=0.3, warmup_steps=4)
    assert [config.lr_factor(step, 99, [1] * 9) for step in (1, 2, 4, 50)] == [
        0.075,
        0.15,
        0.3,
        0.3,
    ]


def test_nan_score_is_no_improvement():
    assert plateau([2, math.nan, math.nan, math.nan]) == 0.5
    assert plateau([math.nan, 2, 1]) == 1

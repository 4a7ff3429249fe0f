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
    PlateauScheduleConfig,
    StepDecayScheduleConfig,
    TrainingHistory,
)

EACH = [
    ConstantScheduleConfig,
    InverseSqrtScheduleConfig,
    LinearScheduleConfig,
    CosineScheduleConfig,
    partial(StepDecayScheduleConfig, start=100, every=7),
    PlateauScheduleConfig,
]
each_schedule = pytest.mark.parametrize("schedule", EACH)


@each_schedule
@given(warmup=st.integers(1, 100), more=st.integers(1, 500))
def test_every_schedule_rises_in_a_straight_line_then_never_rises_again(schedule, warmup, more):
    chosen, last = schedule(warmup_steps=warmup), warmup + more
    shares = [chosen.lr_factor(step, TrainingHistory(last)) for step in range(1, last + 1)]
    for step in range(1, warmup + 1):
        assert shares[step - 1] == pytest.approx(step / warmup)
    falling = shares[warmup - 1 :]
    assert all(a >= b > 0 for a, b in itertools.pairwise(falling))


def test_constant_stays():
    assert ConstantScheduleConfig().lr_factor(12345, TrainingHistory(20000)) == 1


def test_inverse_square_root_is_the_transformers_formula_with_its_peak_at_one():
    schedule = InverseSqrtScheduleConfig(warmup_steps=4000)
    peak = 4000**-0.5
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        wanted = min(step**-0.5, step * 4000**-1.5) / peak
        assert schedule.lr_factor(step, TrainingHistory(1)) == pytest.approx(wanted)


def test_linear_and_cosine_are_half_way_down_half_way_through():
    for schedule in (LinearScheduleConfig(), CosineScheduleConfig()):
        assert schedule.lr_factor(50, TrainingHistory(99)) == pytest.approx(0.5)


def test_cosine_follows_the_cosine():
    share = CosineScheduleConfig(warmup_steps=10).lr_factor(35, TrainingHistory(109))
    assert share == pytest.approx((1 + math.cos(math.pi * 25 / 100)) / 2)


def test_halving_halves_after_its_start_and_then_at_every_interval():
    schedule = StepDecayScheduleConfig(start_decay_step=10, decay_steps=5)
    shares = [schedule.lr_factor(step, TrainingHistory(99)) for step in (1, 10, 11, 15, 16, 20, 21)]
    assert shares == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_the_rate_is_the_optimizers_times_the_schedules_share():
    config = TrainingConfig.model_validate(
        {
            "optimizer": {"type": "adamw", "learning_rate": 0.5},
            "lr_scheduler": {"type": "linear", "warmup_steps": 10},
            "max_steps": 100,
        }
    )
    assert config.learning_rate(5) == pytest.approx(0.25)


@given(scores=st.lists(st.floats(0, 1), max_size=30), step=st.integers(1, 200))
def test_no_schedule_rises_for_having_been_validated_once_more(scores, step):
    for schedule in EACH:
        chosen = schedule(warmup_steps=10)
        shares = [
            chosen.lr_factor(step, TrainingHistory(200, scores[:count]))
            for count in range(len(scores))
        ]
        assert all(a >= b for a, b in itertools.pairwise(shares))


def plateau(scores, **settings):
    return PlateauScheduleConfig(**settings).lr_factor(1, TrainingHistory(99, scores))


def test_a_plateau_lowers_the_rate_after_patience_and_again_after_as_many():
    scores = [5, 4, 4, 4.5, 4, 3, 3, 3, 3, 3, 3, 3]
    shares = [plateau(scores[:count]) for count in range(len(scores) + 1)]
    assert shares == [1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_a_better_score_resets_patience_and_keeps_the_rate():
    assert plateau([4, 4, 4, 3, 3, 3, 2]) == 1
    assert plateau([4, 4, 3, 3], patience=1, factor=0.1) == pytest.approx(0.01)


def test_a_plateau_stops_at_the_minimum_but_warms_up_from_nothing():
    chosen = PlateauScheduleConfig(patience=1, min_lr_ratio=0.3, warmup_steps=4)
    course = TrainingHistory(99, [1] * 9)
    assert [chosen.lr_factor(step, course) for step in (1, 2, 4, 50)] == [0.075, 0.15, 0.3, 0.3]


def test_a_score_that_is_no_number_is_no_better():
    assert plateau([2, math.nan, math.nan, math.nan]) == 0.5
    assert plateau([math.nan, 2, 1]) == 1

import pytest

from heedful.comparison.budget import estimate_steps

TOTAL = 100.0


def entries_at(times, *, validated=None):
    training = [{"type": "training", "step": step, "seconds": at} for step, at in times.items()]
    validation = {"type": "validation", "step": max(times), "loss": 1.0, "seconds": validated}
    return training if validated is None else [*training, validation]


def test_speed_excludes_the_first_step():
    # 3 s for the first step, then 0.5 s each: 10 s after 15 steps, and 180 more in 90 s.
    entries = entries_at({1: 3.0, 10: 7.5})
    assert (
        estimate_steps(entries, step=15, seconds=10.0, total_seconds=TOTAL, validations=8)
        == 15 + 180
    )


def test_remaining_validations_reduce_the_time():
    entries = entries_at({1: 3.0, 10: 7.5}, validated=12.5)  # 2.5 s each: 20 s in all
    assert (
        estimate_steps(entries, step=15, seconds=10.0, total_seconds=TOTAL, validations=8)
        == 15 + 140
    )


@pytest.mark.parametrize("each", [0.001, 0.25, 7.0])
def test_run_with_even_speed_ends_at_the_budget(each):
    step = max(1, round(0.1 * TOTAL / each))
    entries = entries_at({1: each}, validated=step * each + 0.5)
    result = estimate_steps(
        entries, step=step, seconds=step * each, total_seconds=TOTAL, validations=8
    )
    assert result * each + 8 * 0.5 == pytest.approx(TOTAL, abs=each)


def test_single_step_is_extrapolated():
    assert (
        estimate_steps(
            entries_at({1: 10.0}), step=1, seconds=10.0, total_seconds=TOTAL, validations=8
        )
        == 10
    )


def test_at_least_one_more_step_is_estimated():
    slow = entries_at({1: 60.0}, validated=90.0)
    assert estimate_steps(slow, step=1, seconds=60.0, total_seconds=TOTAL, validations=8) == 2
    assert estimate_steps([], step=5, seconds=0.0, total_seconds=TOTAL, validations=8) == 6


def test_entries_without_times_are_accepted():
    entries = [{"type": "training", "step": 1}, {"type": "validation", "step": 5, "loss": 1.0}]
    assert (
        estimate_steps(entries, step=5, seconds=8.0, total_seconds=TOTAL, validations=8) == 5 + 46
    )

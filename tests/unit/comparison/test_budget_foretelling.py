import pytest

from heedful.comparison.budget import estimate_steps

WHOLE = 100.0


def lines(times, *, validated=None):
    training = [{"kind": "training", "step": step, "seconds": at} for step, at in times.items()]
    held_out = {"kind": "validation", "step": max(times), "loss": 1.0, "seconds": validated}
    return training if validated is None else [*training, held_out]


def test_the_pace_is_that_of_all_steps_but_the_first():
    # 3 s for the first step, then 0.5 s each: 10 s after 15 steps, and 180 more in 90 s.
    entries = lines({1: 3.0, 10: 7.5})
    assert (
        estimate_steps(entries, step=15, elapsed_seconds=10.0, total_seconds=WHOLE, validations=8)
        == 15 + 180
    )


def test_validations_take_their_part_of_the_time():
    entries = lines({1: 3.0, 10: 7.5}, validated=12.5)  # 2.5 s each: 20 s in all
    assert (
        estimate_steps(entries, step=15, elapsed_seconds=10.0, total_seconds=WHOLE, validations=8)
        == 15 + 140
    )


@pytest.mark.parametrize("each", [0.001, 0.25, 7.0])
def test_a_run_that_goes_on_as_it_began_ends_with_the_time(each):
    step = max(1, round(0.1 * WHOLE / each))
    entries = lines({1: each}, validated=step * each + 0.5)
    found = estimate_steps(
        entries, step=step, elapsed_seconds=step * each, total_seconds=WHOLE, validations=8
    )
    assert found * each + 8 * 0.5 == pytest.approx(WHOLE, abs=each)


def test_one_step_says_as_much_as_it_can():
    assert (
        estimate_steps(
            lines({1: 10.0}), step=1, elapsed_seconds=10.0, total_seconds=WHOLE, validations=8
        )
        == 10
    )


def test_a_run_goes_on_for_a_step_at_least():
    slow = lines({1: 60.0}, validated=90.0)
    assert (
        estimate_steps(slow, step=1, elapsed_seconds=60.0, total_seconds=WHOLE, validations=8) == 2
    )
    assert estimate_steps([], step=5, elapsed_seconds=0.0, total_seconds=WHOLE, validations=8) == 6


def test_lines_that_do_not_tell_times_are_taken_as_they_are():
    entries = [{"kind": "training", "step": 1}, {"kind": "validation", "step": 5, "loss": 1.0}]
    assert (
        estimate_steps(entries, step=5, elapsed_seconds=8.0, total_seconds=WHOLE, validations=8)
        == 5 + 46
    )

"""Estimated times of batches."""

import pytest

from heedful.serving.batch_speed import BatchKey, BatchSpeed, BatchSpeeds, BatchTime

KEY = BatchKey("m", "{}", need_layers=False, text_only=False)


def test_nothing_measured_estimates_no_time():
    assert BatchSpeed().seconds(100, 3) == 0


def test_two_batches_give_time_per_batch_and_per_cost():
    speed = BatchSpeed([(10, 0.2), (80, 0.9)])  # 0.1 + 0.01 per cost
    assert speed.seconds(50, 1) == pytest.approx(0.6)
    assert speed.seconds(500, 4) == pytest.approx(0.4 + 5)


def test_batches_of_one_size_scale_with_their_cost():
    speed = BatchSpeed([(10, 0.2)])
    assert speed.seconds(100, 10) == pytest.approx(2)


def test_later_batches_outweigh_earlier_ones():
    speed = BatchSpeed([(10, 0.2), (80, 0.9)])
    for _ in range(50):
        speed.add(80, 1.8)
    assert speed.seconds(80, 1) == pytest.approx(1.8, rel=0.05)


def test_other_options_start_with_the_examples_of_the_model():
    speeds = BatchSpeeds()
    speeds.set_examples("m", [(10, BatchTime(0.2, 0.4)), (80, BatchTime(0.9, 1.8))])
    assert speeds.seconds(KEY, 80) == pytest.approx(0.9)
    for _ in range(50):
        speeds.add(KEY, 80, BatchTime(9, 18))
    assert speeds.seconds(KEY, 80) == pytest.approx(9, rel=0.05)
    assert speeds.seconds(KEY._replace(options='{"beam_size": 5}'), 80) == pytest.approx(0.9)


def test_busy_machine_is_learned_more_slowly_than_the_cost_of_inputs():
    speeds = BatchSpeeds()
    speeds.set_examples("m", [(10, BatchTime(0.1, 0.1))])
    speeds.add(KEY, 10, BatchTime(0.4, 0.1))
    assert speeds.seconds(KEY, 10) < 0.15
    for _ in range(100):
        speeds.add(KEY, 10, BatchTime(0.4, 0.1))
    assert speeds.seconds(KEY, 10) == pytest.approx(0.4, rel=0.05)

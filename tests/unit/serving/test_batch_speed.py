"""Estimated times of batches."""

import pytest

from heedful.serving.batch_speed import BatchKey, BatchSpeed, BatchSpeeds

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
    speeds.set_examples("m", [(10, 0.2), (80, 0.9)])
    assert speeds[KEY].seconds(80, 1) == pytest.approx(0.9)
    for _ in range(50):
        speeds.add(KEY, 80, 9)
    assert speeds[KEY].seconds(80, 1) == pytest.approx(9, rel=0.05)
    assert speeds[KEY._replace(options='{"beam_size": 5}')].seconds(80, 1) == pytest.approx(0.9)

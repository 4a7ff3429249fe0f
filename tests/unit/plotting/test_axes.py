import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.plotting.axes import (
    LARGEST,
    SMALLEST,
    AxisScale,
    compute_ticks,
    format_ticks,
    format_value,
)

# --- which numbers -------------------------------------------------------------------------

finite = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-12)


@given(st.lists(finite, min_size=1, max_size=6))
def test_linear_ticks_cover_every_value(numbers):
    result = compute_ticks(numbers, is_logarithmic=False)
    slack = 1e-9 * max(map(abs, [*numbers, *result]))
    assert 2 <= len(result) <= 8
    assert result[0] <= min(numbers) + slack
    assert result[-1] >= max(numbers) - slack


@given(st.lists(st.floats(1e-40, 1e40), min_size=1, max_size=6))
def test_logarithmic_ticks_cover_every_value(numbers):
    result = compute_ticks(numbers, is_logarithmic=True)
    assert 2 <= len(result) <= 12
    assert result[0] <= min(numbers) * (1 + 1e-9)
    assert result[-1] >= max(numbers) * (1 - 1e-9)
    assert {f"{tick:.3e}"[:5] for tick in result} <= {"1.000", "2.000", "5.000"}


@given(st.floats(-1e6, 1e6), st.floats(0.01, 1e6))
def test_linear_tick_steps_equal_and_1_2_or_5(low, reach):
    result = compute_ticks([low, low + reach], is_logarithmic=False)
    steps = [later - earlier for earlier, later in itertools.pairwise(result)]
    step = min(
        (factor * 10.0**power for factor in (1, 2, 5) for power in range(-5, 8)),
        key=lambda candidate: abs(candidate - steps[0]),
    )
    assert steps == [pytest.approx(step, rel=1e-6)] * len(steps)


@pytest.mark.parametrize("is_logarithmic", [False, True])
@pytest.mark.parametrize("value", [SMALLEST, 1, 7.5, LARGEST])
def test_single_value_lies_between_ticks(value, is_logarithmic):
    result = compute_ticks([value], is_logarithmic)
    assert result[0] < value < result[-1]


# --- how they are written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "logarithmic", "labels"),
    [
        (0, 100, False, ["0", "20", "40", "60", "80", "100"]),
        (-1.2, 1, False, ["-1.5", "-1", "-0.5", "0", "0.5", "1"]),
        (0, 3e6, False, ["0", "5\u00b710\u2075", "10\u2076", "1.5\u00b710\u2076"]),
        (0, 12000, False, ["0", "2,000", "4,000"]),
        (10, 400, True, ["10", "20", "50", "100", "200", "500"]),
        (
            1e-5,
            1e3,
            True,
            [*("10\u207b\u2076", "10\u207b\u2074", "10\u207b\u00b2"), "1", "10\u00b2", "10\u2074"],
        ),
        (3e-21, 1, True, ["10\u207b\u00b2\u00b9", "10\u207b\u00b9\u2078"]),
    ],
)
def test_tick_labels(low, high, logarithmic, labels):
    assert format_ticks(compute_ticks([low, high], logarithmic))[: len(labels)] == labels


# --- where values stand --------------------------------------------------------------------


def test_linear_scale_is_proportional():
    scale = AxisScale([0, 5, 10], start=300, end=100, is_logarithmic=False)
    assert [scale.to_pixel(value) for value in (0, 2.5, 10)] == [300, 250, 100]


def test_logarithmic_scale_is_proportional_to_logarithms():
    scale = AxisScale([1, 10, 100], start=0, end=200, is_logarithmic=True)
    assert [scale.to_pixel(value) for value in (1, 10, 100)] == [0, 100, 200]
    assert scale.to_pixel(0.1) == -100


@pytest.mark.parametrize("is_logarithmic", [False, True])
def test_cut_scale_begins_and_ends_with_the_data(is_logarithmic):
    scale = AxisScale([1, 10, 100], start=0, end=200, is_logarithmic=is_logarithmic).cut(1, 60)
    assert scale.ticks == [1, 10]
    assert [scale.to_pixel(value) for value in (1, 60)] == [0, 200]
    assert scale.attribute.split()[:4] == ["1", "60", "0", "200"]


def test_scale_is_not_cut_to_a_single_tick():
    scale = AxisScale([0, 5, 10], start=0, end=200, is_logarithmic=False)
    assert scale.cut(4, 6) is scale


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.5, "", "1,234"),
        (300, "", "300"),
        (3e11, "", "3\u00b710\u00b9\u00b9"),
        (3.226e-4, "", "3.226\u00b710\u207b\u2074"),
        (0, "", "0"),
        (0.5, "fraction", "50 %"),
        (812 * 2**20, "bytes", "812 MiB"),
        (2**31, "bytes", "2 GiB"),
        (50, "seconds", "50 s"),
        (150, "seconds", "2:30 min"),
        (7260, "seconds", "2:01 h"),
    ],
)
def test_values_formatted_for_readers(value, unit, text):
    assert format_value(value, unit) == text

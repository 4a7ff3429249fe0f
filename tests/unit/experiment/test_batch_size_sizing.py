"""The largest that fits, found in few trials."""

import math

from hypothesis import given
from hypothesis import strategies as st

from heedful.experiment.batch_size import largest_fitting, measure_until_full

MIB = 1 << 20


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 2 * 10**6))
def test_the_largest_fits_and_little_more_would(start, most, capacity):
    tried = []

    def fits(rows):
        tried.append(rows)
        return rows <= capacity

    found = largest_fitting(fits, start, most)
    assert found <= capacity
    assert max(tried) <= most
    if capacity >= most:
        assert found == most
    else:
        assert found >= math.floor(capacity / 1.05) or capacity - found <= 1
    assert len(tried) <= 2 * math.log2(2 * most) + 2


@given(
    fixed=st.floats(1, 200),
    per_row=st.floats(0.001, 50),
    start=st.integers(1, 5000),
    most=st.integers(1, 10**6),
    room=st.floats(1, 4000),
)
def test_what_a_line_gives_room_for_is_found(fixed, per_row, start, most, room):
    def taken(rows):
        return MIB * (fixed + per_row * rows)

    room = MIB * room
    points = measure_until_full(taken, min(start, most), most, room)
    fitting = [rows for rows in points if points[rows] <= room]
    assert points == {rows: taken(rows) for rows in points}
    if taken(1) > room:
        assert not fitting
    elif taken(most) <= room:
        assert max(fitting) == most
    else:
        exact = (room / MIB - fixed) / per_row
        assert max(fitting) >= math.floor(exact) - 1 - 1e-6 * exact
    assert max(points) <= most
    assert len(points) <= 20


@given(st.floats(0, 0.3), st.integers(1, 2000))
def test_a_bent_line_is_followed_until_something_fits(bend, start):
    """Attention over a batch would bend it upwards; what is found has still been tried."""

    def taken(rows):
        return MIB * (50 + 0.1 * rows ** (1 + bend))

    points = measure_until_full(taken, start, 10**6, 1000 * MIB)
    fitting = max(rows for rows in points if points[rows] <= 1000 * MIB)
    assert taken(2 * fitting) > 1000 * MIB


def test_a_trial_that_is_killed_counts_as_too_large():
    def taken(rows):
        return MIB * (10 + rows) if rows < 300 else math.inf

    points = measure_until_full(taken, 64, 10**6, 1000 * MIB)
    fitting = max(rows for rows in points if points[rows] <= 1000 * MIB)
    assert 150 <= fitting < 300

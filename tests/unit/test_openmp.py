"""Threads spin where each of them has a core, and sleep where they would take one away."""

import pytest

from heedful.openmp import SPINS, wait_settings

SLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
SPIN = {**SLEEP, "GOMP_SPINCOUNT": str(SPINS)}


@pytest.mark.parametrize(
    ("environment", "num_cores", "num_running", "expected"),
    [
        ({}, 2, 0, SPIN),
        ({}, 2, 1, SLEEP),
        ({"OMP_NUM_THREADS": "1"}, 2, 1, SPIN),
        ({"OMP_NUM_THREADS": "2,1"}, 8, 6, SPIN),
        ({"OMP_NUM_THREADS": "2"}, 8, 7, SLEEP),
        ({"OMP_NUM_THREADS": "many"}, 8, 1, SLEEP),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, 2, 0, {}),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, 2, 0, {}),
        ({"GOMP_SPINCOUNT": "7"}, 2, 0, SLEEP),
    ],
)
def test_settings_follow_the_machine_and_the_user(environment, num_cores, num_running, expected):
    assert wait_settings(environment, num_cores, num_running) == expected

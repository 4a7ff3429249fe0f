"""How OpenMP threads wait for one another, which its runtime reads when torch is loaded.

A thread that spins sees its work at once, but occupies a core that another process may need; one
that sleeps is woken by the system, which takes microseconds (docs/decisions/0006).
"""

import os
from collections.abc import Mapping
from pathlib import Path

WAIT_POLICY = "OMP_WAIT_POLICY"  # the variable that OpenMP reads
SPINS = 2000
"""Tests of a waiting thread before it sleeps: some microseconds, longer than most waits of a step
on an idle machine, and less than the time for which a busy one would take the core away."""


def wait_settings(
    environment: Mapping[str, str], num_cores: int, num_running: int
) -> dict[str, str]:
    """Return variables for a machine on which so many other processes run now.

    Threads spin shortly if each of them has a core to itself. What the user has set stays.
    """
    settings = {WAIT_POLICY: "PASSIVE"}
    num_threads = environment.get("OMP_NUM_THREADS", "").split(",")[0]
    needed = int(num_threads) if num_threads.isdigit() else num_cores
    if num_cores - num_running >= needed and WAIT_POLICY not in environment:
        settings["GOMP_SPINCOUNT"] = str(SPINS)
    return {name: value for name, value in settings.items() if name not in environment}


def configure_threads() -> None:
    """Let threads of a torch that is loaded later wait as suits the machine."""
    num_running = _num_other_running()
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    os.environ.update(wait_settings(os.environ, num_cores, num_running))


def _num_other_running() -> int:
    """Return how many processes and threads run besides this one; many if it is not known."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        (count,) = (line.split()[1] for line in lines if line.startswith("procs_running"))
        return int(count) - 1
    except (OSError, ValueError):
        return 1_000_000

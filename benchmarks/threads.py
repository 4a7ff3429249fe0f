"""Time of decoding steps for thread policies, on an idle machine and beside busy processes.

    python -m benchmarks.threads [--rounds 3] [--threads 2]

Each policy is an environment of its own process, which runs the products of a decoding step of 160
rows and of 5 rows, 256 channels and 8,000 tokens. Busy: one process that computes all the time, on
as many cores as there are threads. Policies take turns; infinite is what made no progress.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from benchmarks.harness import Spread, Table, describe_machine

SPIN_COUNTS = 200, 1000, 2000, 10_000, 100_000
POLICIES: dict[str, dict[str, str]] = {
    "heedful": {},
    "sleeping": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spinning": {"OMP_WAIT_POLICY": "ACTIVE"},
    "libgomp's default": {},
    **{f"{count} spins": {"GOMP_SPINCOUNT": str(count)} for count in SPIN_COUNTS},
}
STEPS = {160: 20, 5: 100}
TIMEOUT = 15.0
"""Seconds after which a process that makes no progress is given up."""


def run_steps(num_threads: int) -> None:
    """Print the microseconds of a step for each number of rows."""
    import torch

    torch.set_num_threads(num_threads)
    layers = [torch.randn(256, 256) for _ in range(8)]
    head = torch.randn(256, 8000)
    with torch.inference_mode():
        for num_rows, num_steps in STEPS.items():
            inputs = torch.randn(num_rows, 256)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(num_steps):
                    outputs = inputs
                    for layer in layers:
                        outputs = torch.relu(outputs @ layer)
                    torch.log_softmax(outputs @ head, dim=-1)
                times.append((time.perf_counter() - start) / num_steps)
            print(1e6 * statistics.median(times))


def measure(name: str, num_threads: int) -> list[float]:
    """Return the times of a process with this policy; heedful chooses its own when imported."""
    variables = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {key: value for key, value in os.environ.items() if key not in variables}
    first = "heedful" if name == "heedful" else "torch"
    program = f"import {first}; from benchmarks.threads import run_steps; run_steps({num_threads})"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env=environment | POLICIES[name],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return [float("inf")] * len(STEPS)
    return [float(line) for line in ended.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed")
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    arguments = parser.parse_args()
    print(describe_machine())
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[-arguments.threads :]
        os.sched_setaffinity(0, cores)
    table = Table("machine", "threads", *(f"{rows} rows, us per step" for rows in STEPS))
    for is_busy in (False, True):
        times: dict[str, list[list[float]]] = {name: [] for name in POLICIES}
        for _ in range(arguments.rounds):
            for name in POLICIES:
                busy = [sys.executable, "-c", "while True: pass"]
                with subprocess.Popen(busy if is_busy else [sys.executable, "-c", ""]) as other:
                    times[name].append(measure(name, arguments.threads))
                    other.kill()
        for name, rounds in times.items():
            cells = [Spread.of(column).format() for column in zip(*rounds, strict=True)]
            table.add("beside a busy process" if is_busy else "idle", name, *cells)


if __name__ == "__main__":
    main()

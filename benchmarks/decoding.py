"""How fast does heedful decode, beside other systems with models of the same size?

    python -m benchmarks.decoding [--quick] [--rounds 7] [--only recurrent]

A recurrent model (a bidirectional LSTM of two layers, an LSTM with additive attention) beside
JoeyNMT, OpenNMT-py and Eole, and a Transformer of 3+3 layers beside Hugging Face's `generate`:
width 256, 8,000 words, random weights, single precision, two threads on a CPU. Every system reads
the same sources and takes 18 steps for every output. Each is a process in an environment of its
own; rounds go from one to the next, so that a busy machine slows them alike, and back the next
time. Printed are sentences a second, by the median round, and how many times as fast as the best
of the others heedful was, by the median over rounds of the ratio within each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.environments import (
    EOLE,
    JOEYNMT,
    OPENNMT,
    TRANSFORMERS,
    NotInstalledError,
    python_of,
)
from benchmarks.peers.system import BrokenSystemError, System, running
from benchmarks.peers.workload import Task


class Case(NamedTuple):
    """A task, and how many times as fast as the best of the others heedful is to do it."""

    task: Task
    promised: float | None = None

    @property
    def title(self) -> str:
        """What is done, in words."""
        beam = f"beam {self.task.beam}" if self.task.beam > 1 else "greedy"
        return f"{beam}, batch {self.task.batch_size}"


PEERS = {"recurrent": [JOEYNMT, OPENNMT, EOLE], "transformer": [TRANSFORMERS]}
CASES = {
    "recurrent": [
        Case(Task(beam=5, batch_size=32, num_sources=64), promised=1.3),
        Case(Task(beam=1, batch_size=32, num_sources=64)),
        Case(Task(beam=5, batch_size=1, num_sources=8)),
        Case(Task(beam=1, batch_size=1, num_sources=8)),
    ],
    "transformer": [
        Case(Task(beam=5, batch_size=32, num_sources=64), promised=1.6),
        Case(Task(beam=1, batch_size=32, num_sources=64), promised=1.6),
        Case(Task(beam=5, batch_size=1, num_sources=8)),
        Case(Task(beam=1, batch_size=1, num_sources=8)),
    ],
}
ROUNDS, QUICK_ROUNDS = 9, 3

Times = dict[str, list[float]]  # of a system by name, seconds of every round


def start(kind: str, stack: ExitStack) -> list[System]:
    """Start heedful, and every peer that can be; they end with the stack."""
    ours = running("heedful", Path(sys.executable), "with_heedful", kind)
    systems = [stack.enter_context(ours)]
    for peer in PEERS[kind]:
        try:
            theirs = running(peer.name, python_of(peer), peer.module)
            systems.append(stack.enter_context(theirs))
        except (NotInstalledError, BrokenSystemError) as problem:
            print(f"  left out: {peer.name}: {problem}")
    return systems


def measure(systems: list[System], task: Task, rounds: int) -> Times:
    """Time every system in turn, and in either order; the first round warms up."""
    times: Times = {system.name: [] for system in systems}
    for number in range(1 + rounds):
        for system in systems if number % 2 else reversed(systems):
            taken = system.seconds(task)
            if number:
                times[system.name].append(taken)
    return times


def compare(times: Times) -> tuple[str, list[float]]:
    """Name the fastest of the others, and say how many times as fast we were in every round."""
    ours, *others = times
    best = min(others, key=lambda name: statistics.median(times[name]))
    pairs = zip(times[best], times[ours], strict=True)
    return best, sorted(theirs / own for theirs, own in pairs)


def report(case: Case, times: Times) -> None:
    print(f"  {case.title}")
    for name, taken in times.items():
        speed = case.task.num_sources / statistics.median(taken)
        print(f"    {name:<21}{speed:8.1f} sentences/s")
    if len(times) > 1:
        best, ratios = compare(times)
        promise = f"   (at least {case.promised:g})" if case.promised else ""
        print(
            f"    {statistics.median(ratios):.2f} x {best}, in {len(ratios)} rounds from "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}{promise}",
            flush=True,
        )


def bench(kind: str, rounds: int) -> None:
    print(f"{kind}")
    with ExitStack() as stack:
        systems = start(kind, stack)
        for system in systems:
            print(f"  {system.name:<23}{system.weights:>10,} weights")
        for case in CASES[kind]:
            report(case, measure(systems, case.task, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is timed")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--only", choices=list(CASES), help="one of the two models")
    arguments = parser.parse_args()
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    for kind in [arguments.select_beams] if arguments.select_beams else CASES:
        bench(kind, rounds)


if __name__ == "__main__":
    main()

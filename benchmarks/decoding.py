"""Decoding speed beside other toolkits with models of the same size.

    python -m benchmarks.decoding [--quick] [--rounds 7] [--only recurrent] [--baseline FOLDER]

An RNN (bidirectional LSTM encoder with two layers, LSTM decoder with additive attention) beside
JoeyNMT, OpenNMT-py and Eole, and a Transformer with 3+3 layers beside Hugging Face's `generate`:
hidden size 256, vocabulary 8,000, random parameters, fp32, two CPU threads. Every system decodes
the same sources with 18 steps per output, in a process and an environment of its own. Systems take
turns, in alternating order, so that a busy machine slows them alike. Prints sentences per second
(median round) and the speed relative to the best peer (median over rounds of the ratio within
each). With `--baseline`, the only peer is heedful in another checkout.
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
from benchmarks.peers.workload import Workload


class Case(NamedTuple):
    """A workload and the target speed relative to the best peer."""

    task: Workload
    target_ratio: float | None = None

    @property
    def title(self) -> str:
        """Description of the workload."""
        beam = f"beam {self.task.beam}" if self.task.beam > 1 else "greedy"
        return f"{beam}, batch {self.task.batch_size}"


PEERS = {"recurrent": [JOEYNMT, OPENNMT, EOLE], "transformer": [TRANSFORMERS]}
CASES = {
    "recurrent": [
        Case(Workload(beam=5, batch_size=32, num_sources=64), target_ratio=1.3),
        Case(Workload(beam=1, batch_size=32, num_sources=64)),
        Case(Workload(beam=5, batch_size=1, num_sources=8)),
        Case(Workload(beam=1, batch_size=1, num_sources=8)),
    ],
    "transformer": [
        Case(Workload(beam=5, batch_size=32, num_sources=64), target_ratio=1.6),
        Case(Workload(beam=1, batch_size=32, num_sources=64), target_ratio=1.6),
        Case(Workload(beam=5, batch_size=1, num_sources=8)),
        Case(Workload(beam=1, batch_size=1, num_sources=8)),
    ],
}
ROUNDS, QUICK_ROUNDS = 9, 3

Times = dict[str, list[float]]  # seconds of every round, by name of the system


def start(kind: str, stack: ExitStack, baseline: Path | None) -> list[System]:
    """Start heedful and every available peer, or the baseline; they end with the stack."""
    python = Path(sys.executable)
    ours = running("heedful", python, "with_heedful", kind)
    systems = [stack.enter_context(ours)]
    if baseline:
        theirs = running("heedful, baseline", python, "with_heedful", kind, root=baseline)
        return [*systems, stack.enter_context(theirs)]
    for peer in PEERS[kind]:
        try:
            theirs = running(peer.name, python_of(peer), peer.module)
            systems.append(stack.enter_context(theirs))
        except (NotInstalledError, BrokenSystemError) as problem:
            print(f"  skipped: {peer.name}: {problem}")
    return systems


def measure(systems: list[System], task: Workload, rounds: int) -> Times:
    """Time the systems in turn, in alternating order; the first round is a warm-up."""
    times: Times = {system.name: [] for system in systems}
    for index in range(1 + rounds):
        for system in systems if index % 2 else reversed(systems):
            taken = system.seconds(task)
            if index:
                times[system.name].append(taken)
    return times


def compare(times: Times) -> tuple[str, list[float]]:
    """Return the fastest peer and our speed relative to it in every round, sorted."""
    name, *peers = times
    best = min(peers, key=lambda peer: statistics.median(times[peer]))
    pairs = zip(times[best], times[name], strict=True)
    return best, sorted(theirs / ours for theirs, ours in pairs)


def report(case: Case, times: Times) -> None:
    print(f"  {case.title}")
    for name, taken in times.items():
        speed = case.task.num_sources / statistics.median(taken)
        print(f"    {name:<21}{speed:8.1f} sentences/s")
    if len(times) > 1:
        best, ratios = compare(times)
        target = f"   (at least {case.target_ratio:g})" if case.target_ratio else ""
        print(
            f"    {statistics.median(ratios):.2f} x {best}, in {len(ratios)} rounds from "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}{target}",
            flush=True,
        )


def bench(kind: str, rounds: int, baseline: Path | None) -> None:
    print(f"{kind}")
    with ExitStack() as stack:
        systems = start(kind, stack, baseline)
        for system in systems:
            print(f"  {system.name:<23}{system.num_parameters:>10,} parameters")
        for case in CASES[kind]:
            report(case, measure(systems, case.task, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is timed")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--only", choices=list(CASES), help="one of the two models")
    parser.add_argument(
        "--baseline", type=Path, metavar="FOLDER", help="another checkout, in place of the peers"
    )
    arguments = parser.parse_args()
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    for kind in [arguments.only] if arguments.only else CASES:
        bench(kind, rounds, arguments.baseline)


if __name__ == "__main__":
    main()

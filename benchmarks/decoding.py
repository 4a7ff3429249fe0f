"""Decoding speed beside other toolkits with models of the same size.

    python -m benchmarks.decoding [--quick] [--rounds 7] [--only recurrent] [--baseline FOLDER]

An RNN (bidirectional LSTM encoder with two layers, LSTM decoder with additive attention) beside
JoeyNMT, OpenNMT-py and Eole, and a Transformer with 3+3 layers beside Hugging Face's `generate`:
hidden size 256, vocabulary 8,000, random parameters, fp32, two CPU threads. Every system decodes
the same sources with 18 steps per output, in a process and an environment of its own. Systems take
turns. Prints sentences per second and the speed relative to each peer; a target is that for the
best peer. With `--baseline`, the only peer is heedful in another checkout.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Spread, Table, best_of, describe_machine, ratios, take_turns
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


def bench(kind: str, rounds: int, baseline: Path | None) -> None:
    """Print a table for one of the two models."""
    with ExitStack() as stack:
        systems = start(kind, stack, baseline)
        columns = "sentences/s", "heedful is faster by", "at least"
        table = Table(kind, "system", "parameters", *columns)
        for case in CASES[kind]:
            measures = {system.name: partial(system.seconds, case.task) for system in systems}
            times = take_turns(measures, rounds=rounds)
            best = best_of(times, list(times)[1:]) if len(times) > 1 else ""
            for system in systems:
                taken = times[system.name]
                speed = Spread.of([case.task.num_sources / seconds for seconds in taken])
                ratio = ratios(times, "heedful", system.name).format(".2f")
                target = f"{case.target_ratio:g}" if case.target_ratio else ""
                table.add(
                    case.title,
                    system.name,
                    f"{system.num_parameters:,}",
                    speed.format(".1f"),
                    "" if system.name == "heedful" else ratio,
                    target if system.name == best else "",
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is timed")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--only", choices=list(CASES), help="one of the two models")
    parser.add_argument(
        "--baseline", type=Path, metavar="FOLDER", help="another checkout, in place of the peers"
    )
    arguments = parser.parse_args()
    print(f"{describe_machine()}; fp32, two threads for each system")
    rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    for kind in [arguments.only] if arguments.only else CASES:
        bench(kind, rounds, arguments.baseline)


if __name__ == "__main__":
    main()

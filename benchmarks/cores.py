"""Whole trainings on a CPU against the number of cores: tokens per second, BLEU after minutes.

    python -m benchmarks.cores --source train.fr.gz --target train.en.gz [--minutes 5] [--rounds 1]
        [--cores 2 4 8 16] [--processes 0] [--test test.fr.gz test.en.gz] [--set KEY=VALUE]
        [--at-once]

`heedful train` without a recipe, on the first cores of the machine, for so many minutes. Target
tokens are counted over the second half; BLEU is that of the test files. `--processes` sets
training.cpu_processes (0: as heedful chooses); several values are compared.
`--at-once` trains on different cores of the machine at the same time, to compare settings.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Spread, Table, describe_machine


def train_once(arguments: dict[str, Any]) -> dict[str, Any]:
    """Train in this process on the cores it may use, and return what came of it."""
    from rich.console import Console

    from benchmarks.gpu.endtoend import StepTimes, speed_of
    from heedful.experiment import train
    from heedful.experiment.evaluation import evaluate
    from heedful.runs import Run

    record, start = StepTimes(), time.perf_counter()
    with TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        result = train(
            run=Path(folder, "run"),
            data=arguments["data"],
            minutes=arguments["minutes"],
            settings=arguments["settings"],
            device="cpu",
            callbacks=[record],
            console=Console(file=log),
        )
        seconds = time.perf_counter() - start
        run = Run(Path(folder, "run"))
        lines = [json.loads(line) for line in run.folder.joinpath("metrics.jsonl").open()]
        losses = [line["loss"] for line in lines if line["type"] == "validation"]
        bleu = None
        if test := arguments["test"]:
            scores = evaluate(run.folder, data=dict(zip(("source", "target"), test, strict=True)))
            bleu = next(score.value for score in scores if score.name.lower() == "bleu")
        (ranks,) = {line["ranks"] for line in lines if line["type"] == "environment"}
    return {
        "ranks": ranks,
        "threads": next(line["threads"] for line in lines if line["type"] == "environment"),
        "tokens_per_second": speed_of(record.steps).median,
        "steps": result.step,
        "training_seconds": result.seconds,
        "seconds": seconds,
        "loss": losses[-1],
        "bleu": bleu,
    }


def run_on_cores(cores: Sequence[int], arguments: dict[str, Any]) -> subprocess.Popen[str]:
    """Start a training that has these cores alone."""
    program = (
        f"import os; os.sched_setaffinity(0, {list(cores)}); "
        "import heedful, json, sys; from benchmarks.cores import train_once; "
        "print('RESULT', json.dumps(train_once(json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a training."""
    output, _ = process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert lines, f"exit {process.returncode}: {output}"
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--test", nargs=2, metavar="FILE", help="source and target to score")
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--processes", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], dest="settings", metavar="KEY=VALUE")
    parser.add_argument("--at-once", action="store_true", help="on different cores of the machine")
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    print(describe_machine())
    data = {"source": options.source, "target": options.target}
    columns = "target tokens/s", "times the first", "steps", "seconds in all", "dev loss", "BLEU"
    table = Table("cores", "processes x threads", *columns)
    setups = [(cores, count) for cores in options.cores for count in options.processes]
    setups = [setup for setup in setups if max(setup) <= len(available)]
    results: dict[tuple[int, int], list[dict[str, Any]]] = {setup: [] for setup in setups}
    for _ in range(options.rounds):
        started, first = [], 0
        for cores, count in setups:
            settings = [*options.settings, *([f"training.cpu_processes={count}"] if count else [])]
            arguments = {
                "data": data,
                "minutes": options.minutes,
                "settings": settings,
                "test": options.test,
            }
            process = run_on_cores(available[first : first + cores], arguments)
            started.append(process)
            if options.at_once:
                first += cores
            else:
                results[cores, count].append(result_of(process))
        if options.at_once:
            for setup, process in zip(setups, started, strict=True):
                results[setup].append(result_of(process))
    slowest = None
    for (cores, _), runs in results.items():
        speed = Spread.of([run["tokens_per_second"] for run in runs])
        slowest = slowest or speed.median
        bleu = Spread.of([run["bleu"] for run in runs]).format(".1f") if options.test else ""
        table.add(
            cores,
            f"{runs[0]['ranks']} x {runs[0]['threads']}",
            speed.format(),
            f"{speed.median / slowest:.2f}",
            ", ".join(str(run["steps"]) for run in runs),
            Spread.of([run["seconds"] for run in runs]).format(),
            Spread.of([run["loss"] for run in runs]).format(".3f"),
            bleu,
        )


if __name__ == "__main__":
    main()

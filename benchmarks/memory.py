"""Memory of preparing and reading a dataset larger than memory.

Generates pairs of random words, tokenizes them into shards and reads batches from there; prints the
peak memory of each (without the page cache), pairs per second, and the time to the first batch of
an epoch, whose order is shuffled. Memory must not grow with the pairs. Each has its own process.

    python -m benchmarks.memory                              200,000 pairs
    python -m benchmarks.memory --pairs 1000000 5000000 20000000
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from itertools import accumulate, islice, pairwise
from pathlib import Path

from benchmarks.harness import Table, describe_machine
from benchmarks.memory_use import anonymous_bytes_with_children

WORDS = 30_000
LINES = 100_000
VOCABULARY_LINES = 20_000
BATCHES = 2000


def write_pairs(folder: Path, count: int) -> None:
    """Write two files of random words; lines recur, each time with another target."""
    rng = random.Random(0)
    words = ["".join(rng.choices("aeioulnrst", k=rng.randint(2, 9))) for _ in range(WORDS)]
    weights = list(accumulate(1 / (rank + 10) for rank in range(WORDS)))
    lines = [
        " ".join(rng.choices(words, cum_weights=weights, k=rng.randint(5, 20))) + "\n"
        for _ in range(LINES)
    ]
    with (folder / "source").open("w") as source, (folder / "target").open("w") as target:
        for start in range(0, count, LINES):
            shift = start // LINES
            selection = slice(0, min(LINES, count - start))
            source.writelines(lines[selection])
            target.writelines([*lines[shift + 1 :], *lines[: shift + 1]][selection])


class PeakMemoryMonitor:
    """Samples the anonymous memory of this process and its children 20 times per second."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemoryMonitor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, anonymous_bytes_with_children())


def build(folder: Path) -> dict[str, str]:
    """Tokenize the pairs into shards."""
    from rich.console import Console

    from heedful.experiment import build_prepared_dataset

    start = time.perf_counter()
    with PeakMemoryMonitor() as monitor:
        prepared = build_prepared_dataset(_recipe(folder), folder / "tokens", Console(quiet=True))
    speed = prepared.filter_report().num_pairs / (time.perf_counter() - start)
    size = sum(path.stat().st_size for path in (folder / "tokens").rglob("*.bin"))
    return {
        "tokenizing, MB": f"{monitor.peak / 1e6:,.0f}",
        "tokenizing, pairs/s": f"{speed:,.0f}",
        "tokens, MB": f"{size / 1e6:,.0f}",
    }


def read(folder: Path) -> dict[str, str]:
    """Read batches from the shards: the first ones of two epochs, and many of the first."""
    from rich.console import Console

    from heedful.data.shuffling import DataCursor
    from heedful.experiment import load_data
    from heedful.runs import Run

    recipe = _recipe(folder, f"data.train={{type: prepared, path: {folder / 'tokens'}}}")
    with PeakMemoryMonitor() as monitor:
        times = [time.perf_counter()]
        data_module = load_data(recipe, Run(folder / "run"), Console(quiet=True))
        times.append(time.perf_counter())
        for epoch in range(2):  # each epoch has another order
            next(iter(data_module.train_batches(DataCursor(epoch, 0))))
            times.append(time.perf_counter())
        batches = islice(data_module.train_batches(DataCursor(0, 0)), BATCHES)
        pairs = sum(len(batch.targets) for batch in batches)
        times.append(time.perf_counter())
    opening, first, second, reading = (end - start for start, end in pairwise(times))
    return {
        "to open and verify, s": f"{opening:.1f}",
        "first batch, s": f"{first:.2f}",
        "first batch of the next epoch, s": f"{second:.2f}",
        "reading, MB": f"{monitor.peak / 1e6:,.0f}",
        "reading, pairs/s": f"{pairs / reading:,.0f}",
    }


STAGES = {"build": build, "read": read}


def _recipe(folder: Path, *overrides: str):  # noqa: ANN202
    from heedful.recipes import load_recipe

    files = f"data.train={{type: parallel-files, source: {folder}/source, target: {folder}/target}}"
    lines = f"data.max_tokenizer_lines={VOCABULARY_LINES}"
    return load_recipe("default", [files, lines, *overrides])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000])
    parser.add_argument("--folder", help="where to write; a temporary folder if not given")
    parser.add_argument("--only", choices=["build", "read"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(STAGES[arguments.only](Path(arguments.folder))))
        return
    print(describe_machine())
    table = None
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            write_pairs(Path(folder), pairs)
            measured: dict[str, str] = {}
            for stage in STAGES:
                command = [sys.executable, "-m", "benchmarks.memory", "--folder", folder]
                ended = subprocess.run(
                    [*command, "--only", stage], check=True, stdout=subprocess.PIPE, text=True
                )
                measured |= json.loads(ended.stdout)
        table = table or Table("pairs", *measured)
        table.add(f"{pairs:,}", *measured.values())


if __name__ == "__main__":
    main()

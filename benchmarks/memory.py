"""How much memory does data take that does not fit into memory?

Makes pairs of random words, as many as named, has them cut into tokens in files, and reads batches
from there; prints the most memory that was taken by each (without pages of files, which the system
takes back when it needs them) and the pairs a second. Each runs in a process of its own. Memory is
flat if it does not grow with the pairs.

    python -m benchmarks.memory                              200,000 pairs
    python -m benchmarks.memory --pairs 1000000 5000000 20000000
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from itertools import accumulate, islice
from pathlib import Path

WORDS = 30_000
LINES = 100_000
VOCABULARY_LINES = 20_000
BATCHES = 2000


def write_pairs(folder: Path, count: int) -> None:
    """Write two files of lines of made-up words; lines come again, each time beside another."""
    chance = random.Random(0)
    words = ["".join(chance.choices("aeioulnrst", k=chance.randint(2, 9))) for _ in range(WORDS)]
    weights = list(accumulate(1 / (rank + 10) for rank in range(WORDS)))
    lines = [
        " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(5, 20))) + "\n"
        for _ in range(LINES)
    ]
    with (folder / "source").open("w") as source, (folder / "target").open("w") as target:
        for number in range(0, count, LINES):
            shift = number // LINES
            some = slice(0, min(LINES, count - number))
            source.writelines(lines[some])
            target.writelines([*lines[shift + 1 :], *lines[: shift + 1]][some])


class Watched:
    """The most anonymous memory this process and its children have taken, looked at 20 times/s."""

    def __init__(self) -> None:
        self.most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            own = os.getpid()
            children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
            self.most = max(self.most, sum(map(anonymous, [str(own), *children])))


def anonymous(process: str) -> int:
    """Bytes of memory that are not pages of files."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:  # it has ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def build(folder: Path) -> None:
    from rich.console import Console

    from heedful.experiment import build_prepared_dataset

    began = time.perf_counter()
    with Watched() as watched:
        prepared = build_prepared_dataset(_recipe(folder), folder / "tokens", Console(quiet=True))
    seconds = time.perf_counter() - began
    pairs = prepared.filter_report().num_pairs
    print(f"  building: {watched.most / 1e6:7.0f} MB  {pairs / seconds:9,.0f} pairs/s")
    size = sum(path.stat().st_size for path in (folder / "tokens").rglob("*.bin"))
    print(f"            {size / 1e6:7.0f} MB of tokens in {len(prepared.shards)} shards")


def read(folder: Path) -> None:
    from rich.console import Console

    from heedful.data.batch_stream import DataCursor
    from heedful.experiment import load_data
    from heedful.runs import Run

    recipe = _recipe(folder, f"data.train={{type: tokens, path: {folder / 'tokens'}}}")
    with Watched() as watched:
        began = time.perf_counter()
        corpora = load_data(recipe, Run(folder / "run"), Console(quiet=True))
        opened = time.perf_counter() - began
        began = time.perf_counter()
        batches = islice(corpora.train_batches(DataCursor(0, 0)), BATCHES)
        pairs = sum(len(batch.inputs) for batch in batches)
        seconds = time.perf_counter() - began
    print(f"  reading:  {watched.most / 1e6:7.0f} MB  {pairs / seconds:9,.0f} pairs/s")
    print(f"            {opened:.1f} s to open and to hold every byte against its hash")


def _recipe(folder: Path, *overrides: str):  # noqa: ANN202
    from heedful.recipes import load_recipe

    files = f"data.train={{type: files, source: {folder}/source, target: {folder}/target}}"
    lines = f"data.max_tokenizer_lines={VOCABULARY_LINES}"
    return load_recipe("default", [files, lines, *overrides])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000])
    parser.add_argument("--folder", help="where to write; a temporary folder if not given")
    parser.add_argument("--only", choices=["build", "read"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.select_beams:
        {"build": build, "read": read}[given.select_beams](Path(given.folder))
        return
    for pairs in given.pairs:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            write_pairs(Path(folder), pairs)
            print(f"{pairs:,} pairs:", flush=True)
            for select_beams in ("build", "read"):
                command = [sys.executable, "-m", "benchmarks.memory", "--folder", folder]
                subprocess.run([*command, "--only", select_beams], check=True)


if __name__ == "__main__":
    main()

"""Train small recipes of every task in two checkouts and compare their results bit by bit.

A change of structure must not change a number. `record CHECKOUT FILE` trains each recipe for some
steps with one thread and writes every training and validation loss, a hash of every parameter and
what the command of the task prints; `compare FILE FILE` prints where two records differ and exits
with 1 if they do. Parameters are compared without their names, so that modules can be renamed.

    python tools/compare_results.py record ../before before.json
    python tools/compare_results.py record . after.json
    python tools/compare_results.py compare before.json after.json
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from runpy import run_module
from typing import Any

LOSSES = ("loss", "error", "main_loss", "grad_norm", "norm")


@dataclass(frozen=True)
class Job:
    """How to train a recipe, and the command that prints its outputs; paths are in DATA."""

    output: tuple[str, ...]
    files: tuple[str, ...] = ()
    settings: tuple[str, ...] = ("data.train.num_examples=1000", "data.dev.num_examples=50")
    max_steps: int = 8


TRANSLATE = ("translate", "{run}", "{data}/test.la", "--beam", "5", "--json")
GENERATE = ("generate", "{run}", "the ", "--seed", "1", "--max-new-tokens", "100")
JOBS = {
    "bahdanau-2015-small": Job(TRANSLATE),
    "luong-2015-local-p-small": Job(TRANSLATE),
    "transformer-2017-small": Job(
        TRANSLATE,
        ("--source", "{data}/train.la", "--target", "{data}/train.en"),
        ("training.batching.max_tokens=512",),
    ),
    "convs2s-2017-small": Job(TRANSLATE),
    "copynet-2016-small": Job(TRANSLATE),
    "gpt-tiny": Job(GENERATE, max_steps=30),
    "zaremba-2014-small": Job(GENERATE, max_steps=20),
    "bert-small": Job(("evaluate", "{run}", "{data}/test.en"), max_steps=30),
    "attention-classifier-small": Job(
        ("classify", "{run}", "{data}/test.la", "--json"), ("--labeled", "{data}/labeled.tsv"), ()
    ),
    "bilstm-crf": Job(
        ("tag", "{run}", "{data}/test.la", "--json"), ("--conll", "{data}/tagged.conll"), (), 4
    ),
    "deepar-2020-small": Job(
        ("forecast", "{run}", "{data}/series.csv", "--num-samples", "20"), settings=()
    ),
    "show-attend-tell-2015-soft-small": Job(("caption", "{run}", "{data}/icons", "--json")),
    "ram-2014-small": Job(
        ("glimpse", "{run}", "{data}/digits-images-idx3-ubyte.gz", "--json"), max_steps=30
    ),
}


def import_heedful(checkout: Path) -> None:
    """Import the package of a checkout, on one thread, once for the commands that follow."""
    os.environ |= {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(checkout / "src"))
    heedful = import_module("heedful")
    assert heedful.train  # imports torch and the tasks
    assert Path(heedful.__file__).is_relative_to(checkout)


def run_heedful(*arguments: str) -> str:
    """Run a command in a forked process and return what it printed."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        streams = (stdout.fileno(), stderr.fileno())
        process = get_context("fork").Process(target=run_main, args=(arguments, *streams))
        process.start()
        process.join()
        stdout.seek(0)
        stderr.seek(0)
        if process.exitcode:
            sys.exit(f"heedful {' '.join(arguments)}\n{stderr.read()}")
        return stdout.read()


def run_main(arguments: tuple[str, ...], stdout: int, stderr: int) -> None:
    """Run a command with these file descriptors as its standard output and error."""
    os.dup2(stdout, sys.stdout.fileno())
    os.dup2(stderr, sys.stderr.fileno())
    sys.argv = ["heedful", *arguments]
    run_module("heedful", run_name="__main__")


def read_losses(run: Path) -> list[str]:
    """Return every loss and gradient norm in a metrics log as an exact hexadecimal number."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [float(line[key]).hex() for line in lines for key in LOSSES if line.get(key) is not None]


def hash_parameters(run: Path) -> list[str]:
    """Return the sorted hashes of all tensors in a run's weights."""
    from safetensors.numpy import load_file

    tensors = load_file(next(run.rglob("weights.safetensors"))).values()
    return sorted(hashlib.sha256(tensor.tobytes()).hexdigest() for tensor in tensors)


def write_data(folder: Path) -> None:
    """Write the files that jobs name."""
    for split, size in (("train", 1000), ("test", 20)):
        pairs = run_heedful("data", "latin", "--split", split, "--size", str(size))
        rows = [pair.split("\t") for pair in pairs.splitlines()]
        for name, column in (("la", 0), ("en", 1)):
            lines = "".join(f"{row[column]}\n" for row in rows)
            (folder / f"{split}.{name}").write_text(lines)
        if split == "train":
            write_labels([row[0] for row in rows], folder)
    hours = (f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:00" for hour in range(240))
    values = "".join(f"{hour},{100 + (7 * i) % 24 + i % 5}\n" for i, hour in enumerate(hours))
    (folder / "series.csv").write_text("time,value\n" + values)
    run_heedful("data", "icons", "--size", "3", "-o", str(folder / "icons"))
    run_heedful("data", "digits", "--size", "5", "-o", str(folder / "digits"))


def write_labels(texts: list[str], folder: Path) -> None:
    """Label each text by its length, and tag each word by its last letter."""
    labeled = (f"{'long' if len(text) > 40 else 'short'}\t{text}\n" for text in texts)
    (folder / "labeled.tsv").write_text("".join(labeled))
    tagged = ("".join(f"{word}\t{word[-1]}\n" for word in text.split()) for text in texts)
    (folder / "tagged.conll").write_text("\n".join(tagged))


def record_recipe(recipe: str, data: Path) -> dict[str, Any]:
    """Train one recipe and return its losses, parameter hashes and outputs."""
    job, run = JOBS[recipe], data / recipe
    validate_every = job.max_steps // 2
    settings = (f"training.max_steps={job.max_steps}", f"training.validate_every={validate_every}")
    overrides = [word for setting in settings + job.settings for word in ("--set", setting)]
    files = [word.format(data=data) for word in job.files]
    run_heedful("train", recipe, *files, "--run", str(run), "--device", "cpu", *overrides)
    outputs = run_heedful(*(word.format(run=run, data=data) for word in job.output))
    for path in (str(run), str(data)):
        outputs = outputs.replace(path, "")
    return {"losses": read_losses(run), "parameters": hash_parameters(run), "outputs": outputs}


def record(checkout: Path, recipes: list[str]) -> dict[str, Any]:
    """Train recipes with the code of a checkout."""
    import_heedful(checkout.resolve())
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for recipe in recipes:
            print(f"training {recipe} in {checkout} ...", file=sys.stderr)
            results[recipe] = record_recipe(recipe, Path(folder))
    return results


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print one line for each recipe and return the number of differences."""
    num_differences = 0
    for recipe in after:
        different = [key for key in before[recipe] if before[recipe][key] != after[recipe][key]]
        num_differences += len(different)
        counts = ", ".join(f"{len(before[recipe][key])} {key}" for key in ("losses", "parameters"))
        print(
            f"{recipe:34}{'DIFFERENT: ' + ', '.join(different) if different else 'equal'}"
            f" ({counts}, outputs of {len(before[recipe]['outputs'])} characters)"
        )
    return num_differences


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train in a checkout and write a record")
    recording.add_argument("checkout", type=Path)
    recording.add_argument("file", type=Path)
    recording.add_argument("recipes", nargs="*", default=list(JOBS), metavar="RECIPE")
    comparing = commands.add_parser("compare", help="compare two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        arguments.file.write_text(
            json.dumps(record(arguments.checkout, arguments.recipes), indent=1)
        )
    else:
        records = [json.loads(file.read_text()) for file in (arguments.before, arguments.after)]
        sys.exit(min(compare(*records), 1))


if __name__ == "__main__":
    main()

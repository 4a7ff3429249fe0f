"""Train five small recipes in two checkouts and compare losses, parameters and outputs bit by bit.

A change of structure must not change a number. `record CHECKOUT FILE` trains each recipe for some
steps with one thread and writes every training and validation loss, a hash of every parameter and
the decoded outputs; `compare FILE FILE` prints where two records differ and exits with 1 if they
do. Parameters are compared without their names, so that modules can be renamed.

    python tools/compare_results.py record ../before before.json
    python tools/compare_results.py record . after.json
    python tools/compare_results.py compare before.json after.json
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECIPES = (
    "bahdanau-2015-small",
    "luong-2015-local-p-small",
    "transformer-2017-small",
    "convs2s-2017-small",
    "gpt-tiny",
)
FILES = {"transformer-2017-small"}  # recipes that bring no corpus
MAX_STEPS, VALIDATE_EVERY = 30, 15
LOSSES = ("loss", "error", "main_loss", "grad_norm", "norm")


def run_heedful(checkout: Path, *arguments: str, stdin: str = "") -> str:
    """Run the command of a checkout in a process of its own and return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "heedful", *arguments]
    completed = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        sys.exit(f"{' '.join(command)}\n{completed.stderr}")
    return completed.stdout


def read_losses(run: Path) -> list[str]:
    """Return every loss and gradient norm in a metrics log as an exact hexadecimal number."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [float(line[key]).hex() for line in lines for key in LOSSES if line.get(key) is not None]


def hash_parameters(run: Path) -> list[str]:
    """Return the sorted hashes of all tensors in a run's weights."""
    from safetensors.numpy import load_file

    tensors = load_file(next(run.rglob("weights.safetensors"))).values()
    return sorted(hashlib.sha256(tensor.tobytes()).hexdigest() for tensor in tensors)


def record_recipe(checkout: Path, recipe: str, folder: Path) -> dict[str, Any]:
    """Train one recipe and return its losses, parameter hashes and outputs."""
    pairs = run_heedful(checkout, "data", "latin", "--size", "4000").splitlines()
    sources, targets = zip(*(pair.split("\t") for pair in pairs), strict=True)
    (folder / "train.la").write_text("\n".join(sources) + "\n")
    (folder / "train.en").write_text("\n".join(targets) + "\n")
    run = folder / recipe
    files = ["--source", str(folder / "train.la"), "--target", str(folder / "train.en")]
    settings = [f"training.max_steps={MAX_STEPS}", f"training.validate_every={VALIDATE_EVERY}"]
    run_heedful(
        checkout,
        "train",
        recipe,
        *(files if recipe in FILES else []),
        "--run",
        str(run),
        "--device",
        "cpu",
        *(word for setting in settings for word in ("--set", setting)),
    )
    if recipe.startswith("gpt"):
        outputs = run_heedful(checkout, "generate", str(run), "the ", "--seed", "1")
    else:
        text = "\n".join(sources[:20]) + "\n"
        outputs = run_heedful(checkout, "translate", str(run), "--beam", "5", stdin=text)
    return {"losses": read_losses(run), "parameters": hash_parameters(run), "outputs": outputs}


def record(checkout: Path, recipes: list[str]) -> dict[str, Any]:
    """Train recipes with the code of a checkout."""
    results = {}
    for recipe in recipes:
        print(f"training {recipe} in {checkout} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            results[recipe] = record_recipe(checkout.resolve(), recipe, Path(folder))
    return results


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print one line for each recipe and return the number of differences."""
    num_differences = 0
    for recipe in after:
        different = [key for key in before[recipe] if before[recipe][key] != after[recipe][key]]
        num_differences += len(different)
        counts = ", ".join(f"{len(before[recipe][key])} {key}" for key in ("losses", "parameters"))
        print(
            f"{recipe:28}{'DIFFERENT: ' + ', '.join(different) if different else 'equal'}"
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
    recording.add_argument("recipes", nargs="*", default=list(RECIPES), metavar="RECIPE")
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

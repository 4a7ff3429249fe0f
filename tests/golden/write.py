"""Write the golden runs of this version: a run folder of every recipe in `recipes/`.

    python tests/golden/write.py [NAME ...]

Each run is trained for four steps into a folder named after the version. Beside it, NAME.json has
what `test_golden_runs.py` expects of every later version: the output of commands on files in
`inputs/`, and the dev loss after two more steps. Runs of earlier versions are never written again.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from heedful.version import VERSION

GOLDEN = Path(__file__).resolve().parent
INPUTS = GOLDEN / "inputs"
RESUMED_STEPS = 6
PREDICTIONS = {
    "captioning": ("caption", "{run}", "images", "--json"),
    "classification": ("classify", "{run}", "sums.txt", "--json"),
    "forecasting": ("forecast", "{run}", "series.csv", "--num-samples", "10"),
    "glimpses": ("glimpse", "{run}", "digits-images-idx3-ubyte.gz", "--json"),
    "language-modeling": ("generate", "{run}", "The ", "--max-new-tokens", "20"),
    "masked-language-modeling": ("evaluate", "{run}", "latin.txt"),
    "tagging": ("tag", "{run}", "letters.txt", "--json"),
    "translation-recurrent": ("translate", "{run}", "dates.txt", "--json"),
    "translation-transformer": ("translate", "{run}", "latin.txt", "--json"),
}


def run_heedful(*arguments: str | Path) -> str:
    """Run a command on one thread in the folder of inputs and return what it printed."""
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=INPUTS, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def write_run(recipe: Path, run: Path) -> None:
    """Train a run and remove what names the machine it was trained on."""
    run_heedful("train", recipe, "--run", run, "--device", "cpu", "--quiet")
    for name in (".lock", "train.log"):
        (run / name).unlink(missing_ok=True)
    log = run / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line |= {key: "" for key in ("platform", "device", "command") if key in line}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def read_last_loss(run: Path) -> float:
    """Return the dev loss of the last validation of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["type"] == "validation"][-1]


def record_results(run: Path) -> dict:
    """Return the outputs of commands on a run, and its dev loss after two more steps."""
    commands = (PREDICTIONS[run.name], ("evaluate", "{run}"))
    outputs = [
        {"command": command, "output": run_heedful(*(word.format(run=run) for word in command))}
        for command in commands
    ]
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(run, Path(folder) / run.name)
        steps = f"training.max_steps={RESUMED_STEPS}"
        run_heedful("train", copy / "config.yaml", "--run", copy, "--quiet", "--set", steps)
        resumed = {"max_steps": RESUMED_STEPS, "loss": read_last_loss(copy)}
    return {"commands": outputs, "resumed": resumed}


if __name__ == "__main__":
    for name in sys.argv[1:] or PREDICTIONS:
        run = GOLDEN / VERSION / name
        write_run(GOLDEN / "recipes" / f"{name}.yaml", run)
        results = json.dumps(record_results(run), indent=1).replace(str(run), "{run}")
        run.with_suffix(".json").write_text(results + "\n")

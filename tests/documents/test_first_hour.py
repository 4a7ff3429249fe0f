"""The first hour of a new user: an installed wheel, own files in every format, a model, pages.

The environment is a new one that sees the installed dependencies, so nothing is downloaded; heedful
itself comes from the wheel, and commands run in an empty folder.
"""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from heedful.data.sources import SyntheticPairsConfig
from tools.course_walk import install_in_fresh_environment

pytestmark = pytest.mark.slow
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
QUICK = ["--steps", "3", "--set", "model.encoder.hidden_size=16", "--set", "training.seed=1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a new environment, heedful installed from its wheel, and Latin pairs."""
    folder = tmp_path_factory.mktemp("home")
    install_in_fresh_environment(folder)
    write_files(folder)
    return folder


def write_files(folder):
    """The same 400 pairs in every format, with quotes, tabs' neighbors and Windows line ends."""
    pairs = list(SyntheticPairsConfig(name="latin", split="train", num_examples=400).stream())
    sides = {"la": [pair.source for pair in pairs], "en": [pair.target for pair in pairs]}
    for name, lines in sides.items():
        (folder / f"train.{name}").write_bytes("".join(f"{line}\n" for line in lines).encode())
        (folder / f"windows.{name}").write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    rows = list(zip(*sides.values(), strict=True))
    (folder / "pairs.tsv").write_text("".join(f"{la}\t{en}\n" for la, en in rows), encoding="utf-8")
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("la", "en"), *rows])
    lines = (json.dumps({"la": la, "en": en}) + "\n" for la, en in rows)
    (folder / "pairs.jsonl").write_text("".join(lines), encoding="utf-8")


def run(home, *words, **options):
    """Run a command of the installed heedful; return what it printed."""
    command = [home / "env" / "bin" / "heedful", *words]
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        env=ENVIRONMENT,
        check=False,
        **options,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_wheel_is_used_not_the_checkout(home):
    program = "import heedful; print(heedful.__file__)"
    python = home / "env" / "bin" / "python"
    shown = subprocess.check_output([python, "-c", program], cwd=home, env=ENVIRONMENT, text=True)
    assert shown.startswith(str(home / "env"))


@pytest.mark.parametrize(
    "files",
    [
        ["--source", "train.la", "--target", "train.en"],
        ["--source", "windows.la", "--target", "windows.en"],
        ["--pairs", "pairs.tsv"],
        ["--pairs", "pairs.csv", "--source-column", "la", "--target-column", "en"],
        ["--pairs", "pairs.jsonl", "--source-column", "la", "--target-column", "en"],
    ],
    ids=lambda files: files[1],
)
def test_every_format_trains_the_same_model(home, files):
    folder = home / "runs" / Path(files[1]).name
    run(home, "train", *files, "--run", folder, *QUICK)
    weights = (folder / "weights.safetensors").read_bytes()
    assert weights == (home / "runs" / "train.la" / "weights.safetensors").read_bytes()


def test_minutes_return_a_model_that_translates_and_pages_that_open(home):
    files = ["--source", "train.la", "--target", "train.en"]
    said = run(home, "train", *files, "--minutes", "0.4", "--run", "runs/latin")
    assert said.startswith("runs/latin: reached max_minutes=0.4; try: ")
    assert said.endswith("heedful translate runs/latin FILE\n")
    text = (home / "train.la").read_text(encoding="utf-8").splitlines()[0]
    assert run(home, "translate", "runs/latin", input=f"{text}\n").strip()
    assert "BLEU" in run(home, "evaluate", "runs/latin", *files)
    run(home, "show", "runs/latin", text, "--html", "page.html")
    run(home, "report", "runs/latin")
    for page in (home / "page.html", *(home / "runs" / "latin").glob("*.html")):
        assert page.read_text(encoding="utf-8").lstrip().startswith("<!")
    assert "latin" in run(home, "runs")

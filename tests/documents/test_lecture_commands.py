"""Every command of docs/lectures.md, docs/start and docs/course runs, in the order of the pages.

The rule by which commands are cut: trainings take two steps on the first examples of a built-in
corpus, parameters of experiments have the smallest values that make sense (`SMALLEST`), and tests
are collected, since the test suite runs them. Later commands use the runs of earlier ones.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from benchmarks import long_inputs
from experiments import question_answering
from heedful.comparison import training as comparison_training
from heedful.comparison.training import SPLITS, find_dataset
from heedful.config import to_overrides
from heedful.course.classroom import RUNS
from heedful.data.images.labeled_images import write_idx
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.recipes import load_recipe
from tests.commands import heedful
from tests.documents.commands import commands, shell_lines
from tests.documents.markdown import ROOT
from tests.labeled_texts import labeled_lines
from tests.shape_checking import unchecked
from tests.tagged_words import conll_text, tagged_sentences

SITE_ORDER = re.findall(
    r"^start/[\w-]+$", (ROOT / "docs/index.md").read_text("utf-8"), re.MULTILINE
)
SESSIONS = [f"course/session-{number}" for number in range(1, 6)]
PAGES = {
    "lectures": ["lectures"],
    "start": SITE_ORDER,
    "course": ["course/index", *SESSIONS, "course/gallery", "course/scratch"],
}
BUDGETS = ("--minutes", "--steps", "--budget")
NUM_EXAMPLES = {"train": 60, "dev": 4, "test": 4}
SMALLEST = {
    "steps": 10,
    "seeds": 1,
    "num_words": 2,
    "max_length": 40,
    "repeats": 1,
    "hidden_sizes": 4,
    "data_sizes": 8,
    "budget": "2steps",
    "num_sums": 2,
}


def commands_of(pages):
    """Return the commands of heedful and its modules on some pages, each once."""
    lines = []
    for page in pages:
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        lines += [*shell_lines(text), *re.findall(r"`((?:heedful|python) [^`]+)` \|$", text, re.M)]
    piped = [line.removeprefix("echo ").split(" | ") for line in lines if line.startswith("echo ")]
    given = {f"echo {text} | {command}": (command, text) for text, command in piped}
    own = [given.get(line, (line, "")) for line in dict.fromkeys(lines)]
    return [(line, stdin) for line, stdin in own if is_run(line)]


def is_run(line):
    """Whether a command has no placeholder, and a cut run in this process will do."""
    is_known = re.match(r"heedful|python -m [bet]", line)
    needs_learning = "draw_gallery captions" in line  # some captions are right, some wrong
    is_tested_by_site = "export demo --to page" in line  # needs optional packages
    return is_known and not (re.search(r"\bRUN\b", line) or needs_learning or is_tested_by_site)


def write_files(folder):
    """Write the files that commands read: texts, labels, tags, images and digits."""
    (folder / "train.de").write_text("ein Haus\nzwei Katzen\n" * 30)
    (folder / "train.en").write_text("a house\ntwo cats\n" * 30)
    (folder / "test.la").write_text("Servum puella in via videt.\n")
    (folder / "test.de").write_text("ein Haus\nzwei Katzen\n")
    (folder / "test.en").write_text("a house\ntwo cats\n")
    (folder / "train.csv").write_text("fr,en\n" + "une maison,a house\n" * 60)
    (folder / "book.txt").write_text("It was a house.\nIt was a cat.\n" * 40)
    (folder / "train.tsv").write_text("\n".join(labeled_lines(60)) + "\n")
    vector = " ".join(["0.1"] * 300)
    (folder / "vectors.txt").write_text(f"cat {vector}\nrose {vector}\n")
    (folder / "train.conllu").write_text(conll_text(tagged_sentences(60)))
    (folder / "images").mkdir()
    Image.new("RGB", (32, 32), (200, 10, 10)).save(folder / "images" / "red.png")
    digits = BuiltInDigitsConfig(num_examples=4).read()
    for kind, values in {
        "images-idx3": np.stack([digit.pixels for digit in digits]),
        "labels-idx1": np.array([digit.label for digit in digits], dtype=np.uint8),
    }.items():
        write_idx(folder / f"digits-{kind}-ubyte.gz", values)
    for name in ("docs", "experiments", "tests"):
        (folder / name).symlink_to(ROOT / name)


def small_answers(folder):
    """Copy the recipes of an experiment that starts processes, with the first examples only."""
    answers = Path(shutil.copytree(question_answering.FOLDER, folder / "answers"))
    data = (answers / "data.yaml").read_text()
    (answers / "data.yaml").write_text(re.sub(r"num_examples: \d+", "num_examples: 40", data))
    return answers


def in_steps(words):
    """Return the commands for a command: those of the models that `course prepare` trains."""
    if words[:2] != ["course", "prepare"]:
        return [words]
    models = [model for session in RUNS.values() for model in session.items()]
    return [["train", recipe, "--run", f"runs/{name}"] for name, recipe in models]


def smaller_data(settings):
    """Return options that leave the first examples of the built-in corpora of a `data` section."""
    has_size = [split for split in SPLITS if "num_examples" in (settings.get(split) or {})]
    sizes = [f"data.{split}.num_examples={NUM_EXAMPLES[split]}" for split in has_size]
    return [word for setting in (*sizes, "data.additional_tests={}") for word in ("--set", setting)]


def cut(words):
    """Return a shorter command of heedful."""
    name, *options = words
    if name not in ("train", "compare") or "--help" in options:
        return words
    parameters = commands()[name].make_context(name, list(options)).params
    overrides = parameters["overrides"] or ()
    if name == "train":
        is_file = any(parameters[file] for file in ("source", "pairs", "text", "labeled", "conll"))
        recipe = None if is_file else load_recipe(parameters["recipe"], overrides)
        data = recipe.data.model_dump(mode="json") if recipe else {}
    elif not parameters["recipes"]:
        return words
    else:
        task = load_recipe(parameters["recipes"].split(",")[0]).task
        data = find_dataset(parameters["data"], task).data
        for budget in BUDGETS:
            if budget in words:
                del words[words.index(budget) : words.index(budget) + 2]
    return [*words, "--steps", "2", *smaller_data(data)]


def load_demo(name, settings=None):
    """Load a recipe; that of a demo, which has settings, is cut by the same rule."""
    if settings is None:
        return load_recipe(name)
    loaded = load_recipe(name, settings)
    sizes = smaller_data(loaded.data.model_dump(mode="json"))[1::2]
    return load_recipe(name, [*to_overrides(settings), *sizes, "training.max_steps=2"])


def run_module(module, options, folder, monkeypatch):
    """Run `python -m MODULE` in this process; return an error message, or nothing."""
    if "--help" in options:
        monkeypatch.setattr(sys, "argv", [module, *options])
        with pytest.raises(SystemExit) as leaving:
            runpy.run_module(module, run_name="__main__")
        return "" if not leaving.value.code else f"exit {leaving.value.code}"
    function = import_module(module).main
    if module == "tools.draw_attention":
        function([str(ROOT / path) for path in options])
        return ""
    if module == "tools.draw_gallery":
        function(options)
        return ""
    monkeypatch.setattr(sys, "argv", [module, *options])  # some have options of their own
    app = typer.Typer()
    app.command()(function)
    values = {**SMALLEST, "output_dir": folder, "folder": folder / module}
    for parameter in typer.main.get_command(app).params:
        if parameter.name in values:
            options = [*options, parameter.opts[0], str(values[parameter.name])]
    result = CliRunner().invoke(app, options)
    return "" if result.exit_code == 0 else f"{result.output[-500:]} {result.exception!r}"


def collect_tests(paths):
    """Return the errors of pytest while it collects files."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *paths]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [] if ended.returncode == 0 else [ended.stdout[-2000:]]


@pytest.mark.wide
@pytest.mark.parametrize(
    "pages",
    [pytest.param(PAGES["lectures"], marks=pytest.mark.slow), PAGES["start"], PAGES["course"]],
    ids=PAGES,
)
def test_commands_run_in_the_order_of_the_pages(pages, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    in_process = partial(
        comparison_training.run_comparison, train_run=comparison_training.train_in_process
    )
    monkeypatch.setattr(comparison_training, "run_comparison", in_process)
    monkeypatch.setattr("heedful.recipes.load_recipe", load_demo)  # demos import it when called
    monkeypatch.setattr(long_inputs, "LENGTHS", [64, 128])
    monkeypatch.setattr(long_inputs, "measure_in_subprocess", long_inputs.process_bytes)
    monkeypatch.setattr(question_answering, "FOLDER", small_answers(tmp_path))
    monkeypatch.setattr(Path, "write_text", write_outside(ROOT, Path.write_text))
    failures, test_files = [], []
    for command, stdin in commands_of(pages):
        program, *words = shlex.split(command)
        if program == "python" and words[1] == "pytest":
            test_files += words[2:]
            continue
        with unchecked():
            if program == "python":
                error = run_module(words[1], words[2:], tmp_path, monkeypatch)
            else:
                error = run_heedful(words, stdin, capsys, monkeypatch)
        if error:
            failures.append((command, error))
    assert failures == []
    assert collect_tests(test_files) == []


def run_heedful(words, stdin, capsys, monkeypatch):
    """Run a command, cut; return an error message, or nothing."""
    for step in in_steps(words):
        options = ["--device", "cpu"] if takes_device(step) else []
        ended = heedful(capsys, monkeypatch, *cut(list(step)), *options, stdin=stdin)
        is_starter = words[:2] == ["course", "check"] and "is still ___" in ended.out
        if ended.code and not is_starter:
            return f"{step}: {ended.err[-1500:]}"
    return ""


def takes_device(words):
    if words[0] not in commands():  # --version
        return False
    options = commands()[words[0]].params
    return "--help" not in words and any("--device" in option.opts for option in options)


def write_outside(folder, write_text):
    """Return `Path.write_text`, which writes nothing below a folder."""

    def write(path, text, **options):
        is_inside = path.resolve().is_relative_to(folder)
        return len(text) if is_inside else write_text(path, text, **options)

    return write

"""A task of another package, added at run time, is known to the processes that commands start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.labeled_texts import labeled_lines

TASK = """
from typing import Literal

from heedful.config import BaseConfig
from heedful.tasks.classification.model import TextClassifierConfig
from heedful.tasks.classification.task import ClassificationTask


class RaterConfig(BaseConfig):
    type: Literal["rater"] = "rater"
    hidden_size: int = 8

    def build(self, **sizes):
        encoder = {"type": "recurrent", "embedding_size": 8, "hidden_size": self.hidden_size}
        return TextClassifierConfig.model_validate({"encoder": encoder}).build(**sizes)


class RatingTask(ClassificationTask):
    name = "rating"
    model_configs = (RaterConfig,)


TASK = RatingTask()
"""
COMMAND = """
from heedful.tasks.classification.command import FILE_OPTIONS

COMMANDS = ()
"""
RECIPE = """
tokenizers: {{type: separate, source: {{type: word}}, target: {{type: label}}}}
model: {{type: rater, hidden_size: {size}}}
training: {{validate_every: 2, metric_for_best_model: accuracy}}
"""
PROGRAM = """
from heedful.tasks.registry import TASKS

TASKS["rating"] = "ratings"
from heedful.cli.main import main

main()
"""


@pytest.fixture
def call(tmp_path):
    """Run a command in a process that adds the task."""
    package = tmp_path / "packages" / "ratings"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "task": TASK, "command": COMMAND}.items():
        (package / f"{name}.py").write_text(text)
    (tmp_path / "data").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "data" / f"{split}.tsv").write_text("\n".join(labeled_lines(40)) + "\n")
    for size in (4, 8):
        (tmp_path / f"rater-{size}.yaml").write_text(RECIPE.format(size=size))
    search_path = os.pathsep.join([str(package.parent), *filter(None, sys.path)])

    def call_command(*words):
        command = [sys.executable, "-c", PROGRAM, *words, "--device", "cpu"]
        environment = {**os.environ, "PYTHONPATH": search_path}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return call_command


@pytest.mark.slow
def test_compare_trains_recipes_of_an_added_task(call, tmp_path):
    recipes = "rater-4.yaml,rater-8.yaml"
    ended = call("compare", "--data", "data", "--recipes", recipes, "--steps", "2")
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()[2:4]] == ["rater-4", "rater-8"]
    assert Path(tmp_path / "comparison" / "report.html").is_file()


@pytest.mark.slow
def test_batch_size_of_an_added_task_is_found(call):
    words = "--labeled", "data/train.tsv", "--run", "run", "--steps", "2"
    ended = call("train", "rater-4.yaml", *words, "--auto-find-batch-size")
    assert ended.returncode == 0, ended.stderr
    assert "auto batch size: training.batching.max_tokens=" in ended.stdout + ended.stderr

"""A plan is made once: what `train` and `translate` validate and build."""

from collections import Counter

import pytest
import torch

from heedful.cli.main import main
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.tasks.translation.task import TASK


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["heedful", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code


@pytest.fixture
def calls(monkeypatch):
    """Count the calls that validate a recipe, build an objective and build a model."""
    counts = Counter()

    def count(owner, name, describe):
        original = getattr(owner, name)

        def counted(*args, **options):
            counts[describe()] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(TASK, "check_config", lambda: "recipe")
    count(TASK, "build_objective", lambda: "objective")
    count(EncoderDecoderConfig, "build", lambda: f"{torch.get_default_device()} model")
    return counts


def test_train_validates_recipe_and_builds_objective_and_model_once(calls, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run_command(monkeypatch, "train", "reverse-tiny", "--steps", 2, "--run", run, "--quiet")
    # On the meta device: once for the first batch before data is read, once for the memory.
    assert calls == {"recipe": 1, "objective": 1, "cpu model": 1, "meta model": 2}
    calls.clear()
    (tmp_path / "source.txt").write_text("a b c\n")
    run_command(monkeypatch, "translate", run, tmp_path / "source.txt")
    assert calls == {"recipe": 1, "cpu model": 1}

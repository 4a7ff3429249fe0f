"""When training ends, and what it says on the way."""

import io
import json

import pytest
from rich.console import Console

from heedful.experiment import train
from heedful.recipes import load_recipe
from tests.commands import write_recipe


@pytest.fixture
def learn(tmp_path):
    def run(*overrides, **options):
        recipe = load_recipe(str(write_recipe(tmp_path, steps=40, every=10)), overrides)
        return train(recipe, tmp_path / "run", **options)

    return run


def test_it_ends_when_all_steps_are_taken(learn):
    outcome = learn()
    assert (outcome.step, outcome.ended) == (40, "all 40 steps taken")


def test_it_ends_when_the_time_is_over(learn):
    outcome = learn("training.max_minutes=1e-6")
    assert (outcome.step, outcome.ended) == (1, "1e-06 minutes are over")


def test_it_ends_when_validation_gets_no_better(learn):
    """At a rate so small that no weight moves, the first validation stays the best."""
    outcome = learn("training.patience=2", "training.optimizer.learning_rate=1e-30")
    assert (outcome.step, outcome.ended) == (30, "no better in 2 validations")


def test_the_best_weights_are_published_and_the_last_are_gone_on_from(learn, tmp_path):
    learn("training.optimizer.learning_rate=0.5", "training.max_grad_norm=100")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    checks = [json.loads(line) for line in lines if '"validation"' in line]
    best = min(checks, key=lambda check: check["loss"])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["step"] == best["step"]
    state = json.loads((tmp_path / "run" / "state" / "progress.json").read_text())
    assert state["step"] == 40


def test_a_terminal_sees_a_bar_that_moves(learn, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    learn(console=Console(file=screen, force_terminal=True, width=100))
    assert "tokens/s" in screen.getvalue()
    assert "40/40" in screen.getvalue()


def test_accumulating_batches_takes_as_many_updates(learn):
    assert learn("training.accumulate=3").step == 40

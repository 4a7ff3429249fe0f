"""Interrupted training goes on as if nothing had happened."""

import json
import os
import signal
import time

import pytest
from safetensors.numpy import load_file

import heedful
from heedful.experiment import train
from heedful.recipes import load_recipe
from tests.commands import start_heedful, write_recipe
from tests.running_text import MODELS as TEXT_MODELS
from tests.running_text import write_text_recipe

DROPOUT = ["model.encoder.dropout=0.2", "model.decoder.dropout=0.2"]


def weights(run):
    return load_file(run / "state" / "model.safetensors")


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert (tensor == other[name]).all(), name


def wait_for(condition, process, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the command ended before it could be interrupted"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path, steps=30, every=10)


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        ([], (1, 10, 17, 29)),
        (["model.decoder.attention.align.kind=sampled", "training.sampling.kind=linear"], (17,)),
    ],
    ids=["plain", "with places and tokens drawn"],
)
def test_interrupted_after_any_step_the_end_is_the_same_to_the_bit(
    overrides, steps, recipe, tmp_path, monkeypatch
):
    chosen = load_recipe(str(recipe), [*DROPOUT, *overrides])
    assert_resuming_changes_nothing(chosen, steps, tmp_path, monkeypatch)


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_interrupted_amid_running_text_the_end_is_the_same_to_the_bit(model, tmp_path, monkeypatch):
    chosen = load_recipe(str(write_text_recipe(tmp_path, model, steps=30, every=10)))
    assert_resuming_changes_nothing(chosen, (10, 23), tmp_path, monkeypatch)


def assert_resuming_changes_nothing(chosen, steps, tmp_path, monkeypatch):
    train(chosen, tmp_path / "whole")
    for step in steps:
        run = tmp_path / f"stopped-{step}"
        monkeypatch.setattr("heedful.experiment._Session._log", _interrupt_at(step))
        assert train(chosen, run).ended == ""
        monkeypatch.undo()
        outcome = train(chosen, run)
        assert outcome.ended == "all 30 steps taken"
        assert_same_weights(weights(tmp_path / "whole"), weights(run))


def _interrupt_at(step):
    def observe(self, report):
        if report.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return observe


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_work_and_the_same_command_goes_on(tmp_path, number):
    recipe = write_recipe(tmp_path, steps=3000, every=1000)
    run = tmp_path / "run"
    command = ["train", recipe, "--run", run, "--set", "training.max_steps=3000"]
    process = start_heedful(*command, stdout=-1, stderr=-1)
    wait_for((run / "metrics.jsonl").exists, process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    step = json.loads((run / "state" / "progress.json").read_text())["step"]
    assert 0 < step < 3000
    assert out == f"{run}: saved at step {step}; the same command goes on\n"
    again = start_heedful(*command, stdout=-1, stderr=-1)
    wait_for(lambda: _last_step(run) > step, again)
    again.send_signal(signal.SIGINT)
    _, err = again.communicate(timeout=60)
    assert f"{run}: going on at step {step}\n" in err


def _last_step(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["step"] if lines else 0


def test_killed_without_warning_the_last_checkpoint_is_gone_on_from(tmp_path):
    recipe = write_recipe(tmp_path, steps=200, every=20)
    run = tmp_path / "run"
    process = start_heedful("train", recipe, "--run", run, stderr=-1)
    wait_for(lambda: (run / "state").exists() and _last_step(run) > 30, process)
    process.kill()
    process.communicate()
    heedful.train(str(recipe), run)
    heedful.train(str(recipe), tmp_path / "whole")
    assert_same_weights(weights(tmp_path / "whole"), weights(run))
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seen = [entry["step"] for entry in steps if entry["kind"] == "training"]
    assert seen == sorted(set(seen))

"""Ranks on the cores of one machine learn what one process learns, and end together."""

import os
import signal
import time
from pathlib import Path

import pytest

import heedful
from heedful.errors import HeedfulError
from heedful.experiment import load_training_recipe, plan, ranks
from heedful.runs import Run
from tests.commands import write_recipe
from tests.equivalence.test_resuming import assert_same_end, wait_for
from tests.faults.test_ranks import (
    assert_alike,
    assert_no_step_is_told_twice,
    has_taken,
    metrics,
    slow,
)
from tests.forking import ForkedCommand

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="ranks share memory on Linux"),
]

LONG = "training.max_steps=100000"
MAX_SECONDS = 300


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, steps=20, every=10)
    # However long it is meant to go on, it begins the same.
    path.write_text(
        path.read_text().replace("{type: linear, warmup_steps: 10}", "{type: constant}")
    )
    return path


class FailingJob(ranks.RankJob):
    def setup(self, *, is_shared):
        raise HeedfulError("there", "it failed", "do something else")


def train(recipe, run, *overrides, num_processes):
    settings = [*overrides, f"training.cpu_processes={num_processes}"]
    heedful.train(str(recipe), run, settings=settings)
    return run


@pytest.mark.parametrize(
    "optimizer",
    ["adamw", slow("{type: sgd, momentum: 0.9}"), slow("adagrad")],
    ids=["adamw", "sgd", "adagrad"],
)
def test_processes_match_one(optimizer, recipe, tmp_path):
    """Three batches of a row or two in each step, with an average of the weights."""
    overrides = ["training.gradient_accumulation_steps=3", "training.batching.max_tokens=14"]
    overrides += ["training.ema.decay=0.9", f"training.optimizer={optimizer}"]
    if not optimizer.startswith("{"):
        overrides[-1] = f"training.optimizer.type={optimizer}"
    one = train(recipe, tmp_path / "one", *overrides, num_processes=1)
    for count in (2, 4):
        run = train(recipe, tmp_path / str(count), *overrides, num_processes=count)
        assert_alike(one, run)
        for mine, theirs in zip(metrics(one), metrics(run), strict=True):
            for name in ("loss", "grad_norm", "num_tokens", "num_targets", "epoch"):
                assert theirs[name] == pytest.approx(mine[name], rel=1e-4), name


def test_resumed_processes_match_uninterrupted_bitwise(recipe, tmp_path):
    how = ["training.ema.decay=0.9", "model.encoder.dropout=0.2", "model.decoder.dropout=0.2"]
    whole = train(recipe, tmp_path / "whole", *how, num_processes=2)
    run = train(recipe, tmp_path / "run", *how, "training.max_steps=10", num_processes=2)
    train(recipe, run, *how, num_processes=2)
    assert_same_end(whole, run)


@pytest.mark.parametrize(("before", "after"), [(2, 1), slow(1, 3)])
def test_run_resumes_with_another_number_of_processes(before, after, recipe, tmp_path):
    whole = train(recipe, tmp_path / "whole", num_processes=1)
    run = train(recipe, tmp_path / "run", "training.max_steps=10", num_processes=before)
    train(recipe, run, num_processes=after)
    assert_alike(whole, run)
    assert_no_step_is_told_twice(run)


def start(recipe, run, *overrides):
    words = ["train", recipe, "--run", run]
    for override in (*overrides, "training.cpu_processes=2"):
        words += ["--set", override]
    return ForkedCommand(*words, stdout=-1, stderr=-1)


def children(process):
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def test_killed_process_is_reported_and_nothing_is_lost(recipe, tmp_path):
    run = tmp_path / "run"
    process = start(recipe, run, LONG)
    wait_for(has_taken(run, 20), process)
    (child,) = children(process)
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=MAX_SECONDS)
    assert process.returncode == 1
    assert "rank 1 of 2: the process died (killed by SIGKILL)" in err
    assert "run the same command to resume from the last checkpoint" in err
    train(recipe, run, "training.max_steps=40", num_processes=2)
    assert_same_end(
        train(recipe, tmp_path / "whole", "training.max_steps=40", num_processes=2), run
    )


@pytest.mark.parametrize("number", [signal.SIGINT, slow(signal.SIGKILL)])
def test_processes_end_with_the_first(number, recipe, tmp_path):
    run = tmp_path / "run"
    process = start(recipe, run, LONG)
    wait_for(has_taken(run, 10), process)
    (child,) = children(process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=MAX_SECONDS)
    assert process.returncode == (0 if number == signal.SIGINT else -number)
    assert ("the same command resumes" in out) == (number == signal.SIGINT)
    end = time.monotonic() + MAX_SECONDS
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < end, "the other process goes on"
        time.sleep(0.05)


def test_default_resumes_with_the_batch_size_of_its_first_machine(tmp_path, monkeypatch):
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"x{index} y z\n" for index in range(300)))
    target.write_text("".join(f"a b{index} c\n" for index in range(300)))
    files, run = {"source": str(source), "target": str(target)}, tmp_path / "run"
    settings = ["training.cpu_processes=1", "training.validation_metrics=[]"]
    monkeypatch.setattr(plan, "usable_cores", lambda: list(range(16)))
    heedful.train(run=run, steps=1, settings=settings, **files)
    many = Run(run).read_recipe().training.batching.max_tokens
    monkeypatch.setattr(plan, "usable_cores", lambda: [0, 1])
    heedful.train(run=run, steps=2, settings=settings, **files)
    assert Run(run).read_recipe().training.batching.max_tokens == many
    few = load_training_recipe("default", files={}, device="cpu").training.batching.max_tokens
    assert few < many


def test_error_of_another_process_is_raised_here(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "RankJob", FailingJob)
    with pytest.raises(HeedfulError):
        train(recipe, tmp_path / "run", num_processes=2)

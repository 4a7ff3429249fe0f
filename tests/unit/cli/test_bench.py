"""`heedful bench`: shares of the time, and advice that follows from them."""

import json

import pytest
import torch

from heedful.experiment.bench import StepProfile, suggest_changes
from heedful.training.config import TrainingConfig
from tests.commands import heedful

CPU, GPU = torch.device("cpu"), torch.device("cuda")
FAST = StepProfile(0.0, 1.0, 0.9, 100.0, 0.05, {"mm": 1.0}, 10, ())


def advice(device=CPU, settings=None, **changes):
    config = TrainingConfig.model_validate(settings or {})
    return suggest_changes(FAST._replace(**changes), config, device)


def test_shares_add_up_to_one():
    profile = FAST._replace(data_seconds=1.0, kernel_seconds=0.5)
    assert profile.shares == pytest.approx({"data": 0.5, "host": 0.25, "kernels": 0.25})
    assert profile.targets_per_second == 50


def test_advice_names_what_takes_time():
    assert advice() == []
    assert "wait" in advice(kernel_seconds=0.5)[0]
    assert "heedful prepare" in advice(data_seconds=0.5)[0]
    assert "bucket_size" in advice(padding=0.3)[0]
    assert advice(GPU, {"precision": "bf16"}) == []
    assert "training.precision=bf16" in advice(GPU, {"precision": "fp32"})[0]
    assert "training.cuda_graphs=true" in advice(GPU, {"cuda_graphs": False})[0]


def test_bench_shows_where_time_goes_and_leaves_the_run_as_it_is(capsys, monkeypatch, copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    words = ("bench", copied, "--device", "cpu", "--steps", "2")
    profile = json.loads(heedful(capsys, monkeypatch, *words, "--json").out)
    assert sum(profile["shares"].values()) == pytest.approx(1)
    assert profile["targets_per_second"] > 0
    assert 0 <= profile["padding"] < 1
    shown = heedful(capsys, monkeypatch, *words).out
    assert [line.split(":")[0] for line in shown.splitlines()][:5] == [
        *("model", "speed", "step", "time", "kernels")
    ]
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert after == before

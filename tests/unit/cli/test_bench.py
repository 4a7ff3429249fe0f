"""`heedful bench`: shares of the time, and advice that follows from them."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from heedful.data.shuffling import DataCursor
from heedful.experiment.bench import (
    ShapeProfile,
    StepProfile,
    TrainingProfile,
    measure_steps,
    read_shapes,
    shape_of,
    suggest_changes,
    warm_up,
)
from heedful.training.config import TrainingConfig
from tests.commands import heedful

CPU, GPU = torch.device("cpu"), torch.device("cuda")
STEPS = StepProfile(10, 0.0, 1.0, 0.9, 100.0, {"mm": 1.0})
SHAPES = ShapeProfile(20, True, 5, 5, 1.0, 0.05)


def advice(device=CPU, settings=None, *, plain_reason="", padding=0.05, **changes):
    config = TrainingConfig.model_validate(settings or {})
    steps, shapes = STEPS._replace(**changes), SHAPES._replace(padding=padding)
    return suggest_changes(TrainingProfile(steps, shapes, 10, plain_reason), config, device)


def test_shares_add_up_to_one():
    profile = STEPS._replace(data_seconds=1.0, kernel_seconds=0.5)
    assert profile.shares == pytest.approx({"data": 0.5, "host": 0.25, "kernels": 0.25})
    assert profile.targets_per_second == 50


def test_suggestions_name_the_slowest_parts():
    assert advice() == []
    assert "wait" in advice(kernel_seconds=0.5)[0]
    assert "heedful prepare" in advice(data_seconds=0.5)[0]
    assert "bucket_size" in advice(padding=0.3)[0]
    assert advice(GPU, {"precision": "bf16"}) == []
    assert "training.precision=bf16" in advice(GPU, {"precision": "fp32"})[0]
    assert "training.cuda_graphs=true" in advice(GPU, {"cuda_graphs": False})[0]


def test_suggestions_have_the_reason_why_steps_not_captured():
    assert "the objective decodes" in advice(GPU, plain_reason="the objective decodes")[0]


class Batch(NamedTuple):
    """A batch of numbers."""

    inputs: torch.Tensor
    num_targets = num_tokens = 1
    num_positions = 2


class Stream:
    """Epochs with a batch of each size."""

    def __init__(self, sizes):
        self.sizes, self.cursor = sizes, DataCursor(0, 0)

    def __iter__(self):
        while True:
            for index, size in enumerate(self.sizes, start=1):
                epoch = self.cursor.epoch + (index == len(self.sizes))
                self.cursor = DataCursor(epoch, index)
                yield Batch(torch.ones(size, size))


class RecordingTrainer(SimpleNamespace):
    """A trainer that multiplies matrices and counts steps of each size."""

    def __init__(self):
        counts = Counter()
        super().__init__(device="cpu", loss_sync_interval=2, captured_update=None, counts=counts)
        self.prepare_batch = lambda batch: batch

    def start_step(self, batches):
        self.counts[len(batches[0].inputs)] += 1
        return SimpleNamespace(num_targets=1, finish=lambda: batches[0].inputs @ batches[0].inputs)

    def train_step(self, batches):
        return self.start_step(batches).finish()


def test_shapes_are_those_of_one_epoch():
    data_module = SimpleNamespace(train_batches=lambda cursor: Stream([2, 3, 2, 5]))
    arguments = data_module, RecordingTrainer(), 1
    examples, counts, shapes = read_shapes(*arguments, lambda text, share: False)
    assert sorted(counts.values()) == [1, 1, 2]
    assert {shape_of(batches) for batches in examples.values()} == set(counts)
    assert (shapes.num_steps, shapes.is_whole_epoch, shapes.num_shapes) == (4, True, 3)
    assert shapes.padding == 0.5
    cut = read_shapes(*arguments, lambda text, share: True)[2]
    assert (cut.num_steps, cut.is_whole_epoch) == (1, False)


def test_only_steps_of_warm_shapes_measured():
    data_module = SimpleNamespace(train_batches=lambda cursor: Stream([2, 3, 2, 5]))
    trainer, is_spent = RecordingTrainer(), lambda text, share: trainer.counts.total() > 20
    warm = warm_up(trainer, [[Batch(torch.ones(2, 2))]], is_spent)
    steps = measure_steps(data_module, trainer, 1, warm, is_spent)
    assert set(trainer.counts) == {2}
    assert steps.num_steps > 10
    assert set(steps.operators) >= {"mm"}


@pytest.mark.wide
def test_bench_shows_time_by_part_and_does_not_change_the_run(capsys, monkeypatch, copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    words = ("bench", copied, "--device", "cpu", "--seconds", "0.5")
    profile = json.loads(heedful(capsys, monkeypatch, *words, "--json").out)
    assert sum(profile["steps"]["shares"].values()) == pytest.approx(1)
    assert profile["targets_per_second"] > 0
    assert 0 <= profile["shapes"]["padding"] < 1
    shown = heedful(capsys, monkeypatch, *words).out
    assert [line.split(":")[0] for line in shown.splitlines()][:6] == [
        *("model", "speed", "step", "shapes", "time", "operators")
    ]
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.wide
@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param("bert-small", marks=pytest.mark.slow),
        pytest.param("deepar-2020-small", marks=pytest.mark.slow),
        pytest.param("gpt-tiny", marks=pytest.mark.slow),
        "ram-2014-small",
        pytest.param("show-attend-tell-2015-soft-small", marks=pytest.mark.slow),
    ],
)
def test_bench_measures_other_tasks(capsys, monkeypatch, tmp_path, recipe):
    settings = ("--set", "data.train.num_examples=100", "--steps", "1")
    heedful(capsys, monkeypatch, "train", recipe, "--run", tmp_path / "run", *settings)
    words = ("bench", tmp_path / "run", "--device", "cpu", "--seconds", "0.5", "--json")
    profile = json.loads(heedful(capsys, monkeypatch, *words).out)
    assert profile["targets_per_second"] > 0

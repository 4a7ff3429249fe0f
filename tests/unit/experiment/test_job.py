"""Dev metrics and debug dumps."""

import json

import pytest
import torch
from safetensors.torch import load_file

from heedful.attention.auxiliary_losses import CoverageLoss
from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import Batch, SourceBatch
from heedful.experiment.job import MAX_DEBUG_DUMPS, write_debug_dump
from heedful.experiment.train import run_training
from heedful.experiment.validation import compute_dev_metrics
from heedful.tasks.translation.task import TASK
from heedful.training.callbacks import Callback, StepMetrics, ValidationResult
from heedful.training.config import TrainingConfig
from heedful.training.distributed import get_rng_states
from heedful.training.state import TrainingLimits, TrainingProgress
from heedful.training.trainer import PendingStep
from tests.catalogue import batch, build, store


def dev_metrics(model, batches):
    return compute_dev_metrics(TASK, model, batches)


def test_dev_metrics_are_means_over_targets_for_any_batching():
    model, dataset = build("gru, attend-then-step"), store()
    whole = dev_metrics(model, [batch(dataset, list(range(7)))])
    parts = dev_metrics(model, [batch(dataset, [row], extra=2) for row in range(7)])
    assert parts == pytest.approx(whole)
    assert list(whole) == ["loss", "accuracy"]


def test_dev_metrics_use_no_dropout_and_no_gradient():
    model = build("gru, attend-then-step").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    batches = [batch(store(), [0, 1])]
    assert dev_metrics(model, batches) == dev_metrics(model, batches)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dev_loss_has_no_auxiliary_losses():
    model, batches = build("gru, attend-then-step"), [batch(store(), [0, 1])]
    plain = dev_metrics(model, batches)
    model.decoder.wiring.attention.auxiliary_losses.append(CoverageLoss(5.0))
    assert model(batches[0]).auxiliary_losses["coverage"] > 0
    assert dev_metrics(model, batches) == plain


def test_debug_dump_holds_batches_random_states_and_metadata(tmp_path):
    micro_batches = [batch(store(), [0, 1]), batch(store(), [2])]
    states = get_rng_states()
    metadata = {"step": 7, "problem": "loss is nan"}
    path = write_debug_dump(tmp_path, micro_batches, states, metadata)
    assert path == tmp_path / "step-00000007"
    for index, expected in enumerate(micro_batches):
        tensors = load_file(path / f"batch-{index}.safetensors")
        tokens, lengths, inputs, targets = (tensors[str(field)] for field in range(4))
        restored = Batch(SourceBatch(tokens, lengths), inputs, targets)
        assert torch.equal(restored.sources.tokens, expected.sources.tokens)
        assert torch.equal(restored.targets, expected.targets)
    assert torch.equal(load_file(path / "rng_states.safetensors")["cpu"], states["cpu"])
    assert json.loads((path / "metadata.json").read_text()) == metadata


def test_number_of_debug_dumps_is_limited(tmp_path):
    micro_batches = [batch(store(), [0])]
    for step in range(1, MAX_DEBUG_DUMPS + 1):
        assert write_debug_dump(tmp_path, micro_batches, {}, {"step": step}) is not None
    assert write_debug_dump(tmp_path, micro_batches, {}, {"step": 99}) is None
    assert len(list(tmp_path.iterdir())) == MAX_DEBUG_DUMPS


LIMITS = {
    "max_steps": {"step": 8},
    "max_epochs": {"cursor": DataCursor(8, 0)},
    "max_minutes": {"seconds": 8 * 60},
    "max_flops": {"flops": 8.0},
}


def progress_with(**values):
    step = values.pop("step", 0)
    return step, TrainingProgress(data_fingerprint="", **values)


@pytest.mark.parametrize("name", LIMITS)
def test_limit_is_reached_exactly(name):
    limits = TrainingLimits(TrainingConfig(**{name: 8}))
    assert limits.reached(*progress_with()) == ""
    assert limits.reached(*progress_with(**LIMITS[name])) == f"reached {name}=8"
    assert TrainingLimits(TrainingConfig(**{name: 9})).reached(*progress_with(**LIMITS[name])) == ""


def test_limits_formatted_as_they_are_written():
    config = TrainingConfig(max_steps=1_000_000, max_flops=1.5e12)
    limits = TrainingLimits(config)
    assert limits.reached(*progress_with(step=1_000_000)) == "reached max_steps=1000000"
    assert limits.reached(*progress_with(flops=2e12)) == "reached max_flops=1.5e+12"


def test_fraction_done_is_that_of_the_nearest_limit():
    limits = TrainingLimits(TrainingConfig(max_steps=100, max_minutes=10))
    assert limits.fraction_done(*progress_with()) == 0
    assert limits.fraction_done(*progress_with(step=20, seconds=300)) == 0.5
    assert limits.fraction_done(*progress_with(step=200, seconds=300)) == 1


def test_planned_steps_are_what_time_and_flops_allow_at_the_speed_so_far():
    config = TrainingConfig(max_steps=1000, max_minutes=10, max_flops=80.0)
    limits = TrainingLimits(config)
    assert limits.planned_steps(1, progress_with()[1]) == 1000, "no speed is known"
    assert limits.planned_steps(21, progress_with(seconds=60.0, flops=1.0)[1]) == 200
    assert limits.planned_steps(21, progress_with(seconds=60.0, flops=16.0)[1]) == 100
    assert limits.planned_steps(21, progress_with(seconds=0.6, flops=0.1)[1]) == 1000
    assert limits.planned_steps(50, progress_with(seconds=900.0)[1]) == 50, "over time"


def test_early_stopping_counts_validations_since_the_best():
    limits = TrainingLimits(TrainingConfig(patience=2))
    for scores in ([], [3.0, 2.0, 2.5]):
        assert limits.early_stopping_reason(progress_with(scores=scores)[1]) == ""
    reason = limits.early_stopping_reason(progress_with(scores=[3.0, 2.0, 2.5, 2.0])[1])
    assert reason == "early stopping: no improvement in 2 validations"


def test_no_early_stopping_without_patience():
    limits = TrainingLimits(TrainingConfig(patience=None))
    assert limits.early_stopping_reason(progress_with(scores=[1.0, *[2.0] * 100])[1]) == ""


@pytest.mark.parametrize(
    ("higher_is_better", "score", "reason"),
    [
        (True, -96.9, ""),
        (True, -97.2, "reached target_score=97 with exact-match 97.2"),
        (False, 98.0, ""),
        (False, 96.5, "reached target_score=97 with exact-match 96.5"),
    ],
)
def test_training_stops_at_the_target_score(higher_is_better, score, reason):
    config = TrainingConfig(metric_for_best_model="exact-match", target_score=97)
    limits = TrainingLimits(config, higher_is_better=higher_is_better)
    _, progress = progress_with(scores=[200.0, score])
    assert limits.early_stopping_reason(progress) == reason


class FakeTrainer:
    def __init__(self, events, loss_sync_interval=1):
        self.step = 0
        self.loss_sync_interval = loss_sync_interval
        self.model = self
        self.events = events

    def train(self):
        self.events.append("train mode")

    def start_step(self, micro_batches):
        self.step += 1
        self.events.append(f"step {self.step} on {micro_batches}")
        return PendingStep(self.step, 0.1, micro_batches, {}, lambda: None)


class FakeJob:
    flops_per_target = 0.0

    def __init__(self, scores=(), stop_at=None, early_at=None, loss_sync_interval=1, **settings):
        self.events = []
        self.config = TrainingConfig(**settings)
        self.trainer = FakeTrainer(self.events, loss_sync_interval)
        self.progress = TrainingProgress(data_fingerprint="")
        self.limits = TrainingLimits(self.config)
        self.scores = iter(scores)
        self.stop_at = stop_at
        self.early_at = early_at

    def record_step(self, metrics, cursor):
        self.progress.cursor = cursor

    def finish_step(self, started, cursor, callbacks):
        assert started.micro_batches[-1] == cursor.batch
        for callback in callbacks:
            callback.on_step_end(StepMetrics(started.step, 1.0, 1.0, 0.1, 1, 1, {}))

    def sync_stop_flags(self, limit):
        return limit, self.trainer.step == self.stop_at, self.trainer.step == self.early_at

    def is_validation_due(self):
        return self.trainer.step % self.config.validate_every == 0

    def validate(self, *, is_early):
        if not is_early:
            self.progress.scores.append(next(self.scores, 0.0))
        self.events.append("validate early" if is_early else "validate")
        return ValidationResult(self.trainer.step, 0.0, {}, is_best=False)

    def save_checkpoint(self, *, score, is_last):
        self.events.append(f"save score={score} is_last={is_last}")


class FakeBatch(int):
    """Its number is all that a batch is known by."""

    num_targets = 1


class Batches:
    def __init__(self):
        self.cursor = DataCursor(0, 0)

    def __iter__(self):
        for number in range(1, 100):
            self.cursor = DataCursor(0, number)
            yield FakeBatch(number)


class EventCallback(Callback):
    def __init__(self, events):
        self.events = events

    def on_step_end(self, metrics):
        self.events.append(f"on_step_end {metrics.step}")

    def on_validation_end(self, result):
        self.events.append(f"on_validation_end {result.step}")


def run(job):
    result = run_training(job, Batches(), [EventCallback(job.events)])
    return result, [event for event in job.events if event != "train mode"]


def test_loop_steps_validates_and_saves_in_order():
    job = FakeJob(scores=[0.5, 0.4], max_steps=3, validate_every=2, gradient_accumulation_steps=2)
    result, events = run(job)
    assert events == [
        "step 1 on [1, 2]",
        "on_step_end 1",
        "step 2 on [3, 4]",
        "on_step_end 2",
        "validate",
        "on_validation_end 2",
        "save score=0.5 is_last=False",
        "step 3 on [5, 6]",
        "on_step_end 3",
        "validate",
        "on_validation_end 3",
        "save score=0.4 is_last=True",
    ]
    assert result == (3, "reached max_steps=3", 0.4, 0.0)
    assert job.progress.cursor == DataCursor(0, 6)


def test_interrupt_saves_without_validating_and_has_no_stop_reason():
    result, events = run(FakeJob(stop_at=2, validate_every=10))
    assert events[-1] == "save score=None is_last=True"
    assert "validate" not in events
    assert (result.step, result.stop_reason) == (2, "")


def test_early_validation_saves_and_has_no_score():
    result, events = run(FakeJob(scores=[0.5], max_steps=4, early_at=2, validate_every=4))
    start = events.index("validate early")
    assert events[start - 1 : start + 3] == [
        "on_step_end 2",
        "validate early",
        "on_validation_end 2",
        "save score=None is_last=False",
    ]
    assert events.count("validate") == 1
    assert result.best_score == 0.5


def test_early_validation_is_regular_where_one_is_due():
    _, events = run(FakeJob(max_steps=4, early_at=2, validate_every=2))
    assert events.count("validate") == 2
    assert "validate early" not in events


def test_signal_during_a_validation_ends_training_after_it():
    job = FakeJob(validate_every=2, max_steps=10)
    validate = job.validate

    def interrupted(**options):
        job.stop_at = job.trainer.step
        return validate(**options)

    job.validate = interrupted
    result, events = run(job)
    assert (result.step, result.stop_reason) == (2, "")
    assert events[-1] == "save score=0.0 is_last=True"


def test_save_every_saves_between_validations():
    _, events = run(FakeJob(max_steps=4, validate_every=4, save_every=2))
    assert events.count("save score=None is_last=False") == 1


def test_early_stopping_ends_after_the_validation():
    result, _ = run(FakeJob(scores=[1.0, 2.0, 3.0], patience=2, validate_every=1))
    assert result.step == 3
    assert result.stop_reason == "early stopping: no improvement in 2 validations"


def test_losses_that_load_rarely_load_before_validations_checkpoints_and_the_end():
    job = FakeJob(loss_sync_interval=4, max_steps=11, validate_every=6, save_every=9, patience=None)
    _, events = run(job)
    words = " ".join(event.replace("on_step_end ", "read ").split(" on ")[0] for event in events)
    assert words.split(" save")[0] == (
        "step 1 step 2 step 3 step 4 read 1 read 2 read 3 read 4 "
        "step 5 step 6 read 5 read 6 validate on_validation_end 6"
    )
    assert "step 7 step 8 read 7 read 8 step 9 read 9 save" in words
    assert "step 10 step 11 read 10 read 11 validate" in words


def test_losses_load_when_training_is_interrupted():
    _, events = run(FakeJob(loss_sync_interval=4, stop_at=2))
    assert [event.split(" on ")[0] for event in events][:4] == [
        *("step 1", "step 2", "on_step_end 1", "on_step_end 2")
    ]

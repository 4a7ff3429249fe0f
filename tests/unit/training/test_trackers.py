"""Metrics and samples logged to TensorBoard, MLflow and wandb, read back by these packages."""

import importlib.machinery
import json
import random
import socket
import struct
import threading
import time

import numpy as np
import pytest
import torch

from heedful.errors import ConfigError
from heedful.training import trackers
from heedful.training.callbacks import LoggedSample, StepMetrics, ValidationResult
from heedful.training.trackers import build_tracker_callbacks, check_trackers

pytestmark = pytest.mark.extras

NAMES = ["tensorboard", "mlflow", "wandb"]
SETTINGS = {"model": {"type": "encoder-decoder", "sizes": [8, 8]}, "training": {"seed": 3}}
SAMPLE = LoggedSample(
    ["ein", "Haus"], "a house", ["a", "horse"], "a # horse", [[0.9, 0.1], [0.2, 0.8]]
)
FIRST_LOSSES = {1: 4.0, 10: 3.0, 20: 2.5}  # steps and losses before a kill
RESUMED_LOSSES = {20: 2.0, 30: 1.5}  # after it: step 20 is taken again


def report(step, loss=1.0, num_tokens=100):
    return StepMetrics(step, loss, 0.5, 1e-3, num_tokens, 40, {"coverage": 0.25}, "")


def log_steps(callback, first, last, losses, *, validated):
    for step in range(first, last + 1):
        callback.on_step_end(report(step, losses.get(step, 9.0)))
    scores = {"loss": 1.25, "bleu": 12.5}
    callback.on_validation_end(
        ValidationResult(validated, 3.0, scores, is_best=True, samples=[SAMPLE])
    )
    callback.on_train_end()


@pytest.fixture(scope="module", autouse=True)
def _local():
    """Ignore tracker settings of the environment."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
            environment.delenv(name, raising=False)
        for name in ("WANDB_MODE", "WANDB_PROJECT"):
            environment.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run logged by every tracker before and after an interruption.

    Trackers draw no random numbers from the generators that training uses.
    """
    folder = tmp_path_factory.mktemp("runs") / "de-en"
    folder.mkdir()
    problems, drawn = [], random_states()
    for first, last, losses in ((1, 25, FIRST_LOSSES), (16, 30, RESUMED_LOSSES)):
        for callback in build_tracker_callbacks(NAMES, folder, SETTINGS, problems.append):
            log_steps(callback, first, last, losses, validated=last)
    assert problems == []
    assert random_states() == drawn
    return folder


def random_states():
    torch_state = torch.random.get_rng_state().tolist()
    return torch_state, random.getstate(), np.random.get_state()[1].tolist()


def test_tensorboard_has_scalars_and_samples_once_per_step(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()

    def shown(name):
        return {event.step: event.value for event in events.Scalars(name)}

    assert shown("train/loss") == {1: 4.0, 10: 3.0, 20: 2.0, 30: 1.5}
    assert len(events.Scalars("train/loss")) == 4
    assert shown("train/coverage")[30] == 0.25
    assert shown("train/learning_rate")[30] == pytest.approx(1e-3)
    assert shown("train/grad_norm")[30] == 0.5
    assert min(shown("train/tokens_per_second").values()) > 0
    assert shown("dev/bleu")[30] == 12.5
    texts = [
        event.tensor_proto.string_val[0].decode()
        for event in events.Tensors("sample/1/text_summary")
    ]
    assert "    output     a # horse" in texts[-1].splitlines()
    settings = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert json.loads(settings) == SETTINGS


def test_mlflow_resumes_the_same_run(run):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run}/mlflow/mlflow.db")
    (experiment,) = [each for each in client.search_experiments() if each.name == "heedful"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == json.loads((run / "trackers.json").read_text())["mlflow"]
    assert (found.info.run_name, found.info.status) == ("de-en", "FINISHED")
    assert found.data.params["model.type"] == "encoder-decoder"
    assert found.data.params["model.sizes"] == "[8, 8]"
    losses = client.get_metric_history(found.info.run_id, "train/loss")
    assert {each.step: each.value for each in losses} == FIRST_LOSSES | RESUMED_LOSSES
    assert found.data.metrics["dev/bleu"] == 12.5
    kept = sorted((run / "mlflow" / "artifacts").rglob("*.txt"))
    assert [path.name for path in kept] == ["step-00000025.txt", "step-00000030.txt"]
    assert "output     a # horse" in kept[0].read_text()


def test_wandb_is_offline_and_resumes_the_same_id(run):
    files = sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))
    records = [list(wandb_records(file)) for file in files]
    assert len(records) == 2
    known = json.loads((run / "trackers.json").read_text())["wandb"]
    begun = [record.run for some in records for record in some if record.HasField("run")]
    assert {(each.run_id, each.display_name, each.project) for each in begun} == {
        (known, "de-en", "heedful")
    }
    lines = [history(record) for some in records for record in some if record.HasField("history")]
    losses = [(line["step"], line["train/loss"]) for line in lines if "train/loss" in line]
    assert losses == [*FIRST_LOSSES.items(), *RESUMED_LOSSES.items()]
    assert [line["dev/bleu"] for line in lines if "dev/bleu" in line] == [12.5, 12.5]
    tables = sorted((run / "wandb").rglob("*.table.json"))
    assert json.loads(tables[0].read_text())["data"] == [["ein Haus", "a house", "a # horse"]]


def wandb_records(path):
    """Read a file of wandb's: blocks of 32 KiB, of pieces with a sum, a length and a type each."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole in itself, or the last piece
            yield Record.FromString(whole)
            whole = b""


def history(record):
    return {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for item in record.history.item
    }


def test_failing_tracker_raises_once_and_training_continues(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    problems = []
    (broken,) = build_tracker_callbacks(["tensorboard"], tmp_path, {}, problems.append)
    for step in range(1, 40):
        broken.on_step_end(report(step))
    broken.on_train_end()
    broken.on_step_end(report(40))
    broken.on_train_end()
    (problem,) = problems
    assert problem.startswith("tracker tensorboard: failed (")
    assert problem.endswith("; training continues without it")


def test_tracker_server_that_refuses_does_not_stop_training(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    problems = []
    (callback,) = build_tracker_callbacks(["mlflow"], tmp_path, {}, problems.append)
    log_steps(callback, 1, 20, {}, validated=20)
    (problem,) = problems
    assert problem.startswith("tracker mlflow: failed (MlflowException")


def test_tracker_server_that_hangs_does_not_delay_training(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(trackers, "_CLOSE_TIMEOUT", 0.2)
        problems = []
        began = time.monotonic()
        (callback,) = build_tracker_callbacks(["mlflow"], tmp_path, {}, problems.append)
        log_steps(callback, 1, 20, {}, validated=20)
        assert time.monotonic() - began < 5
    (problem,) = problems
    assert "not stored within 0.2 seconds" in problem


def test_repeated_tracker_name_is_one_tracker(tmp_path):
    before = threading.active_count()
    told = build_tracker_callbacks(["tensorboard", "tensorboard"], tmp_path, {}, print)
    assert len(told) == 1
    told[0].on_train_end()
    assert threading.active_count() == before
    assert not (tmp_path / "tensorboard").exists()  # nothing was told


def test_unknown_tracker_raises_with_suggestion():
    with pytest.raises(ConfigError) as caught:
        check_trackers(["tensorbord"])
    assert str(caught.value) == (
        "--report-to: unknown tracker 'tensorbord'; did you mean 'tensorboard'?\n"
        "  choose from: mlflow, tensorboard, wandb"
    )


def test_missing_package_raises_with_install_command(tmp_path, monkeypatch):
    """The folder that wandb leaves behind where it was run does not count as the package."""
    (tmp_path / "wandb").mkdir()
    folders = importlib.machinery.PathFinder

    def find(name):
        return folders.find_spec(name, [str(tmp_path)])

    monkeypatch.setattr(trackers, "find_spec", find)
    with pytest.raises(ConfigError) as caught:
        check_trackers(["wandb"])
    assert str(caught.value) == (
        "--report-to wandb: the package wandb is not installed\n"
        "  install it with: pip install 'heedful[track]'"
    )

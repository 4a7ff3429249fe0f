"""Whatever happens to a training, what was saved can be gone on from."""

import errno
import json
import math
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import heedful
from heedful.errors import DiskFullError, RunError
from heedful.experiment.validation import Validator
from heedful.runs import Run
from heedful.storage.atomic import explain_os_errors
from heedful.storage.manifest import read_and_verify_manifest
from tests.commands import mounted, start_heedful, write_recipe
from tests.equivalence.test_resuming import assert_same_end, last_checkpoint, wait_for
from tests.forecasting import write_series_recipe
from tests.forking import FORKING, ForkedCommand
from tests.tagged_words import write_tagging_recipe

pytestmark = pytest.mark.faults

STEPS = 60
MAX_SECONDS = 300  # a busy machine may take long to start torch
OFTEN = ["training.max_steps=60", "training.save_every=3", "training.validate_every=7"]


@pytest.fixture(scope="module")
def starting():
    """Start training in processes of their own that have imported everything already."""

    def start(recipe, run):
        process = FORKING.Process(target=_train, args=(str(recipe), str(run)))
        process.start()
        return process

    return start


def _train(recipe, run):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    heedful.train(recipe, run, settings=OFTEN)


def assert_nothing_is_broken(run):
    """Every file that claims to be whole is, and nothing but whole files is left after a sweep."""
    if (run / "manifest.json").exists():
        heedful.load(run)
    for checkpoint in (run / "checkpoints").glob("step-*"):
        read_and_verify_manifest(checkpoint)


def _write_tagger(folder, *, steps, every):
    """Write a recipe of a tagger with its data."""
    recipe, conll = write_tagging_recipe(folder, steps=steps, every=every)
    recipe.write_text(f"data: {{train: {{type: conll, path: {conll}}}}}\n{recipe.read_text()}")
    return recipe


@pytest.mark.parametrize(
    ("write", "num_kills"),
    [
        (write_recipe, 5),
        pytest.param(write_series_recipe, 3, marks=pytest.mark.slow),
        pytest.param(_write_tagger, 3, marks=pytest.mark.slow),
    ],
)
def test_training_killed_at_any_moment_resumes_to_the_same_result(
    write, num_kills, tmp_path, starting
):
    """Killed again and again, at moments drawn by chance, while it trains, validates and saves."""
    recipe = write(tmp_path, steps=STEPS, every=7)
    chance, kills, runs = random.Random(0), 0, [tmp_path / "run-0"]
    heedful.train(str(recipe), tmp_path / "whole", settings=OFTEN)
    while kills < num_kills:
        process = starting(recipe, runs[-1])
        # From before the first save to about when it would be done.
        process.join(timeout=chance.uniform(0.2, 2.5))
        if process.is_alive():
            kills += 1
            process.kill()
            process.join()
            assert_nothing_is_broken(runs[-1])
        else:
            assert process.exitcode == 0
            runs.append(tmp_path / f"run-{len(runs)}")
    for run in runs:
        heedful.train(str(recipe), run, settings=OFTEN)
        assert_same_end(tmp_path / "whole", run)
        assert not list(run.rglob(".writing-*")), "what the killed left behind is swept away"


def test_corrupt_checkpoint_falls_back_to_the_previous_one(tmp_path, capsys):
    recipe = str(write_recipe(tmp_path, steps=20, every=10))
    heedful.train(recipe, tmp_path / "whole")
    run = tmp_path / "run"
    heedful.train(recipe, run)
    weights = last_checkpoint(run) / "model.safetensors"
    contents = bytearray(weights.read_bytes())
    contents[len(contents) // 2] ^= 1
    weights.write_bytes(contents)
    heedful.train(recipe, run)
    said = capsys.readouterr().err
    assert "resuming from step 10" in said
    assert str(weights) in said
    assert_same_end(tmp_path / "whole", run)


def test_damaged_logs_repaired_on_resume(tmp_path, capsys):
    recipe, run = str(write_recipe(tmp_path, steps=20, every=10)), tmp_path / "run"
    heedful.train(recipe, run, settings=["training.max_steps=10"])
    for name in ("metrics.jsonl", "samples.jsonl"):
        contents = bytearray((run / name).read_bytes())
        contents[10] ^= 0x80  # no longer UTF-8
        (run / name).write_bytes(contents)
    heedful.train(recipe, run)
    said = capsys.readouterr().err
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert f"{run / name}: damaged lines removed: 1" in said
        assert all(map(json.loads, (run / name).read_text().splitlines()))


def test_logs_of_a_training_killed_before_the_first_checkpoint_start_again(tmp_path):
    recipe, run = write_recipe(tmp_path, steps=100_000, every=50_000), tmp_path / "run"
    process = ForkedCommand("train", recipe, "--run", run, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: num_lines(run / "metrics.jsonl") > 2, process)
    finally:
        process.kill()
        process.wait()
    (run / "bad-steps").mkdir()
    for leftover in (".writing-1-config.yaml", "bad-steps/.writing-1-step-00000001"):
        (run / leftover).mkdir()
    (run / "config.yaml").unlink()  # as if it was killed before that was written
    heedful.train(str(recipe), run, settings=["training.max_steps=10"])
    lines = list(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))
    assert [line["step"] for line in lines if line["type"] == "training"] == [1, 10]
    assert [line["type"] for line in lines].count("environment") == 1
    assert not list(run.rglob(".writing-*"))


def num_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_second_trainer_in_a_folder_raises(tmp_path):
    recipe = write_recipe(tmp_path, steps=100_000, every=50_000)
    run = tmp_path / "run"
    first = ForkedCommand("train", recipe, "--run", run, stderr=subprocess.DEVNULL)
    try:
        wait_for((run / "metrics.jsonl").exists, first)
        with pytest.raises(RunError, match=str(first.pid)):
            heedful.train(str(recipe), run)
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    heedful.train(str(recipe), run, settings=["training.max_steps=5"])


def test_full_disk_keeps_the_last_checkpoint(tmp_path):
    recipe = str(write_recipe(tmp_path, steps=40, every=10))
    heedful.train(recipe, tmp_path / "whole")
    with mounted(tmp_path / "disk", "size=4m") as disk:
        run = disk / "run"
        heedful.train(recipe, run, settings=["training.max_steps=10"])
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, disk_free(disk))
        finished = subprocess_train(recipe, run)
        assert finished.returncode == 2
        assert "no space left on device" in finished.stderr
        assert_nothing_is_broken(run)
        assert last_checkpoint(run).name == "step-00000010"
        filler.unlink()
        heedful.train(recipe, run)
        assert_same_end(tmp_path / "whole", run)


def test_training_continues_on_a_full_disk_if_configured(tmp_path):
    recipe = str(write_recipe(tmp_path, steps=40, every=10))
    with mounted(tmp_path / "disk", "size=2m") as disk:
        run = disk / "run"
        heedful.train(recipe, run, settings=["training.max_steps=10"])
        # Room for weights, which are published, and not for a whole checkpoint.
        (disk / "filler").write_bytes(bytes(disk_free(disk) - 200_000))
        finished = subprocess_train(recipe, run, "training.checkpoints.on_disk_full=continue")
        assert "not saved: " in finished.stderr
        assert finished.returncode == 2, "the last state must be saved, or it is an error"
        assert_nothing_is_broken(run)


def test_best_weights_saved_as_soon_as_the_disk_has_space(tmp_path, monkeypatch):
    """The disk is full at the best validation of all, and has space again at the second."""
    recipe, losses, num_validations = str(write_recipe(tmp_path, steps=12, every=3)), {}, 4

    def validate(validator, *args):
        folder = validator.plan.run.folder
        losses[folder] = losses.get(folder, 0.0) + 1.0
        if losses[folder] == 2:
            (folder.parent / "filler").unlink(missing_ok=True)
        return {"loss": losses[folder], "accuracy": 0.0}, []

    monkeypatch.setattr(Validator, "validate", validate)
    heedful.train(recipe, tmp_path / "whole")
    with mounted(tmp_path / "disk", "size=4m") as disk:
        run = disk / "run"
        (disk / "filler").write_bytes(bytes(disk_free(disk) - 60_000))
        overrides = ["training.checkpoints.on_disk_full=continue"]
        result = heedful.train(recipe, run, settings=overrides)
        assert (result.step, losses[run]) == (12, num_validations)
        assert read_and_verify_manifest(run)["step"] == 3
        expected = load_file(tmp_path / "whole" / "weights.safetensors")
        weights = load_file(run / "weights.safetensors")
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
        heedful.load(run)


def test_last_checkpoint_is_not_saved_without_the_best_weights(tmp_path, monkeypatch):
    """Otherwise the same command would find a finished run, and no weights in it."""
    recipe, run = str(write_recipe(tmp_path, steps=4, every=2)), tmp_path / "run"
    overrides = ["training.checkpoints.on_disk_full=continue"]

    def save_without_space(*args, **options):
        with explain_os_errors(run):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patching:
        patching.setattr(Run, "save_model", save_without_space)
        with pytest.raises(DiskFullError):
            heedful.train(recipe, run, settings=overrides)
    assert heedful.train(recipe, run, settings=overrides).step == 4
    heedful.load(run)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_weights_saved_though_the_first_dev_loss_is_not_finite(tmp_path, monkeypatch, loss):
    recipe, losses = str(write_recipe(tmp_path, steps=6, every=2)), iter([loss, 2.0, 3.0])
    monkeypatch.setattr(
        Validator, "validate", lambda *args: ({"loss": next(losses), "accuracy": 0.0}, [])
    )
    heedful.train(recipe, tmp_path / "run")
    assert read_and_verify_manifest(tmp_path / "run")["step"] == 4


def test_read_only_folder_loses_nothing(tmp_path):
    recipe = str(write_recipe(tmp_path, steps=40, every=10))
    with mounted(tmp_path / "disk", "size=8m") as disk:
        run = disk / "run"
        heedful.train(recipe, run, settings=["training.max_steps=10"])
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        finished = subprocess_train(recipe, run)
        assert finished.returncode == 2
        assert "read-only file system" in finished.stderr
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert_nothing_is_broken(run)
        assert heedful.train(recipe, run).step == 40


def test_signal_with_failed_save_has_own_exit_code(tmp_path):
    recipe = write_recipe(tmp_path, steps=100_000, every=50_000)
    with mounted(tmp_path / "disk", "size=4m") as disk:
        run = disk / "run"
        process = ForkedCommand("train", recipe, "--run", run, stderr=subprocess.PIPE)
        wait_for((run / "metrics.jsonl").exists, process)
        (disk / "filler").write_bytes(bytes(disk_free(disk) - 60_000))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=MAX_SECONDS)
        assert process.returncode == 143, err


def disk_free(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def subprocess_train(recipe, run, *overrides):
    sets = [word for each in overrides for word in ("--set", each)]
    process = ForkedCommand("train", recipe, "--run", run, *sets, stderr=-1, stdout=-1)
    output, err = process.communicate(timeout=MAX_SECONDS)
    return subprocess.CompletedProcess([], process.returncode, output, err)


class TestAPoisonedRow:
    """An embedding at the largest float: dropout's scaling makes it infinite."""

    DROPOUT = "model.encoder.dropout=0.5"

    @pytest.fixture
    def poisoned(self, tmp_path):
        recipe = write_recipe(tmp_path, steps=30, every=10)
        clean = tmp_path / "clean"
        heedful.train(str(recipe), clean, settings=["training.max_steps=10"])
        words = json.loads((clean / "tokenizers" / "source" / "vocabulary.json").read_text())
        return recipe, clean, words

    def poison(self, run, row):
        """Fill a row of the source embedding; weights that are not finite are refused on load."""
        weights = load_file(run / "weights.safetensors")
        weights["encoder.embedding.embedding.weight"][row] = torch.finfo(torch.float32).max
        Run(run).save_model(weights, step=10)

    def test_nonfinite_steps_skipped_counted_and_dumped(self, poisoned, tmp_path):
        recipe, clean, _ = poisoned
        self.poison(clean, row=4 + 7)  # the rarest letter
        run = tmp_path / "run"
        smaller = "training.batching.max_tokens=16"
        initial = f"training.init_from={clean}"
        finished = subprocess_train(
            recipe,
            run,
            initial,
            smaller,
            self.DROPOUT,
            "training.max_nonfinite_steps=1000",
            "training.patience=null",
        )
        assert finished.returncode == 0, finished.stderr
        progress = json.loads((last_checkpoint(run) / "progress.json").read_text())
        assert 0 < progress["num_skipped_steps"] < 30
        bundles = sorted((run / "bad-steps").glob("step-*"))
        assert 0 < len(bundles) <= progress["num_skipped_steps"]
        kept = json.loads((bundles[0] / "metadata.json").read_text())
        assert "encoder.embedding.embedding.weight" in kept["problem"]
        batch = load_file(bundles[0] / "batch-0.safetensors")
        assert (batch["0"] == 11).any(), "the batch that is kept holds the word"

    def test_consecutive_nonfinite_steps_end_training(self, poisoned, tmp_path):
        recipe, clean, _ = poisoned
        for row in range(4, 12):
            self.poison(clean, row)
        run = tmp_path / "run"
        finished = subprocess_train(
            recipe,
            run,
            f"training.init_from={clean}",
            "training.max_nonfinite_steps=3",
            self.DROPOUT,
        )
        assert finished.returncode == 3
        assert "training step 3 (epoch 1, batch 3): loss is nan" in finished.stderr
        assert "(first in encoder." in finished.stderr
        assert "3 consecutive steps skipped" in finished.stderr
        assert str(run / "bad-steps" / "step-00000003") in finished.stderr


def has_pending_interrupt(process):
    """Return whether the process has not taken the last Ctrl-C yet."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGINT - 1) & 1 for mask in masks)


@pytest.mark.parametrize(
    ("moment", "gap"), [("starting", 0.02), ("training", 0), ("training", 0.2)]
)
def test_ctrl_c_twice_logs_one_line_for_each_and_exits_as_logged(tmp_path, moment, gap):
    """At once (Python runs one handler for both), while it stops, and while Python exits."""
    recipe, run = write_recipe(tmp_path, steps=30_000, every=1000), tmp_path / "run"
    command = ["train", recipe, "--run", run, "--set", "training.max_steps=30000"]
    process = start_heedful(
        *command,
        stdout=-1,
        stderr=-1,
        # Background processes inherit SIGINT as ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    awaited = run / ("train.log" if moment == "starting" else "metrics.jsonl")
    wait_for(awaited.exists, process)
    process.send_signal(signal.SIGINT)
    first_at = time.monotonic()
    time.sleep(gap)
    while has_pending_interrupt(process):
        pass  # the system would make one of both
    process.send_signal(signal.SIGINT)
    seconds = time.monotonic() - first_at
    out, err = process.communicate(timeout=MAX_SECONDS)
    lines = [line for line in err.splitlines() if line.startswith(("stopping", "finishing"))]
    assert "Traceback" not in err
    if moment == "starting":
        assert (process.returncode, out, len(lines)) == (130, "", 1)
        return
    assert "press again to stop without saving" in lines[0]
    is_saved = f"{run}: saved at step" in out
    assert lines[1:] == ([] if is_saved else ["stopping without saving"])
    assert process.returncode == (0 if is_saved else 130)
    assert seconds > 0.01 or not is_saved

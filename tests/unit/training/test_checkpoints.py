"""A checkpoint comes back as it was saved, and the ones asked for are there."""

import json
import math
import os
from pathlib import Path
from threading import Event
from time import sleep

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import CorruptRunError, DiskFullError
from heedful.storage.atomic import atomic_replace
from heedful.storage.manifest import read_and_verify_manifest, read_manifest_unverified
from heedful.training.checkpoints import (
    CheckpointConfig,
    CheckpointInfo,
    CheckpointManager,
    Snapshot,
    checkpoints_to_keep,
    list_checkpoints,
)


def snapshot(step):
    weights = {"layer.weight": torch.full((7, 5), float(step)), "layer.bias": torch.tensor(step)}
    tensors = {"optimizer.0.exp_avg": torch.full((3,), step, dtype=torch.float64)}
    return Snapshot(step, weights, tensors, {"seconds": step / 2, "ended": ""})


def assert_same(found, wanted):
    assert found.step == wanted.step
    assert found.metadata == wanted.metadata
    for one, other in (
        (found.model_state_dict, wanted.model_state_dict),
        (found.training_tensors, wanted.training_tensors),
    ):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert tensor.dtype == other[name].dtype
            assert torch.equal(tensor, other[name]), name


def flip(path, place=-1):
    contents = bytearray(path.read_bytes())
    contents[place] ^= 1
    path.write_bytes(contents)


@pytest.fixture
def told():
    return []


@pytest.fixture
def checkpoints(tmp_path, told):
    opened = CheckpointManager(tmp_path / "checkpoints", CheckpointConfig(), told.append)
    yield opened
    opened.close()


def save(checkpoints, *steps):
    for step in steps:
        checkpoints.save(snapshot(step))
    checkpoints.wait_until_verified()


def test_saved_snapshot_is_loaded(checkpoints, told):
    assert checkpoints.load() is None
    assert checkpoints.latest_step is None
    save(checkpoints, 3, 120)
    assert checkpoints.latest_step == 120
    assert_same(checkpoints.load(), snapshot(120))
    assert told == []


def test_checkpoint_is_a_folder_of_readable_files(checkpoints):
    save(checkpoints, 120)
    place = checkpoints.folder / "step-00000120"
    assert sorted(os.listdir(place)) == [
        "manifest.json",
        "model.safetensors",
        "progress.json",
        "training.safetensors",
    ]
    assert json.loads((place / "progress.json").read_text()) == {"seconds": 60.0, "ended": ""}
    manifest = read_and_verify_manifest(place)
    assert (manifest["step"], manifest["score"]) == (120, None)
    assert all(entry.keys() == {"size", "sha256"} for entry in manifest["files"].values())


def test_snapshot_is_not_changed_by_later_updates(checkpoints):
    changing = snapshot(1)
    checkpoints.save(changing)
    changing.model_state_dict["layer.weight"].zero_()
    checkpoints.wait_until_verified()
    assert_same(checkpoints.load(), snapshot(1))


def test_checkpoints_sorted_by_step(checkpoints):
    save(checkpoints, 99_999_999, 100_000_000)
    assert checkpoints.load().step == 100_000_000


def test_other_folders_ignored(checkpoints):
    save(checkpoints, 1, 2)
    (checkpoints.folder / "step-of-mine").mkdir()
    save(checkpoints, 3)
    assert checkpoints.latest_step == 3
    assert (checkpoints.folder / "step-of-mine").exists()


SCORES = st.dictionaries(st.integers(0, 20), st.none() | st.sampled_from([0.5, 1.0, 2.0]))
KEPT = st.builds(
    CheckpointConfig,
    keep_last=st.integers(1, 3),
    keep_best=st.integers(0, 3),
    keep_every=st.none() | st.integers(1, 4),
)


@given(SCORES, KEPT)
def test_kept_checkpoints_are_last_best_and_multiples(scores, config):
    saved = [CheckpointInfo(step, score, Path()) for step, score in scores.items()]
    assert checkpoints_to_keep(saved, config) == set(expected(scores, config))


def expected(scores, config):
    """Which of the steps are kept, each asked for itself."""
    for step, score in scores.items():
        newer = sum(other > step for other in scores)
        rivals = [pair for pair in scores.items() if None not in (score, pair[1])]
        better = sum((rival, other) < (score, step) for other, rival in rivals)
        is_best = score is not None and better < config.keep_best
        is_multiple = config.keep_every is not None and step % config.keep_every == 0
        if newer < config.keep_last or is_best or is_multiple:
            yield step


def test_other_checkpoints_removed(tmp_path):
    checkpoints = CheckpointManager(
        tmp_path, CheckpointConfig(keep_last=1, keep_best=1, keep_every=4), pytest.fail
    )
    for step, score in enumerate([3.0, 1.0, 2.0, math.nan, -math.inf, None], start=1):
        checkpoints.save(snapshot(step), score=score)
    checkpoints.close()
    assert sorted(os.listdir(tmp_path)) == ["step-00000002", "step-00000004", "step-00000006"]


def test_step_saved_again_is_replaced_and_keeps_score(checkpoints):
    checkpoints.save(snapshot(5), score=0.25)
    checkpoints.save(snapshot(5)._replace(metadata={"ended": "reached max_steps=5"}))
    assert checkpoints.load().metadata == {"ended": "reached max_steps=5"}
    (saved,) = list_checkpoints(checkpoints.folder)
    assert (saved.step, saved.score) == (5, 0.25)


def test_loading_removes_nothing_that_is_being_verified(checkpoints, monkeypatch):
    begun = Event()

    def write_slowly(path, text):
        with atomic_replace(path) as temporary:
            temporary.write_text(text)
            begun.set()
            sleep(0.3)

    monkeypatch.setattr("heedful.storage.manifest.write_text", write_slowly)
    checkpoints.save(snapshot(5))
    assert begun.wait(10)
    assert_same(checkpoints.load(), snapshot(5))
    checkpoints.wait_until_verified()  # the manifest was written after all


@pytest.mark.parametrize("name", ["model.safetensors", "progress.json", "manifest.json"])
def test_corrupt_checkpoint_is_moved_aside_and_the_previous_one_loaded(checkpoints, told, name):
    save(checkpoints, 1, 2)
    damaged = checkpoints.folder / "step-00000002" / name
    flip(damaged)
    assert_same(checkpoints.load(), snapshot(1))
    problem, advice = told
    assert problem.startswith(f"corrupt checkpoint: {damaged}: ")
    assert problem.endswith("; moved to corrupt-step-00000002")
    assert advice == f"{checkpoints.folder}: falling back to the checkpoint at step 1"
    assert sorted(os.listdir(checkpoints.folder)) == ["corrupt-step-00000002", "step-00000001"]


def test_second_corrupt_checkpoint_of_a_step_replaces_the_first(checkpoints, told):
    for _ in range(2):
        save(checkpoints, 1, 2)
        flip(checkpoints.folder / "step-00000002" / "progress.json")
        assert checkpoints.load().step == 1
    assert len(told) == 4


def test_missing_valid_checkpoint_raises(checkpoints):
    save(checkpoints, 1, 2)
    for saved in list_checkpoints(checkpoints.folder):
        flip(saved.folder / "model.safetensors")
    for _ in range(2):
        with pytest.raises(CorruptRunError) as caught:
            checkpoints.load()
        assert str(caught.value) == (
            f"{checkpoints.folder}: all checkpoints are corrupt "
            "(corrupt-step-00000001, corrupt-step-00000002)\n"
            "  restore the folder from a backup, or remove it to train from the start"
        )


def test_nothing_is_removed_before_the_new_checkpoint_is_verified(tmp_path, told):
    checkpoints = CheckpointManager(
        tmp_path, CheckpointConfig(keep_last=1, keep_best=0), told.append
    )
    save(checkpoints, 1)
    may_check = Event()
    checkpoints._executor.submit(may_check.wait)
    checkpoints.save(snapshot(2))
    assert [each.step for each in list_checkpoints(tmp_path)] == [1, 2]
    flip(tmp_path / "step-00000002" / "training.safetensors")
    may_check.set()
    checkpoints.close()
    assert [each.step for each in list_checkpoints(tmp_path)] == [1]
    (message,) = told
    assert message == (
        f"corrupt checkpoint: {tmp_path}/step-00000002/training.safetensors: the contents have "
        "changed since they were written (the hash of its page sums differs); "
        "moved to corrupt-step-00000002"
    )
    assert_same(checkpoints.load(), snapshot(1))


def test_leftovers_of_an_interrupted_save_removed(checkpoints):
    save(checkpoints, 1)
    (checkpoints.folder / ".writing-1-step-00000002").mkdir()
    (checkpoints.folder / "step-00000001").rename(checkpoints.folder / ".aside-step-00000001")
    assert checkpoints.load().step == 1
    assert os.listdir(checkpoints.folder) == ["step-00000001"]


def test_full_disk_while_hashes_added_does_no_harm(checkpoints, monkeypatch):
    def full(folder):
        raise DiskFullError(str(folder), "", "")

    monkeypatch.setattr("heedful.storage.manifest.add_sha256", full)
    save(checkpoints, 1)
    entries = read_manifest_unverified(checkpoints.folder / "step-00000001")["files"].values()
    assert all("page_sums" in entry for entry in entries)
    assert_same(checkpoints.load(), snapshot(1))


def test_background_error_is_raised_at_the_next_call(checkpoints, monkeypatch):
    def forbidden(folder):
        raise PermissionError

    monkeypatch.setattr("heedful.storage.manifest.add_sha256", forbidden)
    checkpoints.save(snapshot(1))
    with pytest.raises(PermissionError):
        checkpoints.save(snapshot(2))

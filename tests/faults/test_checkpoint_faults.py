"""Checkpoints under kills, damage, full disks and disks that fail: what was saved is not lost."""

import errno
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from heedful.errors import DiskFullError, StorageError
from heedful.storage.atomic import clean_up_interrupted, lock_folder
from heedful.storage.manifest import (
    read_and_verify_manifest,
    read_manifest_unverified,
    replace_with_manifest,
)
from heedful.training.checkpoints import (
    CheckpointConfig,
    CheckpointManager,
    Snapshot,
    list_checkpoints,
)
from tests.commands import mounted

pytestmark = pytest.mark.faults

KILLS = 15
EVERY = 1000  # bytes between those that are flipped
WIDTH = 100_000


def snapshot(step, width=WIDTH):
    """A snapshot whose every number tells its step."""
    weights = {f"layer.{number}": torch.full((width,), float(step)) for number in range(3)}
    tensors = {f"optimizer.{number}": torch.full((2 * width,), step) for number in range(2)}
    return Snapshot(step, weights, tensors, {"seconds": float(step)})


def assert_is_of_its_step(found):
    assert found.metadata == {"seconds": float(found.step)}
    for tensor in (*found.model_state_dict.values(), *found.training_tensors.values()):
        assert (tensor == found.step).all()


def publish(run, step):
    weights = save({"weights": torch.full((WIDTH,), step)})
    replace_with_manifest(
        run,
        {"weights.safetensors": lambda path: path.write_bytes(weights)},
        [run / "config.yaml"],
        {"step": step},
    )


def assert_published_whole(run):
    if not (run / "manifest.json").exists():
        return 0
    step = read_and_verify_manifest(run)["step"]
    assert (load_file(run / "weights.safetensors")["weights"] == step).all()
    return step


def train_until_killed(run):
    """Save and publish step after step, going on from what is there."""
    with lock_folder(run):
        clean_up_interrupted(run)
        checkpoints = CheckpointManager(
            run / "checkpoints", CheckpointConfig(keep_last=2, keep_best=1), print
        )
        last = checkpoints.load()
        for step in itertools.count(last.step + 1 if last else 1):
            checkpoints.save(snapshot(step), score=random.random())
            publish(run, step)


def seconds_to_save(run):
    run.mkdir()
    (run / "config.yaml").write_text("seed: 0\n")
    began = time.monotonic()
    checkpoints = CheckpointManager(run / "checkpoints", CheckpointConfig(), print)
    checkpoints.save(snapshot(1))
    publish(run, 1)
    checkpoints.close()
    return time.monotonic() - began


def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def test_kill_at_any_moment_leaves_complete_checkpoints(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    told, chance, reached, published = [], random.Random(0), 0, 0
    longest = max(0.3, 6 * seconds_to_save(tmp_path / "other"))  # disks differ
    for _ in range(KILLS):
        child = forked(lambda: train_until_killed(tmp_path))
        time.sleep(chance.uniform(0.01, longest))
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it was to be killed, and ended before"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        step = assert_published_whole(tmp_path)
        assert step >= published
        checkpoints = CheckpointManager(tmp_path / "checkpoints", CheckpointConfig(), told.append)
        found = checkpoints.load()
        if found is not None:
            assert_is_of_its_step(found)
            assert found.step >= max(reached, step)  # it was saved before it was published
            reached = found.step
        for saved in list_checkpoints(tmp_path / "checkpoints"):
            read_and_verify_manifest(saved.folder)
        assert not list((tmp_path / "checkpoints").rglob(".*"))
        checkpoints.close()
        published = step
    assert told == []
    assert min(reached, published) > 1


SAVES = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.sampled_from([0.5, 1.0, 2.0, math.inf, math.nan])),
    min_size=1,
    max_size=10,
)
KEPT = st.builds(
    CheckpointConfig,
    keep_last=st.integers(1, 3),
    keep_best=st.integers(0, 3),
    keep_every=st.none() | st.integers(1, 4),
)


@given(SAVES, KEPT)
def test_kept_checkpoints_exist_after_any_sequence_of_saves(tmp_path_factory, saves, config):
    folder = tmp_path_factory.mktemp("kept")
    checkpoints = CheckpointManager(folder, config, pytest.fail)
    step, scores = 0, {}
    for further, score in saves:
        step += further  # the same step may be saved again
        checkpoints.save(snapshot(step, width=5), score=score)
        read_and_verify_manifest(
            folder / f"step-{step:08d}"
        )  # good even before it has been read back
        checkpoints.wait_until_verified()
        scores[step] = scores.get(step) if score is None else score
        ranked = sorted((s, at) for at, s in scores.items() if s is not None and math.isfinite(s))
        kept = set(sorted(scores)[-config.keep_last :]) | {
            at for _, at in ranked[: config.keep_best]
        }
        kept |= {at for at in scores if config.keep_every and at % config.keep_every == 0}
        scores = {at: scores[at] for at in kept}
        assert sorted(os.listdir(folder)) == [f"step-{at:08d}" for at in sorted(kept)]
        assert_is_of_its_step(checkpoints.load())
    checkpoints.close()


@pytest.fixture
def saved(tmp_path):
    """Two checkpoints, each of a few pages."""
    checkpoints = CheckpointManager(tmp_path / "saved", CheckpointConfig(), pytest.fail)
    for step in (1, 2):
        checkpoints.save(snapshot(step, width=3000))
    checkpoints.close()
    return tmp_path / "saved"


def assert_damage_is_noticed(folder, spoiled):
    """Load beside a damaged file, then put everything back as it was."""
    told = []
    checkpoints = CheckpointManager(folder, CheckpointConfig(), told.append)
    found = checkpoints.load()
    checkpoints.close()
    assert found.step == 1
    assert_is_of_its_step(found)
    assert told[0].startswith(f"corrupt checkpoint: {spoiled}: ")
    assert told[1:] == [f"{folder}: falling back to the checkpoint at step 1"]
    (folder / "corrupt-step-00000002").rename(folder / "step-00000002")


@pytest.mark.parametrize("are_strengthened", [True, False], ids=["sha-256", "quick hashes"])
def test_flipped_bytes_detected(tmp_path, saved, monkeypatch, are_strengthened):
    if not are_strengthened:
        monkeypatch.setattr("heedful.storage.manifest.add_sha256", lambda place: None)
        checkpoints = CheckpointManager(saved, CheckpointConfig(), pytest.fail)
        checkpoints.save(snapshot(2, width=3000))
        checkpoints.close()
    entries = read_manifest_unverified(saved / "step-00000002")["files"].values()
    assert all(("sha256" in entry) == are_strengthened for entry in entries)
    count = 0
    for path in sorted((saved / "step-00000002").iterdir()):
        contents = path.read_bytes()
        for place in range(0, len(contents), 1 if path.name == "manifest.json" else EVERY):
            spoiled = bytearray(contents)
            spoiled[place] ^= 1 << place % 8
            path.write_bytes(spoiled)
            assert_damage_is_noticed(saved, path)
            path.write_bytes(contents)
            count += 1
    assert count > 500


def test_truncated_extended_or_missing_files_detected(saved):
    for path in sorted((saved / "step-00000002").iterdir()):
        contents = path.read_bytes()
        for spoiled in (contents[:-1], contents[: len(contents) // 2], b"", contents + b"\0"):
            path.write_bytes(spoiled)
            assert_damage_is_noticed(saved, path)
        path.unlink()
        assert_damage_is_noticed(saved, path)
        path.write_bytes(contents)
    shutil.rmtree(saved / "step-00000002")
    (saved / "step-00000002").mkdir()
    assert_damage_is_noticed(saved, saved / "step-00000002" / "manifest.json")


def mount(*words):
    return subprocess.run(["mount", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 30 MB."""
    with mounted(tmp_path / "disk", "size=30m") as folder:
        yield folder


MEGABYTES_8 = 8_000_000 // (3 * 4 + 4 * 8)  # numbers a tensor of a snapshot of that size


def test_full_disk_raises_before_writing(small_disk):
    checkpoints = CheckpointManager(
        small_disk / "checkpoints", CheckpointConfig(keep_last=9), pytest.fail
    )
    for step in (1, 2):
        checkpoints.save(snapshot(step, MEGABYTES_8))
    checkpoints.wait_until_verified()
    (small_disk / "other").write_bytes(bytes(8_000_000))
    with pytest.raises(DiskFullError) as caught:
        checkpoints.save(snapshot(3, MEGABYTES_8))
    assert str(caught.value).startswith(
        f"{small_disk}/checkpoints/step-00000003: needs 10 MB, and 7 MB are free; "
        "what was saved before is untouched"
    )
    assert_is_of_its_step(checkpoints.load())
    assert checkpoints.latest_step == 2
    (small_disk / "other").unlink()  # and when there is room again it goes on
    checkpoints.save(snapshot(3, MEGABYTES_8))
    checkpoints.close()
    assert checkpoints.load().step == 3


def test_disk_that_fills_while_saving_keeps_old_checkpoints(small_disk, monkeypatch):
    checkpoints = CheckpointManager(
        small_disk / "checkpoints", CheckpointConfig(keep_last=9), pytest.fail
    )
    checkpoints.save(snapshot(1, MEGABYTES_8))
    checkpoints.wait_until_verified()
    # Others take the room between the look at it and the writing.
    monkeypatch.setattr("heedful.storage.atomic.check_free_space", lambda place, size: None)
    for left in (0, 4096, 1_000_000, 5_000_000, 7_900_000):
        (small_disk / "other").unlink(missing_ok=True)
        free = shutil.disk_usage(small_disk).free
        with (small_disk / "other").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - left)
        with pytest.raises(DiskFullError, match="no space left on device"):
            checkpoints.save(snapshot(2, MEGABYTES_8))
        assert os.listdir(small_disk / "checkpoints") == ["step-00000001"]
        assert_is_of_its_step(checkpoints.load())
    checkpoints.close()


def test_full_disk_keeps_the_saved_weights(small_disk):
    run = small_disk / "run"
    run.mkdir()
    (run / "config.yaml").write_text("seed: 0\n")
    publish(run, 1)
    for left in (0, 4096, WIDTH, 8 * WIDTH + 4096):  # room for nothing, or for the weights alone
        (small_disk / "other").unlink(missing_ok=True)
        free = shutil.disk_usage(small_disk).free
        with (small_disk / "other").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - left)
        with pytest.raises(DiskFullError):
            publish(run, 2)
        assert assert_published_whole(run) == 1
        assert sorted(os.listdir(run)) == ["config.yaml", "manifest.json", "weights.safetensors"]


def test_read_only_disk_can_be_read(small_disk):
    folder = small_disk / "checkpoints"
    checkpoints = CheckpointManager(folder, CheckpointConfig(), pytest.fail)
    checkpoints.save(snapshot(1))
    checkpoints.wait_until_verified()
    assert mount("-o", "remount,ro", str(small_disk)).returncode == 0
    with pytest.raises(StorageError) as caught:
        checkpoints.save(snapshot(2))
    assert str(caught.value) == (
        f"{folder}/step-00000002: cannot be written (read-only file system); "
        "what was saved before is untouched\n"
        "  name a folder on a writable disk"
    )
    assert not isinstance(caught.value, DiskFullError)
    with pytest.raises(StorageError, match=r"\.lock: cannot be written"), lock_folder(small_disk):
        pass
    assert_is_of_its_step(checkpoints.load())
    checkpoints.close()


def try_to_save(checkpoints, step):
    try:
        checkpoints.save(snapshot(step))
    except StorageError as error:
        return error.message
    return ""


@pytest.mark.parametrize("step", [2, 1], ids=["a new step", "a step saved again"])
@pytest.mark.parametrize("name", ["fsync", "rename", "replace"])
def test_failing_system_calls_corrupt_nothing(tmp_path, monkeypatch, name, step):
    checkpoints = CheckpointManager(tmp_path / "checkpoints", CheckpointConfig(), pytest.fail)
    monkeypatch.setattr("heedful.storage.manifest.add_sha256", lambda place: None)
    working, failed = getattr(os, name), 0
    for moment in itertools.count(1):
        checkpoints.save(snapshot(1))
        checkpoints.wait_until_verified()
        calls = itertools.count(1)

        def fail(*arguments, moment=moment, calls=calls):
            if next(calls) == moment:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return working(*arguments)

        with monkeypatch.context() as patching:
            patching.setattr(os, name, fail)
            problem = try_to_save(checkpoints, step)
        if not problem:
            break
        failed += 1
        assert problem.startswith("cannot be written (input/output error)")
        checkpoints.wait_until_verified()
        assert_is_of_its_step(checkpoints.load())
        assert not list((tmp_path / "checkpoints").glob(".*"))
    assert failed >= {"fsync": 5, "rename": 2 * (step == 1), "replace": step == 2}[name]
    checkpoints.close()

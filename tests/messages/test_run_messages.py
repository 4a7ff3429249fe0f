"""The full text of what a user is told when a run folder or a disk is not as it should be."""

import json
import re
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file

from heedful.storage.manifest import write_manifest
from tests.commands import heedful, mounted, start_heedful, write_recipe

RESTORE_HINT = "  restore the folder from a copy, or train again into another folder\n"


@pytest.fixture
def call(capsys, monkeypatch):
    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, *words, stdin=stdin)

    return run


def flip(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "config.yaml", "tokenizers/source/vocabulary.json"]
)
def test_a_flipped_byte(call, copied, name):
    flip(copied / name)
    ended = call("translate", copied, stdin="a b\n")
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err == (
        f"heedful: {copied}/{name}: the contents have changed since they were written "
        f"(SHA-256 differs)\n{RESTORE_HINT}"
    )


@pytest.mark.parametrize("name", ["weights.safetensors", "config.yaml"])
def test_a_missing_file(call, copied, name):
    (copied / name).unlink()
    ended = call("show", copied, "a b")
    assert ended.code == 1
    assert ended.err == f"heedful: {copied}/{name}: the file is missing\n{RESTORE_HINT}"


def test_a_file_cut_short(call, copied):
    path = copied / "weights.safetensors"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    ended = call("evaluate", copied)
    assert ended.code == 1
    assert ended.err == (
        f"heedful: {path}: the file has {size - 1} bytes, but {size} were written\n{RESTORE_HINT}"
    )


def vouch_for(run):
    """Write the manifest anew, as someone would who put other files there on purpose."""
    manifest = json.loads((run / "manifest.json").read_text())
    files = [run / name for name in manifest.pop("files")]
    write_manifest(run, files, manifest)


def test_weights_of_another_model(call, copied):
    path = copied / "weights.safetensors"
    weights = load_file(path)
    name = "decoder.bridge.layers.0.weight"
    weights[name] = weights[name][:7].clone()
    save_file(weights, path)
    vouch_for(copied)
    ended = call("translate", copied)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {path}: the weights are those of another model: "
        f"{name} has shape (7, 32), the model needs (32, 32)\n"
        "  restore the weights and the config.yaml that were written together\n"
    )


def test_weights_with_a_part_too_few_or_too_many(call, copied):
    path = copied / "weights.safetensors"
    weights = load_file(path)
    part = weights.pop("decoder.bridge.layers.0.bias")
    for name, problem in (
        ("none", "decoder.bridge.layers.0.bias is missing"),
        ("decoder.bridge.layers.0.bias", "alien is not in the model"),
    ):
        save_file(weights | ({} if name == "none" else {name: part, "alien": part.clone()}), path)
        vouch_for(copied)
        ended = call("translate", copied)
        assert ended.code == 2
        assert problem in ended.err


def test_weights_that_are_no_weights(call, copied):
    path = copied / "weights.safetensors"
    path.write_text("nothing of the kind")
    vouch_for(copied)
    ended = call("translate", copied)
    assert ended.code == 1
    assert ended.err.startswith(f"heedful: {path}: not a weights file (")
    assert ended.err.endswith(RESTORE_HINT)


def test_a_run_of_another_format(call, copied):
    path = copied / "manifest.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 99'))
    vouch_for(copied)
    ended = call("translate", copied)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {path}: has format 99, but this version of heedful reads format 2\n"
        "  use the version that wrote it (0.1.0), or train again\n"
    )


def test_no_such_run(call, copied):
    ended = call("translate", copied.parent / "rum")
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {copied.parent}/rum: no such folder; did you mean 'run'?\n"
        "  name a folder written by `heedful train`\n"
    )


def test_a_folder_that_is_no_run(call, tmp_path):
    folder = tmp_path / "apart" / "from" / "runs"  # what lies beside might be meant
    folder.mkdir(parents=True)
    ended = call("translate", folder)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {folder}: not a run folder\n  name a folder written by `heedful train`\n"
    )


def test_a_run_without_weights_yet(call, copied):
    (copied / "manifest.json").unlink()
    ended = call("translate", copied)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {copied}: training has not saved parameters here yet\n"
        "  wait for the first validation, or run the same `heedful train` command again\n"
    )


def test_a_text_longer_than_the_limit(call, trained):
    ended = call("translate", trained, "--too-long", "error", stdin="a b\n" + "a " * 60 + "\n")
    assert ended.code == 2
    assert ended.err == (
        "heedful: standard input:2: the text has 61 tokens, but max_source_length is 40\n"
        "  split the text into sentences, or raise the limit with "
        "--set decoding.max_source_length=N\n"
    )
    raised = call(
        "translate", trained, "--set", "decoding.max_source_length=99", stdin="a " * 60 + "\n"
    )
    assert raised.code == 0


def test_another_recipe_in_the_same_folder(call, copied, trained):
    recipe = trained.parent / "letters.yaml"
    ended = call("train", recipe, "--run", copied, "--set", "model.decoder.hidden_size=48")
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {copied}: this run was started with model.decoder.hidden_size=32, "
        "but now it is 48\n"
        "  use the settings it was started with to resume, or another folder with --run\n"
    )


def test_other_data_in_the_same_files(call, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=1)
    assert call("train", recipe, "--run", tmp_path / "run").code == 0
    for side in ("source", "target"):
        path = tmp_path / f"{side}.txt"
        path.write_text(path.read_text().replace("a", "b"))
    longer = ["--set", "training.max_steps=4"]
    ended = call("train", recipe, "--run", tmp_path / "run", *longer)
    assert ended.code == 2
    assert ended.err.endswith(
        f"heedful: {tmp_path}/run: the training data has changed since this run was started\n"
        "  restore the data to resume, or use another folder with --run\n"
    )


def test_a_checkpoint_without_the_config(call, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    run = tmp_path / "run"
    assert call("train", recipe, "--run", run).code == 0
    (run / "config.yaml").unlink()
    ended = call("train", recipe, "--run", run)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {run}/checkpoints: there are checkpoints here, but not the config.yaml they "
        "were trained with\n"
        "  restore config.yaml and tokenizers/, or use another folder with --run\n"
    )


def test_a_damaged_checkpoint_is_not_trained_from(call, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    run = tmp_path / "run"
    assert call("train", recipe, "--run", run).code == 0
    flip(run / "checkpoints" / "step-00000002" / "training.safetensors")
    ended = call("train", recipe, "--run", run)
    assert ended.code == 1
    assert ended.err == (
        f"corrupt checkpoint: {run}/checkpoints/step-00000002/training.safetensors: the contents "
        "have changed since they were written (SHA-256 differs); "
        "moved to corrupt-step-00000002\n"
        f"heedful: {run}/checkpoints: all checkpoints are corrupt (corrupt-step-00000002)\n"
        "  restore the folder from a backup, or remove it to train from the start\n"
    )


def test_limit_below_the_step_reached_raises(call, copied, trained):
    ended = call("train", trained.parent / "letters.yaml", "--run", copied, "--steps", 100)
    assert ended.code == 2
    assert ended.err.endswith(
        f"heedful: {copied}: training.max_steps is 100, but this run has reached step 250\n"
        "  raise it with --steps, or use another folder with --run\n"
    )


def test_finished_run_is_reported_and_not_changed(call, copied, trained):
    before = (copied / "weights.safetensors").read_bytes()
    ended = call("train", trained.parent / "letters.yaml", "--run", copied)
    assert ended.code == 0
    assert f"{copied}: already trained (reached max_steps=250) at step 250\n" in ended.err
    assert (copied / "weights.safetensors").read_bytes() == before


@pytest.mark.wide
def test_a_full_disk_under_the_output():
    with open("/dev/full", "w") as full:
        process = start_heedful("data", "latin", stdout=full, stderr=-1)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert err == (
        "heedful: standard output: cannot be written (no space left on device); "
        "what was saved before is untouched\n"
        "  free disk space and run the same command again\n"
    )


@pytest.mark.wide
def test_a_full_disk_under_a_run_keeps_what_was_saved(call, tmp_path):
    """A real disk of 400 kB: the first checkpoint fits, the second does not."""
    with mounted(tmp_path / "disk", "size=400k") as disk:
        recipe = write_recipe(tmp_path, steps=40, every=20)
        run = disk / "run"
        ended = call("train", recipe, "--run", run)
        assert ended.code == 2
        assert re.search(
            r"(no space left on device\)|needs \d+ kB, and \d+ kB are free); what was saved before "
            r"is untouched\n  free disk space and run the same command again\n$",
            ended.err,
        )
        assert not list(run.rglob(".writing-*"))
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        again = call("train", recipe, "--run", run)
        assert again.code == 0
        assert call("translate", run, stdin="a\n").code == 0


def test_a_disk_that_cannot_be_written(call, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    with mounted(tmp_path / "disk", "ro") as disk:
        ended = call("train", recipe, "--run", disk / "run")
    assert ended.code == 2
    assert ended.err.endswith(
        f"heedful: {disk}/run/.lock: cannot be written (read-only file system); "
        "what was saved before is untouched\n"
        "  name a folder on a writable disk\n"
    )


def test_file_instead_of_a_folder_raises(call, tmp_path):
    recipe = write_recipe(tmp_path, steps=2, every=2)
    (tmp_path / "run").write_text("something else")
    ended = call("train", recipe, "--run", tmp_path / "run")
    assert ended.code == 2
    assert (tmp_path / "run").read_text() == "something else"
    assert ended.err.endswith(
        "what was saved before is untouched\n  check the disk and the folder\n"
    )
    assert "Traceback" not in ended.err


def test_no_traceback_reaches_a_user():
    command = [sys.executable, "-m", "heedful", "report", "nowhere"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr

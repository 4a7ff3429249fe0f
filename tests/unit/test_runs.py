"""The run folder: what is in it, and what is found there again."""

import json

import pytest
import torch

from heedful.errors import ConfigError
from heedful.runs import Run, load, resolve_device


def test_the_manifest_vouches_for_all_that_a_model_is_made_of(trained):
    manifest = json.loads((trained / "manifest.json").read_text())
    assert set(manifest["files"]) == {
        "config.yaml",
        "text/source/vocabulary.json",
        "text/target/vocabulary.json",
        "weights.safetensors",
    }
    assert manifest["format"] == 1
    assert manifest["torch"] == torch.__version__
    assert manifest["threads"] == torch.get_num_threads()


def test_settings_of_decoding_can_be_changed_when_loading(trained):
    translator = load(trained, overrides=["decoding.beam_size=2", "decoding.max_length_offset=1"])
    assert translator.decoding.beam_size == 2
    assert translator.decoding.max_source_length == 40


def test_metrics_of_steps_to_be_taken_again_are_forgotten(tmp_path):
    run = Run(tmp_path)
    for step in (1, 10, 20):
        run.append_metrics({"kind": "training", "step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "training", "st')
    run.truncate_logs_after(10)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 10]


def test_the_cpu_is_always_there():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda"}


@pytest.mark.parametrize("name", ["cud", "cuda:99", "cuda:x", "cpu:1", ""])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ConfigError, match="there is no device called"):
        resolve_device(name)

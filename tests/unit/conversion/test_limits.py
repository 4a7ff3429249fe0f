"""Sizes of an imported model are compared with its tensors first; NaN is never imported."""

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from heedful.config import BaseConfig
from heedful.conversion.registry import read_run
from heedful.errors import DataError, RunError
from heedful.recipes import load_recipe
from heedful.storage.state_dict import check_finite, load_into_model, unique_weights
from tests.conformance.test_nmt_checkpoints import (
    JOEY_RECURRENT,
    JOEY_TRANSFORMERS,
    ONMT_TRANSFORMERS,
    joey_recurrent,
    joey_transformer,
    onmt_transformer,
)
from tests.hf_encoders import write_gpt2

AGAIN = "download or write the folder again; nothing was written"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits") / "gpt2"
    write_gpt2(folder)
    return folder


def change_config(folder, target, **settings):
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | settings))
    return target


@pytest.mark.parametrize(
    ("num_layers", "file", "message"),
    [
        (
            10**9,
            "/config.json",
            "describes a model that cannot be built here: model.backbone.num_layers: "
            "should be less than or equal to 1000, got 1000000000\n"
            "  use another model; nothing was written",
        ),
        (
            1000,
            "",
            "its settings describe 1,000 layers, but the model has 42 tensors\n"
            "  use the settings and tensors that were written together",
        ),
    ],
)
def test_number_of_layers_is_compared_before_anything_is_built(
    gpt2, tmp_path, num_layers, file, message
):
    folder = change_config(gpt2, tmp_path / "gpt2", n_layer=num_layers)
    with pytest.raises(DataError) as caught:
        read_run(folder)
    assert str(caught.value) == f"{folder}{file}: {message}"


@pytest.mark.parametrize("name", ["num_layers", "hidden_size"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_sizes_in_a_config_of_joeynmt_compared_with_tensors(tmp_path, side, name):
    path, _ = joey_recurrent(tmp_path / "joey", JOEY_RECURRENT[2])
    config = yaml.safe_load((path.parent / "config.yaml").read_text())
    config["model"][side][name] = 10**9
    (path.parent / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(DataError):
        read_run(path)


COUNTS = ("num_layers", "num_repeats", "layers_per_stage", "num_heads", "num_experts", "num_groups")


def subclasses(config_class):
    for subclass in config_class.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def test_number_of_parts_of_a_model_has_a_maximum():
    load_recipe("bahdanau-2015")  # imports all configs
    unlimited = {
        f"{config_class.__name__}.{name}"
        for config_class in subclasses(BaseConfig)
        for name, field in config_class.model_fields.items()
        if config_class.__module__.startswith("heedful.") and name in COUNTS
        if not any(hasattr(limit, "le") for limit in field.metadata)
    }
    assert unlimited == set()


# ----- NaN


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_tensor_with_nan_or_infinity_is_not_imported(gpt2, tmp_path, value):
    folder = change_config(gpt2, tmp_path / "gpt2")
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.h.1.attn.c_proj.weight"][3, 2] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError) as caught:
        read_run(folder)
    message = "the tensor h.1.attn.c_proj.weight contains NaN or infinity"
    assert str(caught.value) == f"{folder}: {message}\n  {AGAIN}"


@pytest.mark.parametrize("write", [joey_transformer, onmt_transformer])
def test_checkpoint_with_nan_is_not_imported(tmp_path, write):
    case = (JOEY_TRANSFORMERS if write is joey_transformer else ONMT_TRANSFORMERS)[0]
    path, _ = write(tmp_path / "model", case)
    checkpoint = torch.load(path, weights_only=False)
    tensors = checkpoint.get("model_state") or checkpoint["model"]
    name = next(name for name in tensors if name.endswith("feed_forward.layer_norm.weight"))
    tensors[name][1] = torch.nan
    torch.save(checkpoint, path)
    with pytest.raises(DataError, match=f"the tensor {name} contains NaN or infinity"):
        read_run(path)


def test_weights_with_nan_not_loaded():
    model = torch.nn.Linear(2, 2)
    weights = unique_weights(model)
    weights["bias"] = torch.tensor([0.0, torch.nan])
    with pytest.raises(RunError) as caught:
        load_into_model(model, weights, location="runs/a/weights.safetensors")
    assert str(caught.value) == (
        "runs/a/weights.safetensors: the tensor bias contains NaN or infinity\n"
        "  restore the folder from a copy, or train again into another folder"
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_large_values_are_finite(dtype):
    largest = torch.finfo(dtype).max
    tensors = {"w": torch.tensor([largest, largest, -largest], dtype=dtype), "empty": torch.ones(0)}
    check_finite(tensors, location="here", hint="none")


# ----- files that settings name


def test_vocabulary_named_by_absolute_path_is_not_opened(tmp_path):
    path, _ = joey_transformer(tmp_path / "joey", JOEY_TRANSFORMERS[0])
    elsewhere = tmp_path / "elsewhere.txt"
    (path.parent / "src_vocab.txt").rename(elsewhere)
    config = yaml.safe_load((path.parent / "config.yaml").read_text())
    config["data"]["src"]["voc_file"] = str(elsewhere)
    (path.parent / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(DataError) as caught:
        read_run(path)
    assert str(caught.value) == (
        f"{path.parent}: the file elsewhere.txt is missing\n"
        "  copy it into the folder of the checkpoint"
    )
    elsewhere.rename(path.parent / "elsewhere.txt")
    read_run(path)


@pytest.mark.parametrize("model_type", ["mbart", "gpt_neo", "bertgeneration", "t5"])
def test_other_architecture_is_not_taken_for_a_misspelled_one(gpt2, tmp_path, model_type):
    folder = change_config(gpt2, tmp_path / "model", model_type=model_type)
    with pytest.raises(DataError) as caught:
        read_run(folder)
    assert caught.value.message == f"no importer for model_type {model_type!r}"

"""Folders of the BERT family and GPT-2: what is refused by name, and other forms that are read."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.conversion.importing import import_run
from heedful.conversion.registry import read_encoder, read_run
from heedful.errors import DataError
from tests.hf_encoders import write_encoder, write_gpt2

WRITE = {"bert": write_encoder, "gpt2": lambda folder, _: write_gpt2(folder)}
AGAIN = "download or write the folder again; nothing was written"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Write a random BERT and a random GPT-2; return their folders by name."""
    root = tmp_path_factory.mktemp("hf")
    for name, write in WRITE.items():
        write(root / name, name)
    return root


@pytest.fixture
def folder(request, folders, tmp_path):
    """Return a copy of a folder that a test may change."""
    return Path(shutil.copytree(folders / request.param, tmp_path / request.param))


def change_config(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


KNOWN = "these are: relu, gelu, gelu_new, gelu_pytorch_tanh, swish, silu"
WITHOUT = "use a model without it; nothing was written"
CONFIGS = {
    "activation": (
        *("bert", {"hidden_act": "mish"}),
        f"hidden_act is 'mish', which is not known here\n  {KNOWN}",
    ),
    "positions": (
        *("bert", {"position_embedding_type": "relative_key"}),
        "position_embedding_type is 'relative_key', which the encoder here does not have\n"
        f"  {WITHOUT}",
    ),
    "decoder": (
        *("bert", {"is_decoder": True}),
        f"is_decoder is True, which the encoder here does not have\n  {WITHOUT}",
    ),
    "size": (
        *("bert", {"hidden_size": "16"}),
        "hidden_size must be an integer, but is '16'\n  download the folder again",
    ),
    "scaling": (
        *("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        "scale_attn_by_inverse_layer_idx is True, which the language model here does not have\n"
        f"  {WITHOUT}",
    ),
    "activation of GPT-2": (
        *("gpt2", {"activation_function": "mish"}),
        f"activation_function is 'mish', which is not known here\n  {KNOWN}",
    ),
}


@pytest.mark.parametrize(
    ("folder", "settings", "message"), CONFIGS.values(), ids=CONFIGS, indirect=["folder"]
)
def test_unknown_setting_is_reported_by_name(folder, settings, message, tmp_path):
    change_config(folder, **settings)
    with pytest.raises(DataError) as error:
        import_run(folder, tmp_path / "run")
    assert str(error.value) == f"{folder / 'config.json'}: {message}"
    assert not (tmp_path / "run").exists()


TENSORS = {
    "missing": (
        *("bert", lambda tensors: tensors.pop("bert.encoder.layer.0.output.dense.weight")),
        "the tensor encoder.layer.0.output.dense.weight is missing",
    ),
    "of no known part": (
        *("bert", lambda tensors: tensors.update({"bert.adapter.weight": torch.zeros(2)})),
        "the tensor adapter.weight is of no known part of the model",
    ),
    "of another shape": (
        *("gpt2", lambda tensors: tensors.update({"transformer.ln_f.bias": torch.zeros(15)})),
        "the tensor ln_f.bias has shape (15,), but its config.json needs (16,)",
    ),
    "no table": (
        *("gpt2", lambda tensors: tensors.pop("transformer.wte.weight")),
        "the tensor wte.weight is missing",
    ),
}


@pytest.mark.parametrize(
    ("folder", "change", "message"), TENSORS.values(), ids=TENSORS, indirect=["folder"]
)
def test_incompatible_tensor_is_reported_by_name(folder, change, message, tmp_path):
    change_tensors(folder, change)
    with pytest.raises(DataError) as error:
        import_run(folder, tmp_path / "run")
    assert str(error.value) == f"{folder}: {message}\n  {AGAIN}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_encoder_without_a_head_is_no_run_but_can_be_used(folder, tmp_path):
    change_tensors(folder, lambda t: [t.pop(name) for name in list(t) if name.startswith("cls.")])
    with pytest.raises(DataError) as error:
        import_run(folder, tmp_path / "run")
    assert str(error.value) == (
        f"{folder}: has no masked-LM head: the tensor cls.predictions.transform.dense.weight is "
        "missing\n"
        f"  use it as an encoder: `encoder: {{type: pretrained, path: {folder}}}`"
    )
    weights = read_encoder(folder).weights
    assert weights
    assert all(name.startswith("encoder.") for name in weights)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_special_tokens_must_be_defined(folder, tmp_path):
    text = (folder / "tokenizer.json").read_text().replace("[MASK]", "[HIDE]")
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(DataError) as error:
        import_run(folder, tmp_path / "run")
    message = "the tokenizer has no mask_token\n  set it in special_tokens_map.json"
    assert str(error.value) == f"{folder}: {message}"


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_old_names_of_norms_and_missing_prefix_are_understood(folder):
    expected = read_run(folder).weights
    change_tensors(folder, rename_as_in_old_files)
    actual = read_run(folder).weights
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def rename_as_in_old_files(tensors):
    for name in list(tensors):
        new = name.removeprefix("bert.")
        new = new.replace("LayerNorm.weight", "LayerNorm.gamma")
        new = new.replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[new] = tensors.pop(name)
    tensors["embeddings.position_ids"] = torch.arange(40).unsqueeze(0)


@pytest.mark.parametrize("folder", ["gpt2"], indirect=True)
def test_half_precision_loads_as_fp32(folder):
    expected = read_run(folder).weights
    change_tensors(
        folder, lambda tensors: tensors.update({n: t.half() for n, t in tensors.items()})
    )
    actual = read_run(folder).weights
    assert {weight.dtype for weight in actual.values()} == {torch.float32}
    for name, weight in actual.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("folder", ["gpt2"], indirect=True)
def test_sharded_folder_equals_a_whole_one(folder):
    expected = read_run(folder).weights
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for index, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{index}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    actual = read_run(folder).weights
    assert all(torch.equal(actual[name], expected[name]) for name in expected)

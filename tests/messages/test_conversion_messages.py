"""The full text of what `import` and `export` say about models that they cannot read or hold."""

import json
import pickle
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.conversion.hf_export import EXPORTER
from heedful.runs import load_run
from tests.commands import heedful, write_random_run
from tests.hf_models import SOURCE_TEXTS, TARGET_TEXTS, TRANSFORMER, transformer_settings

AGAIN = "\n  download the folder again\n"
REWRITE = "\n  download or write the folder again; nothing was written\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return write_random_run(folder, transformer_settings(), SOURCE_TEXTS, TARGET_TEXTS, seed=0)


@pytest.fixture(scope="module")
def exported(run):
    """A Marian folder as from elsewhere: without the files of heedful."""
    folder = run.parent / "model"
    folder.mkdir()
    EXPORTER.write(load_run(run), folder)
    (folder / "heedful.yaml").unlink()
    return folder


@pytest.fixture
def model(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "model")


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    def run_command(*words):
        ended = heedful(capsys, monkeypatch, *words)
        written = {path.name for path in tmp_path.iterdir()} - {"model"}
        assert (ended.out, written) == ("", set())
        return ended

    return run_command


@pytest.fixture
def refused(call, model, tmp_path):
    """Import the folder; return what is said, without the lines about progress."""

    def import_model(*, code=2):
        ended = call("import", model, "--run", tmp_path / "run", "-q")
        assert ended.code == code
        return ended.err

    return import_model


def change_config(model, **settings):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | settings))


def change_tensors(model, change):
    tensors = load_file(model / "model.safetensors")
    save_file(change(tensors), model / "model.safetensors")


def test_an_unchanged_folder_is_imported(exported, capsys, monkeypatch, tmp_path):
    ended = heedful(capsys, monkeypatch, "import", exported, "--run", tmp_path / "run", "-q")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{tmp_path / 'run'}: imported; try: ")


def test_truncated_safetensors(model, refused):
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert refused() == (
        f"heedful: {path}: not a complete safetensors file (incomplete metadata, file not fully "
        f"covered){AGAIN}"
    )


def test_a_file_that_is_no_safetensors(model, refused):
    path = model / "model.safetensors"
    path.write_bytes(b"short")
    assert (
        refused() == f"heedful: {path}: not a complete safetensors file (header too small){AGAIN}"
    )


def split_into_shards(model):
    tensors = load_file(model / "model.safetensors")
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2]}
    shards["model-00002-of-00002.safetensors"] = names[1::2]
    for shard, own in shards.items():
        save_file({name: tensors[name] for name in own}, model / shard)
    weight_map = {name: shard for shard, own in shards.items() for name in own}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (model / "model.safetensors").unlink()
    return names


def test_shards_load_as_one_file(model, exported, capsys, monkeypatch, tmp_path):
    split_into_shards(model)
    for source, name in ((model, "sharded"), (exported, "whole")):
        heedful(capsys, monkeypatch, "import", source, "--run", tmp_path / name, "-q")
    weights = [
        (tmp_path / name / "weights.safetensors").read_bytes() for name in ("sharded", "whole")
    ]
    assert weights[0] == weights[1]


def test_a_missing_shard(model, refused):
    split_into_shards(model)
    path = model / "model-00002-of-00002.safetensors"
    path.unlink()
    message = "a shard that model.safetensors.index.json names is missing"
    assert refused() == f"heedful: {path}: {message}{AGAIN}"


def test_tensor_that_is_not_in_the_shard(model, refused):
    names = split_into_shards(model)
    path = model / "model-00001-of-00002.safetensors"
    save_file({"other": torch.zeros(1)}, path)
    message = f"the tensor {names[0]}, which model.safetensors.index.json names, is missing"
    assert refused() == f"heedful: {path}: {message}{AGAIN}"


def test_an_index_that_names_a_file_elsewhere(model, refused):
    (model / "model.safetensors").unlink()
    weight_map = {"a": "../other.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    path = model / "../other.safetensors"
    message = "a shard that model.safetensors.index.json names is missing"
    assert refused() == f"heedful: {path}: {message}{AGAIN}"


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickled_weights_never_opened(model, refused, tmp_path):
    (model / "model.safetensors").unlink()
    trap = model / "trapped"
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(trap)))
    assert refused() == (
        f"heedful: {model}: the weights are in pytorch_model.bin, which can run code when read; it "
        "is never opened\n  convert them where you trust them: load the model with transformers "
        "and call save_pretrained(FOLDER)\n"
    )
    assert not trap.exists()


def test_no_weights(model, refused):
    (model / "model.safetensors").unlink()
    assert refused() == f"heedful: {model}: has no model.safetensors{AGAIN}"


def test_a_vocabulary_of_another_size(model, refused):
    path = model / "vocab.json"
    vocabulary = json.loads(path.read_text())
    size = len(vocabulary)
    path.write_text(json.dumps(dict(list(vocabulary.items())[:-1])))
    message = f"has {size - 1} tokens, but the vocab_size of config.json is {size}"
    assert refused() == f"heedful: {path}: {message}{AGAIN}"


def test_a_table_of_another_size(model, refused):
    size = len(json.loads((model / "vocab.json").read_text()))
    change_tensors(model, lambda tensors: tensors | {"model.shared.weight": torch.zeros(7, 16)})
    assert refused() == (
        f"heedful: {model}: the tensor model.encoder.embed_tokens.weight has shape (7, 16), but "
        f"its config.json needs ({size}, 16){REWRITE}"
    )


def test_a_missing_tensor(model, refused):
    name = "model.decoder.layers.1.encoder_attn.q_proj.weight"
    change_tensors(model, lambda tensors: {key: tensors[key] for key in tensors if key != name})
    assert refused() == f"heedful: {model}: the tensor {name} is missing{REWRITE}"


def test_a_tensor_of_another_shape(model, refused):
    name = "model.encoder.layers.0.fc1.weight"
    change_tensors(model, lambda tensors: tensors | {name: torch.zeros(3, 16)})
    message = f"the tensor {name} has shape (3, 16), but its config.json needs (24, 16)"
    assert refused() == f"heedful: {model}: {message}{REWRITE}"


def test_a_tensor_of_no_known_part(model, refused):
    name = "model.encoder.layers.0.adapter.weight"
    change_tensors(model, lambda tensors: tensors | {name: torch.zeros(2)})
    message = f"the tensor {name} is of no known part of the model"
    assert refused() == f"heedful: {model}: {message}{REWRITE}"


def test_another_model_type(model, refused):
    change_config(model, model_type="t5")
    err = refused()
    path = model / "config.json"
    start = f"heedful: {path}: no importer for model_type 't5'\n  these can be imported: "
    assert err.startswith(start)
    assert "marian" in err


def test_another_architecture(model, refused):
    change_config(model, architectures=["MarianForCausalLM"])
    assert refused() == (
        f"heedful: {model / 'config.json'}: the architecture is MarianForCausalLM, which cannot be "
        "imported\n  these can be imported from this model_type: MarianMTModel\n"
    )


def test_an_unknown_activation(model, refused):
    change_config(model, activation_function="mish")
    assert refused() == (
        f"heedful: {model / 'config.json'}: activation_function is 'mish', which is not known "
        "here\n  these are: relu, gelu, gelu_new, gelu_pytorch_tanh, swish, silu\n"
    )


def test_a_setting_of_another_type(model, refused):
    change_config(model, d_model="large")
    message = "d_model must be an integer, but is 'large'"
    assert refused() == f"heedful: {model / 'config.json'}: {message}{AGAIN}"


def test_a_config_that_is_not_json(model, refused):
    (model / "config.json").write_text("{")
    assert refused() == f"heedful: {model / 'config.json'}: missing, or not JSON{AGAIN}"


def test_a_broken_sentencepiece_model(model, refused):
    (model / "target.spm").write_bytes(b"broken")
    message = "missing, or not a SentencePiece model"
    assert refused() == f"heedful: {model / 'target.spm'}: {message}{AGAIN}"


def test_positions_that_are_no_sinusoids(model, refused):
    name = "model.encoder.embed_positions.weight"
    change_tensors(model, lambda tensors: tensors | {name: torch.ones_like(tensors[name])})
    assert refused() == (
        f"heedful: {model}: the position tables are neither all sines before all cosines nor "
        "interleaved\n  Marian models have sinusoids\n"
    )


def test_generation_settings_that_searches_do_not_have(model, refused):
    path = model / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"repetition_penalty": 1.5}))
    assert refused() == (
        f"heedful: {path}: repetition_penalty is 1.5, which searches here do not have\n"
        "  remove it, and set it when decoding\n"
    )


def test_a_folder_without_a_model(call, tmp_path):
    (tmp_path / "model").mkdir()
    ended = call("import", tmp_path / "model", "--run", tmp_path / "run", "-q")
    start = f"heedful: {tmp_path / 'model'}: not a model that can be imported\n  these can: "
    assert ended.code == 2
    assert ended.err.startswith(f"{start}Hugging Face folders (config.json and model.safetensors)")


def test_no_such_model(call, tmp_path):
    ended = call("import", tmp_path / "none", "--run", tmp_path / "run", "-q")
    expected = f"heedful: {tmp_path / 'none'}: no such file or folder\n  name a model to import\n"
    assert (ended.code, ended.err) == (2, expected)


def test_a_run_folder_that_is_not_empty(capsys, monkeypatch, exported, run):
    ended = heedful(capsys, monkeypatch, "import", exported, "--run", run)
    message = "the folder exists and is not empty\n  name another folder with --run\n"
    assert (ended.code, ended.err) == (2, f"heedful: {run}: {message}")


def test_an_export_that_was_trained_further(run, model, refused):
    """Its biases, which the run does not have, are not zero any more."""
    shutil.rmtree(model)
    model.mkdir()
    EXPORTER.write(load_run(run), model)
    name = "model.encoder.layers.0.self_attn.q_proj.bias"
    change_tensors(model, lambda tensors: tensors | {name: torch.ones(16)})
    assert refused() == (
        f"heedful: {model}: the tensor {name} was changed after the export: a bias that the run "
        "does not have is not zero\n  remove heedful.yaml from it, to import it with the files of "
        "transformers\n"
    )


# ----- export


def test_export_without_the_package(call, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    ended = call("export", run, "--to", "hf", "--out", tmp_path / "out", "-q")
    hint = "install it with: pip install 'heedful[hf]'"
    expected = f"heedful: --to hf: needs the package transformers\n  {hint}\n"
    assert (ended.code, ended.err) == (2, expected)


def test_an_unknown_format(call, run, tmp_path):
    ended = call("export", run, "--to", "onx", "--out", tmp_path / "out", "-q")
    assert (ended.code, ended.err) == (
        2,
        "heedful: --to: no format is called 'onx'; did you mean 'onnx'?\n"
        "  choose from: argos, ct2, hf, onnx, page, safetensors, torch\n",
    )


UNSUPPORTED = {
    "model.encoder.norm must be 'layer', with norm_order 'post'": {"norm_order": "pre"},
    "model.encoder.norm_eps must be 1e-05": {"norm_eps": 1e-6},
    "model.encoder.attention.score must be 'scaled-dot'": {
        "attention": {"score": {"type": "dot"}, "multi_head": {"num_heads": 2}}
    },
    "model.encoder.feed_forward must be plain, with a bias and without a gate": {
        "feed_forward": [{"intermediate_size": 8, "gated": True}]
    },
    "model.encoder.positional_encoding must be sinusoidal or learned": {
        "positional_encoding": None,
    },
    "embedding_norm must be true with learned positions (BART), false with sinusoidal ones "
    "(Marian)": {"embedding_norm": True},
}


@pytest.mark.parametrize(("reason", "settings"), UNSUPPORTED.items(), ids=[*UNSUPPORTED])
def test_a_run_that_transformers_cannot_hold(call, tmp_path_factory, tmp_path, reason, settings):
    folder = tmp_path_factory.mktemp("runs") / "run"
    recipe = transformer_settings(**TRANSFORMER | settings)
    write_random_run(folder, recipe, SOURCE_TEXTS, TARGET_TEXTS, seed=0)
    ended = call("export", folder, "--to", "hf", "--out", tmp_path / "out", "-q")
    message = f"a Hugging Face folder cannot hold this run: {reason}"
    assert (ended.code, ended.err) == (2, f"heedful: {folder}: {message}\n  nothing was written\n")

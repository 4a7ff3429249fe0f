"""Compressed weights: what is stored, how much is lost, and that runs load it."""

import shutil
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.errors import RunError
from heedful.experiment.compression import compress_run
from heedful.runs import Run
from heedful.storage.compression import compress_weights, decompress_weights
from heedful.storage.state_dict import read_weights, save_weights
from tests.commands import heedful as call
from tests.golden.test_golden_runs import GOLDEN, each_run

BITS = {"int8": 8, "int4": 4}
TRANSLATOR = GOLDEN / "0.1.0" / "translation-recurrent"


def round_trip(weights, precision):
    tensors, metadata = compress_weights(weights, precision)
    return decompress_weights(tensors, metadata or {})


@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**31), st.sampled_from(["int8", "int4"])
)
@pytest.mark.wide
def test_rows_are_rounded_to_the_nearest_multiple_of_scale(rows, columns, seed, precision):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    tensors, metadata = compress_weights({"w": weight}, precision)
    scales = tensors["w.scale"].float().unsqueeze(-1)
    restored = decompress_weights(tensors, metadata)["w"]
    multiples = restored / scales
    torch.testing.assert_close(multiples, multiples.round())
    limit = 2 ** (BITS[precision] - 1) - 1
    is_clipped = multiples.abs() > limit - 0.5
    assert ((restored - weight).abs() <= 0.501 * scales)[~is_clipped].all()
    assert multiples.abs().max() <= limit + 1e-3


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_scales_lose_no_more_than_those_of_the_largest_values(precision):
    weight = torch.randn(64, 33, generator=torch.Generator().manual_seed(0))
    scales = weight.abs().amax(dim=1, keepdim=True) / (2 ** (BITS[precision] - 1) - 1)
    plain = ((weight / scales).round() * scales - weight).square().sum()
    assert (round_trip({"w": weight}, precision)["w"] - weight).square().sum() < 1.01 * plain


@pytest.mark.parametrize("precision", ["fp16", "int8", "int4"])
def test_other_tensors_keep_what_they_hold(precision):
    weights = {
        "zeros": torch.zeros(3, 5),
        "kernel": torch.randn(4, 3, 2),
        "bias": torch.tensor([0.5, -2.0]),
        "large": torch.tensor([1e6]),
        "count": torch.tensor(7),
        "ids": torch.arange(6).view(2, 3),
    }
    restored = round_trip(weights, precision)
    assert {name: tensor.shape for name, tensor in restored.items()} == {
        name: tensor.shape for name, tensor in weights.items()
    }
    for name in weights.keys() - {"kernel"}:
        torch.testing.assert_close(restored[name], weights[name], rtol=0, atol=0, check_dtype=False)


def test_full_precision_is_the_file_of_before(tmp_path):
    weights = {"w": torch.randn(3, 2)}
    tensors, metadata = compress_weights(weights, "fp32")
    save_weights(tensors, tmp_path / "compressed", metadata)
    save_weights(weights, tmp_path / "plain")
    assert (tmp_path / "compressed").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize(("precision", "share"), [("fp16", 0.5), ("int8", 0.25), ("int4", 0.125)])
def test_file_has_the_bytes_of_the_precision(tmp_path, precision, share):
    weights = {"w": torch.randn(512, 512)}
    for name in ("fp32", precision):
        save_weights(*compress_weights(weights, name)[:1], tmp_path / name)
    sizes = [(tmp_path / name).stat().st_size for name in ("fp32", precision)]
    assert sizes[1] < (share + 0.01) * sizes[0]


@pytest.mark.parametrize("precision", ["fp16", "int8", "int4"])
def test_compressed_run_translates(tmp_path, precision):
    sizes = compress_run(TRANSLATOR, tmp_path / "small", precision)
    assert sizes.before == Run(TRANSLATOR).weights_file.stat().st_size
    assert sizes.after == Run(tmp_path / "small").weights_file.stat().st_size < sizes.before
    heedful.load(tmp_path / "small", device="cpu").translate("a b")


@each_run
def test_compressed_run_of_each_task_has_the_rounded_weights(golden, tmp_path):
    compress_run(golden, tmp_path / "small", "int8")
    expected = round_trip(read_weights(Run(golden).weights_file), "int8")
    loaded = heedful.load(tmp_path / "small", device="cpu").models
    actual = dict(chain.from_iterable(model.state_dict().items() for model in loaded.values()))
    common = expected.keys() & actual.keys()
    assert common
    for name in common:
        torch.testing.assert_close(actual[name], expected[name], check_dtype=False)


def test_existing_folder_is_rejected(tmp_path):
    with pytest.raises(RunError, match="already exists"):
        compress_run(TRANSLATOR, tmp_path, "int8")


def test_command_prints_bytes_and_scores(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(GOLDEN / "inputs")
    ended = call(capsys, monkeypatch, "compress", TRANSLATOR, "--run", tmp_path / "small")
    assert ended.code == 0, ended.err
    first, *scores = ended.out.splitlines()
    assert first.startswith(f"{tmp_path / 'small'}: ")
    assert "MB before" in first
    assert any(line.startswith("BLEU ") and " -> " in line for line in scores), ended.out


def test_command_names_the_next_one_without_a_test_set(tmp_path, capsys, monkeypatch):
    run = shutil.copytree(TRANSLATOR, tmp_path / "run")
    recipe = Run(run).read_recipe()
    data = recipe.data.model_copy(update={"test": None})
    Run(run).replace_recipe(recipe.model_copy(update={"data": data}))
    ended = call(capsys, monkeypatch, "compress", run, "--run", tmp_path / "small", "--to", "fp16")
    assert ended.code == 0, ended.err
    assert f"evaluate {tmp_path / 'small'} --baseline {run}" in ended.out

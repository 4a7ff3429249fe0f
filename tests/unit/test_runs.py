"""Run folders, and loading them: devices, ensembles and shallow fusion."""

import json

import numpy as np
import pytest
import torch

import heedful
from heedful.errors import ConfigError, RunError
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.runs import Run, load, resolve_device
from tests.commands import write_random_run
from tests.shape_checking import unchecked

TEXTS = ["the dog is in the garden", "a cat sees the dog", "the cat, the dog"]
SHARED = {"type": "shared", "tokenizer": {"type": "word"}}
SMALL = {"embedding_size": 8, "hidden_size": 8}
MODELS = {
    "translator": {
        "encoder": {"type": "recurrent", **SMALL},
        "decoder": {"type": "recurrent", **SMALL, "attention": {"score": {"type": "bilinear"}}},
    },
    "language-model": {
        "type": "language-model",
        "embedding_size": 8,
        "backbone": {"hidden_size": 8},
    },
    "masked-language-model": {
        "type": "masked-language-model",
        "encoder": {"type": "recurrent", **SMALL},
        "tie_embeddings": False,
    },
}


def test_manifest_lists_config_tokenizers_and_weights(trained):
    manifest = json.loads((trained / "manifest.json").read_text())
    assert set(manifest["files"]) == {
        "config.yaml",
        "tokenizers/source/vocabulary.json",
        "tokenizers/target/vocabulary.json",
        "weights.safetensors",
    }
    assert manifest["format"] == 2
    assert manifest["torch"] == torch.__version__
    assert manifest["threads"] == torch.get_num_threads()


def test_overrides_change_decoding_settings(trained):
    translator = load(trained, settings=["decoding.beam_size=2", "decoding.max_length_offset=1"])
    assert translator.decoding.beam_size == 2
    assert translator.decoding.max_source_length == 40


def test_truncated_metrics_end_at_the_resumed_step(tmp_path):
    run = Run(tmp_path)
    for step in (1, 10, 20):
        run.append_metrics({"type": "training", "step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"type": "training", "st')
    run.truncate_logs_after(10, pytest.fail)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 10]


@pytest.mark.parametrize("flip", [0x80, 0x01])
def test_truncated_metrics_keep_every_undamaged_line(tmp_path, flip):
    """Whichever byte of the second line changes, the first and the third survive."""
    run, path, messages = Run(tmp_path), tmp_path / "metrics.jsonl", list[str]()
    for step in (1, 2, 3, 4):
        run.append_metrics({"step": step, "loss": 0.5})
    lines = path.read_bytes().splitlines(keepends=True)
    for index in range(len(lines[1]) - 1):
        damaged = bytearray(lines[1])
        damaged[index] ^= flip
        path.write_bytes(lines[0] + damaged + lines[2] + lines[3] + lines[3][:5])
        run.truncate_logs_after(3, messages.append)
        kept = path.read_bytes().splitlines(keepends=True)
        assert [kept[0], kept[-1]] == [lines[0], lines[2]]
        assert all(json.loads(line)["step"] <= 3 for line in kept)
    if flip == 0x80:
        assert messages == [f"{path}: damaged lines removed: 1"] * (len(lines[1]) - 1)


def test_numbers_and_nesting_at_the_edge_are_damage(tmp_path):
    path, messages = tmp_path / "samples.jsonl", list[str]()
    huge, deep = '{"step": 1' + 400 * "0" + "}", '{"step": ' + 100_000 * "["
    path.write_text(f'{huge}\n{deep}\n[1]\n{{"step": 1}}\n')
    Run(tmp_path).truncate_logs_after(3, messages.append)
    assert path.read_text() == '{"step": 1}\n'
    assert messages == [f"{path}: damaged lines removed: 3"]


def test_cpu_and_auto_are_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda", "mps"}


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_cuda_then_mps_then_cpu(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert resolve_device("auto") == torch.device(chosen)


def test_mps_is_a_device_on_macs_only(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("mps") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError) as caught:
        resolve_device("mps")
    assert str(caught.value) == (
        "--device: there is no GPU of a Mac that this PyTorch can use\n"
        "  choose cpu, cuda, cuda:1, mps or auto"
    )


@pytest.mark.parametrize("name", ["cud", "cuda:99", "cuda:x", "cpu:1", ""])
def test_a_device_that_is_not_there_is_error_message(name):
    with pytest.raises(ConfigError, match="there is no device called"):
        resolve_device(name)


# ----- ensembles and shallow fusion


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a run of random parameters and returns its folder."""

    def write_run(name, model="translator", *, texts=TEXTS, seed=0, tokenizers=SHARED):
        settings = {"model": MODELS[model], "tokenizers": tokenizers}
        return write_random_run(tmp_path / name, settings, texts, texts, seed=seed)

    with unchecked():
        yield write_run


def texts_of(translator):
    return [each.text for each in translator.translate(TEXTS)]


def test_ensemble_averages_probabilities_of_the_members(write):
    one, other = write("one"), write("other", seed=1)
    joined = load(
        one, ensemble_with=[other], settings=["decoding.ensemble_averaging=probabilities"]
    )
    assert isinstance(joined.model, Ensemble)
    assert joined.model.averaging == "probabilities"
    alone = [load(folder).score([(TEXTS[0], TEXTS[1])])[0] for folder in (one, other)]
    (together,) = joined.score([(TEXTS[0], TEXTS[1])])
    mean = np.log(np.mean([np.exp(each.log_probs) for each in alone], axis=0))
    np.testing.assert_allclose(together.log_probs, mean, atol=1e-5)


def test_ensemble_of_a_run_with_itself_has_the_same_translations(write):
    one = write("one")
    assert texts_of(heedful.load(one, ensemble_with=[one])) == texts_of(heedful.load(one))


def test_shallow_fusion_adds_a_language_model(write, tmp_path, monkeypatch):
    one = write("one")
    write("lm", "language-model", seed=2)
    monkeypatch.chdir(tmp_path)  # its folder is named as seen from here
    said = ["decoding.shallow_fusion.run=lm", "decoding.shallow_fusion.weight=5"]
    fused = load(one, settings=said)
    assert isinstance(fused.model, ShallowFusion)
    assert fused.model.weight == 5
    assert texts_of(fused) != texts_of(load(one))
    silent = load(one, settings=[said[0], "decoding.shallow_fusion.weight=0"])
    assert texts_of(silent) == texts_of(load(one))


def test_shallow_fusion_wraps_an_ensemble(write):
    one, lm = write("one"), write("lm", "language-model")
    made = load(one, ensemble_with=[one], settings=[f"decoding.shallow_fusion.run={lm}"])
    assert isinstance(made.model, ShallowFusion)
    assert isinstance(made.model.model, Ensemble)


def error_message(error, *names, **options):
    with pytest.raises(error) as caught:
        load(*names, **options)
    return str(caught.value)


def test_ensemble_error_names_first_difference_of_vocabularies(write):
    one, other = write("one"), write("other", texts=[TEXTS[0].replace("dog", "hound"), *TEXTS[1:]])
    message = error_message(RunError, one, ensemble_with=[one, other])
    assert message.startswith(f"{other}: its source vocabulary differs: token ")
    assert message.endswith("\n  use runs that were trained with the same tokenizers")


def test_longer_vocabulary_raises(write):
    one, other = write("one"), write("other", texts=[*TEXTS, "the~"])
    assert error_message(RunError, one, ensemble_with=[other]) == (
        f"{other}: its source vocabulary differs: it has 14 tokens, not 13\n"
        "  use runs that were trained with the same tokenizers"
    )


def test_other_tokenizer_class_raises(write):
    kinds = {"source": {"type": "word"}, "target": {"type": "character"}}
    one, other = write("one"), write("other", tokenizers={"type": "separate", **kinds})
    assert error_message(RunError, one, ensemble_with=[other]) == (
        f"{other}: its target vocabulary differs: the tokenizer is CharacterTokenizer, "
        "not WordTokenizer\n  use runs that were trained with the same tokenizers"
    )


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_language_model_cannot_join_an_ensemble(write, kind):
    one, other = write("one"), write("other", kind)
    assert error_message(RunError, one, ensemble_with=[other]) == (
        f"{other}: this run is a {kind}, not a translation model\n  leave it out"
    )
    assert error_message(ConfigError, other, ensemble_with=[one]) == (
        f"ensemble_with: a {kind} cannot be combined with {one}\n"
        "  only translation models, classifiers and taggers form ensembles: give one run"
    )


@pytest.mark.parametrize(
    ("model", "kind"),
    [("translator", "encoder-decoder"), ("masked-language-model", "masked-language-model")],
)
def test_shallow_fusion_needs_a_language_model(write, model, kind):
    one, other = write("one"), write("other", model)
    message = error_message(ConfigError, one, settings=[f"decoding.shallow_fusion.run={other}"])
    assert message == (
        f"decoding.shallow_fusion.run: the run {other} is a {kind}, not a language "
        "model\n  name a run whose model has `type: language-model`"
    )


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_language_model_has_no_shallow_fusion(write, kind):
    one = write("one", kind)
    assert error_message(ConfigError, one, settings=[f"decoding.shallow_fusion.run={one}"]) == (
        f"decoding.shallow_fusion.run: works only with translation models, but this is a {kind}\n"
        "  remove decoding.shallow_fusion"
    )


def test_a_language_model_of_other_tokens_is_error_message(write):
    one, lm = write("one"), write("lm", "language-model", texts=[*TEXTS, "the~"])
    assert error_message(ConfigError, one, settings=[f"decoding.shallow_fusion.run={lm}"]) == (
        f"decoding.shallow_fusion.run: the vocabulary of {lm} differs from that of the target "
        "texts: it has 14 tokens, not 13\n  train it on target texts with their tokenizer"
    )


def test_missing_ensemble_member_is_named(write, tmp_path):
    one = write("one")
    assert error_message(RunError, one, ensemble_with=[tmp_path / "two"]).startswith(
        f"{tmp_path / 'two'}: "
    )

"""Classifiers with the states of another run as features: what is copied, frozen and refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import ConfigError, HeedfulError, RunError
from heedful.experiment import train
from heedful.runs import Run
from tests.labeled_texts import labeled_lines

pytestmark = pytest.mark.wide

TEXTS = [line.split("\t")[1] for line in labeled_lines(40)]
LM = {
    "tokenizers": {"type": "shared", "tokenizer": {"type": "word", "min_frequency": 3}},
    "data": {"lm_batching": {"batch_size": 2, "context_length": 8}},
    "model": {
        "type": "language-model",
        "embedding_size": 6,
        "backbone": {"hidden_size": 6, "num_layers": 2},
    },
    "training": {"max_steps": 2, "validate_every": 2},
}
CLASSIFIER = {
    "tokenizers": {"type": "separate", "source": {"type": "word"}, "target": {"type": "label"}},
    "model": {"type": "text-classifier", "dropout": 0},
    "training": {
        "max_steps": 4,
        "validate_every": 2,
        "metric_for_best_model": "accuracy",
        "batching": {"max_tokens": 64},
        "optimizer": {"learning_rate": 1e-2},
        "lr_scheduler": {"type": "constant"},
    },
}


@pytest.fixture(scope="module")
def lm_run(tmp_path_factory):
    """Train a small language model; return its run folder."""
    folder = tmp_path_factory.mktemp("lm")
    (folder / "text.txt").write_text("\n".join(TEXTS) + "\n")
    train(LM, folder / "run", text=folder / "text.txt", device="cpu")
    return folder / "run"


@pytest.fixture
def train_classifier(lm_run, tmp_path):
    """Return a function that trains a classifier into tmp_path / NAME."""
    initial = tmp_path / "lm"
    shutil.copytree(lm_run, initial)
    (tmp_path / "labeled.tsv").write_text("\n".join(labeled_lines(40)) + "\n")

    def run(name, encoder=None, **settings):
        encoder = {"type": "pretrained", "path": str(initial), **(encoder or {})}
        changes = {"model.encoder": encoder, **settings}
        labeled = tmp_path / "labeled.tsv"
        train(CLASSIFIER, tmp_path / name, labeled=labeled, settings=changes, device="cpu")
        return tmp_path / name

    return run


def invoke(*arguments):
    """Run a command that succeeds."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output


def weights_of(run):
    return load_file(run / "weights.safetensors")


def copied_weights(run, prefix="encoder.features.model."):
    weights = weights_of(run)
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }


def test_frozen_parameters_stay_bit_equal_and_the_others_change(train_classifier, tmp_path):
    short = train_classifier("short", {"pool": "scalar-mix"}, **{"training.max_steps": 1})
    run = train_classifier("run", {"pool": "scalar-mix"})
    initial = weights_of(tmp_path / "lm")
    copied = copied_weights(run)
    assert copied.keys() == {name for name in initial if not name.startswith("lm_head")}
    assert all(torch.equal(weight, initial[name]) for name, weight in copied.items())
    first, last = weights_of(short), weights_of(run)
    trained = {name for name in last if not name.startswith("encoder.features.model.")}
    assert {"encoder.features.mix.weights", "encoder.features.mix.gamma"} < trained
    assert not any(torch.equal(first[name], last[name]) for name in trained)


def test_fine_tuned_parameters_change(train_classifier, tmp_path):
    run = train_classifier("run", {"tune": "all"}, **{"training.metric_for_best_model": "loss"})
    initial, copied = weights_of(tmp_path / "lm"), copied_weights(run)
    assert not any(torch.equal(weight, initial[name]) for name, weight in copied.items())
    close = [torch.allclose(weight, initial[name], atol=0.1) for name, weight in copied.items()]
    assert all(close)  # four steps from where they were


def test_encoder_above_the_features_is_trained(train_classifier, tmp_path):
    upper = {"type": "recurrent", "embedding_size": 4, "hidden_size": 4}
    run = train_classifier("run", {"encoder": upper})
    copied = copied_weights(run, "encoder.embedding.embedding.features.model.")
    initial = weights_of(tmp_path / "lm")
    assert all(torch.equal(weight, initial[name]) for name, weight in copied.items())
    assert copied
    assert heedful.load(run, device="cpu").classify(["the cat"])[0].text


def test_tokenizer_is_that_of_the_initial_run(train_classifier, tmp_path):
    run = train_classifier("run")
    vocabularies = [
        tmp_path / "lm" / "tokenizers" / "shared" / "vocabulary.json",
        run / "tokenizers" / "source" / "vocabulary.json",
    ]
    assert vocabularies[0].read_bytes() == vocabularies[1].read_bytes()
    assert Run(run).read_recipe().tokenizers.source.min_frequency == 3
    labels = json.loads((run / "tokenizers" / "target" / "vocabulary.json").read_text())
    assert "animal" in str(labels)


def test_run_is_complete_without_the_initial_run(train_classifier, tmp_path):
    whole = train_classifier("whole", {"tune": "all"})
    part = train_classifier("part", {"tune": "all"}, **{"training.max_steps": 2})
    shutil.rmtree(tmp_path / "lm")
    part = train_classifier("part", {"tune": "all"})
    expected = weights_of(whole)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(part).items())
    single = heedful.load(part, device="cpu").classify(TEXTS[:3])
    ensemble = heedful.load(part, device="cpu", ensemble_with=[whole]).classify(TEXTS[:3])
    assert [result.text for result in ensemble] == [result.text for result in single]
    invoke("report", part)


def test_initial_run_must_stay_the_same_on_resume(train_classifier, tmp_path):
    train_classifier("run")
    shutil.copytree(tmp_path / "lm", tmp_path / "other")
    with pytest.raises(RunError) as error:
        train_classifier("run", {"path": str(tmp_path / "other")})
    assert "this run was started with model.encoder.path=" in str(error.value)


def test_missing_or_incomplete_initial_run_raises_before_writing(train_classifier, tmp_path):
    with pytest.raises(HeedfulError, match="name a folder written by `heedful train`"):
        train_classifier("run", {"path": str(tmp_path / "none")})
    (tmp_path / "lm" / "weights.safetensors").unlink()
    with pytest.raises(HeedfulError, match=r"weights\.safetensors"):
        train_classifier("run")
    assert not (tmp_path / "run").exists()


def test_incompatible_initial_run_raises_before_writing(train_classifier, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.encoder\.pool: that model"):
        train_classifier("run", {"pool": "scalar-mix", "path": _shallow_run(tmp_path)})
    assert not (tmp_path / "run").exists()


def _shallow_run(folder):
    """Train a language model whose only layer is of another size than its embeddings."""
    (folder / "text.txt").write_text("\n".join(TEXTS) + "\n")
    settings = {"model.backbone": {"hidden_size": 4, "num_layers": 1}}
    train(LM, folder / "shallow", text=folder / "text.txt", settings=settings, device="cpu")
    return str(folder / "shallow")


def test_prepared_tokens_have_the_tokenizer_of_the_initial_run(train_classifier, tmp_path):
    recipe = tmp_path / "classifier.yaml"
    encoder = {"type": "pretrained", "path": str(tmp_path / "lm")}
    model = {**CLASSIFIER["model"], "encoder": encoder}
    recipe.write_text(json.dumps({**CLASSIFIER, "model": model}))
    labeled, tokens = tmp_path / "labeled.tsv", tmp_path / "tokens"
    sizes = ("--num-workers", 1, "--shard-size", 16)
    invoke("prepare", recipe, "--labeled", labeled, "-o", tokens, *sizes)
    assert len(list(tokens.glob("shard*"))) > 1
    prepared = {"data.train": {"type": "prepared", "path": str(tokens)}}
    train(recipe, tmp_path / "run", settings=prepared, device="cpu")
    initial = weights_of(tmp_path / "lm")
    assert all(
        torch.equal(w, initial[name]) for name, w in copied_weights(tmp_path / "run").items()
    )
    vocabulary = tmp_path / "lm" / "tokenizers" / "shared" / "vocabulary.json"
    copied = tokens / "tokenizers" / "source" / "vocabulary.json"
    assert copied.read_bytes() == vocabulary.read_bytes()


def test_average_of_checkpoints_keeps_frozen_parameters(train_classifier, tmp_path):
    run, averaged = train_classifier("run", {"pool": "scalar-mix"}), tmp_path / "mean"
    invoke("average", run, "--num-last", 2, "-o", averaged)
    initial, weights = weights_of(tmp_path / "lm"), weights_of(averaged)
    assert all(torch.equal(w, initial[name]) for name, w in copied_weights(averaged).items())
    one, other = (load_file(path / "model.safetensors") for path in run.glob("checkpoints/step-*"))
    mean = (one["encoder.features.mix.weights"] + other["encoder.features.mix.weights"]) / 2
    torch.testing.assert_close(weights["encoder.features.mix.weights"], mean)
    assert heedful.load(averaged, device="cpu").classify(["the cat"])[0].text

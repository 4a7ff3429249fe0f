"""The full text of errors about text classification."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from tests.commands import heedful

CLASSIFIER = {"type": "text-classifier"}
LABELED = {"type": "separate", "source": {"type": "word"}, "target": {"type": "label"}}


def message(**settings):
    with pytest.raises(ConfigError) as caught:
        validate_settings(Recipe, {"model": CLASSIFIER, **settings}, location="test")
    return str(caught.value)


@pytest.mark.parametrize(
    "tokenizers", [{"type": "shared"}, {"type": "separate", "target": {"type": "word"}}]
)
def test_targets_must_be_labels(tokenizers):
    assert message(tokenizers=tokenizers) == (
        "tokenizers.target.type: the target texts of a text-classifier are labels\n"
        "  set `tokenizers: {type: separate, source: {type: word}, target: {type: label}}`"
    )


@pytest.mark.parametrize(
    ("setting", "value"), [("objective", "minimum-risk"), ("scheduled_sampling", "linear")]
)
def test_training_settings_that_need_a_decoder(setting, value):
    assert message(tokenizers=LABELED, training={setting: {"type": value}}) == (
        f"training.{setting}.type: '{value}' needs a decoder, and a text-classifier has none\n"
        f"  remove training.{setting}"
    )


def test_metric_of_another_task():
    assert message(tokenizers=LABELED, training={"metric_for_best_model": "bleu"}) == (
        "training.metric_for_best_model: the model (type: text-classifier) has no metric called "
        "'bleu'\n  choose from: accuracy, loss, macro-f1"
    )


def test_one_label_is_too_few(capsys, monkeypatch, tmp_path):
    (tmp_path / "labeled.tsv").write_text("yes\ta b\nyes\tc d\nyes\te\n")
    ended = heedful(
        capsys,
        monkeypatch,
        *("train", "attention-classifier-small", "--labeled", tmp_path / "labeled.tsv"),
        *("--run", tmp_path / "run"),
    )
    assert ended.code == 2
    assert ended.err.endswith(
        "heedful: data.train: the training data has 1 label; a classifier needs two or more\n"
        "  look at the column of labels\n"
    )


def test_no_labeled_texts(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ended = heedful(capsys, monkeypatch, "train", "attention-classifier-small")
    assert (ended.code, ended.err) == (
        2,
        "heedful: data.train: the recipe names no training data\n  give --labeled FILE\n",
    )


def test_classify_with_another_run(capsys, monkeypatch, trained):
    ended = heedful(capsys, monkeypatch, "classify", trained, stdin="a\n")
    assert (ended.code, ended.err) == (
        2,
        f"heedful: {trained}: this run translates\n  use `heedful translate {trained} FILE`\n",
    )

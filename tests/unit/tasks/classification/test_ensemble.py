"""Ensembles of text classifiers: the mean of probabilities, attention weights, commands, errors."""

import json

import numpy as np
import pytest

import heedful as package
from heedful.errors import RunError
from tests.commands import heedful, write_random_run
from tests.shape_checking import unchecked

TEXTS = ["a b c", "c a", "b d b d"]
LABELS = ["x", "y", "y", "z", "z", "z"]


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a run of random parameters and returns its folder."""

    def write_run(
        name, *, texts=TEXTS, labels=LABELS, seed=0, tokenizer="word", pooling="attention"
    ):
        encoder = {"type": "recurrent", "embedding_size": 8, "hidden_size": 8}
        source, target = {"type": tokenizer}, {"type": "label"}
        settings = {
            "model": {"type": "text-classifier", "encoder": encoder, "pooling": pooling},
            "tokenizers": {"type": "separate", "source": source, "target": target},
        }
        return write_random_run(tmp_path / name, settings, texts, labels, seed=seed)

    with unchecked():
        yield write_run


def classify(*folders):
    first, *others = folders
    return package.load(first, ensemble_with=others).classify(TEXTS)


def test_ensemble_probabilities_are_the_mean_of_the_runs(write):
    # The labels of the second run have another order, as their frequencies differ.
    runs = write("one"), write("two", seed=1, labels=["x", "x", "x", "y", "y", "z"]), write("three")
    assert package.load(runs[0]).labels != package.load(runs[1]).labels
    alone = [classify(run) for run in runs]
    for index, result in enumerate(classify(*runs)):
        assert set(result.probabilities) == {"x", "y", "z"}
        for label, probability in result.probabilities.items():
            singles = [results[index].probabilities[label] for results in alone]
            assert probability == pytest.approx(sum(singles) / 3, abs=1e-7)
        ranked = list(result.probabilities.values())
        assert ranked == sorted(ranked, reverse=True)
        assert result.text == next(iter(result.probabilities))


def test_ensemble_of_a_run_with_itself_equals_the_run(write):
    one = write("one")
    for alone, together in zip(classify(one), classify(one, one), strict=True):
        assert together.to_json() == alone.to_json()


def test_order_of_runs_does_not_matter(write):
    one, two = write("one"), write("two", seed=1)
    for result, swapped in zip(classify(one, two), classify(two, one), strict=True):
        assert result.probabilities == swapped.probabilities
        np.testing.assert_array_equal(result.weights, swapped.weights)


def test_weights_averaged_over_runs_with_equal_tokens(write):
    one, two = write("one"), write("two", seed=1, texts=["a b c"])  # "d" is unknown to the second
    for result, *alone in zip(classify(one, two), classify(one), classify(two), strict=True):
        assert result.source_tokens == alone[0].source_tokens
        mean = (alone[0].weights + alone[1].weights) / 2
        np.testing.assert_allclose(result.weights, mean, rtol=1e-6)


@pytest.mark.parametrize("other", [{"tokenizer": "character"}, {"pooling": "mean"}])
def test_runs_with_other_tokens_or_without_weights_do_not_change_the_weights(write, other):
    one, two = write("one"), write("two", seed=1, **other)
    for result, alone in zip(classify(one, two), classify(one), strict=True):
        np.testing.assert_array_equal(result.weights, alone.weights)
        assert result.probabilities != alone.probabilities


def test_ensemble_without_attention_has_no_weights(write):
    one = write("one", pooling="mean")
    assert all(result.weights is None for result in classify(one, one))


def test_commands_use_the_ensemble(write, tmp_path, capsys, monkeypatch):
    one, two, three = write("one"), write("two", seed=1), write("three", seed=2)
    members = (one, "--ensemble-with", two, "--ensemble-with", three)
    stdin = "".join(f"{text}\n" for text in TEXTS)
    expected = [result.to_json() for result in classify(one, two, three)]
    ended = heedful(capsys, monkeypatch, "classify", *members, "--json", stdin=stdin)
    assert [json.loads(line) for line in ended.out.splitlines()] == expected
    lines = [f"{result['label']}\t{result['source']}\n" for result in expected]
    (tmp_path / "test.tsv").write_text("".join(lines))
    ended = heedful(capsys, monkeypatch, "evaluate", *members, tmp_path / "test.tsv")
    assert ended.out.splitlines()[1].split()[:2] == ["accuracy", "100.00"]


def test_baseline_is_not_part_of_the_ensemble(write, tmp_path, capsys, monkeypatch):
    one, two = write("one"), write("two", seed=1, labels=["z", "y", "x", "x"])
    (tmp_path / "test.tsv").write_text("".join(f"{r.text}\t{r.source}\n" for r in classify(one)))
    words = ("evaluate", one, "--ensemble-with", two, tmp_path / "test.tsv", "--baseline", one)
    (accuracy, _) = json.loads(heedful(capsys, monkeypatch, *words, "--json").out)
    assert accuracy["baseline"]["value"] == 100
    outputs = zip(classify(one, two), classify(one), strict=True)
    assert accuracy["value"] == pytest.approx(100 * np.mean([a.text == b.text for a, b in outputs]))
    assert accuracy["value"] < 100


def error_message(*folders):
    with pytest.raises(RunError) as caught:
        classify(*folders)
    return str(caught.value)


def test_runs_with_different_labels_raise(write):
    one, other = write("one"), write("other", labels=["x", "y", "w"])
    assert error_message(one, one, other) == (
        f"{other}: its labels differ from those of {one}: w, z\n  use runs with the same labels"
    )


def test_run_of_another_task_raises(write, trained):
    one = write("one")
    expected = f"{trained}: this run translates, but {one} classifies texts\n  leave it out"
    assert error_message(one, trained) == expected


def test_evaluate_rejects_an_ensemble_without_a_run(tmp_path, capsys, monkeypatch):
    files = ("--outputs", tmp_path / "out", "--target", tmp_path / "target")
    ended = heedful(capsys, monkeypatch, "evaluate", *files, "--ensemble-with", tmp_path / "run")
    assert (ended.code, ended.err) == (
        2,
        "heedful: --ensemble-with: works only with a run\n  name a run, or leave it out\n",
    )

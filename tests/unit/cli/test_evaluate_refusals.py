"""Errors of `heedful evaluate` come before decoding."""

import pytest

from heedful import train
from tests.commands import heedful, write_recipe

FINAL_STATE_DECODER = (
    "{type: recurrent, embedding_size: 8, hidden_size: 8, wiring: {type: final-state}}"
)
NO_ATTENTION = (
    "needs attention weights, and this model has no attention\n"
    "  leave it out, or evaluate a run with attention"
)


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, text in {"out": "0-0\n0-0\n", "ref": "a\nb\n", "gold": "0-0\n0-0\n"}.items():
        (tmp_path / name).write_text(text)

    def run(*words):
        ended = heedful(capsys, monkeypatch, "evaluate", *words)
        assert (ended.code, ended.out) == (2, "")
        return ended.err.removeprefix("heedful: ").removesuffix("\n")

    return run


def test_gold_alignments_without_a_run_are_an_error(call):
    files = "--outputs", "out", "--target", "gold", "--metrics", "aer"
    assert call(*files, "--gold-alignments", "gold") == (
        "--gold-alignments: works only with a run\n"
        "  give alignments as outputs: --outputs LINKS --target GOLD --metrics aer"
    )


def test_gold_alignments_without_aer_are_an_error(call, trained):
    assert call(trained, "--gold-alignments", "gold") == (
        "--gold-alignments: works only with the metric aer\n  add aer to --metrics, or leave it out"
    )


def test_aer_without_gold_alignments_raises(call, trained):
    assert call(trained, "--metrics", "aer") == (
        "--metrics: aer of a run needs gold alignments of the references\n"
        "  add --gold-alignments FILE"
    )


def test_two_files_from_standard_input_are_an_error(call, trained):
    files = "--source", "-", "--target", "ref", "--metrics", "aer"
    assert call(trained, *files, "--gold-alignments", "-").startswith(
        "-: standard input can only be"
    )


def test_perplexity_of_texts_raises(call):
    assert call("--outputs", "ref", "--target", "ref", "--metrics", "perplexity") == (
        "line 1 of the outputs: 'a' is not a number\n"
        "  write one number per token, separated by spaces, or evaluate a run"
    )


def test_attention_metrics_of_a_model_without_attention_are_an_error(call, tmp_path):
    recipe = write_recipe(tmp_path / "blind", steps=2, every=2)
    train(str(recipe), tmp_path / "run", settings=[f"model.decoder={FINAL_STATE_DECODER}"])
    files = "--source", "ref", "--target", "ref", "--gold-alignments", "gold"
    for name in ("aer", "attention-entropy"):
        expected = f"--metrics: {name} {NO_ATTENTION}"
        options = files if name == "aer" else files[:4]
        assert call(tmp_path / "run", *options, "--metrics", name) == expected

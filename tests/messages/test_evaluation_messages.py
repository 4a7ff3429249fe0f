"""The full text of the errors of `heedful evaluate`."""

import pytest

from heedful import train
from heedful.evaluation.registry import ALL_METRICS
from tests.commands import heedful
from tests.language_modeling import write_text_recipe

HINT = "line n of one must belong to line n of the other: look for lost or added lines"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, text in {"out": "a\nb\n", "ref": "a\nb\n", "one": "a\n", "empty": ""}.items():
        (tmp_path / name).write_text(text)

    def run(*words):
        ended = heedful(capsys, monkeypatch, "evaluate", *words)
        assert (ended.code, ended.out) == (2, "")
        return ended.err.removeprefix("heedful: ").removesuffix("\n")

    return run


FILES = "--outputs", "out", "--target", "ref"


def test_missing_run_and_outputs(call):
    assert call() == (
        "RUN: there is nothing to evaluate\n"
        "  name a run, or give files: heedful evaluate --outputs FILE --target FILE"
    )


def test_outputs_together_with_a_run(call):
    assert call("run", *FILES) == (
        "--outputs: given together with a run, which has outputs of its own\n"
        "  leave out one of them; to compare them: --baseline FILE"
    )


def test_outputs_without_references(call):
    assert call("--outputs", "out") == (
        "--outputs: given without --target\n  add --target FILE with the references"
    )


def test_unknown_metric(call):
    assert call(*FILES, "--metrics", "bleu,roug-l") == (
        "--metrics: no metric is called 'roug-l'; did you mean 'rouge-l'?\n"
        f"  choose from: {', '.join(sorted(ALL_METRICS))}"
    )


def test_source_metric_without_sources(call):
    assert call(*FILES, "--metrics", "bleu,novelty-2") == (
        "--metrics: novel 2-grams: the source texts are not known\n  add --source FILE"
    )


def test_files_of_different_lengths(call):
    assert call("--outputs", "one", "--target", "ref") == (
        f"one: 1 line, but 2 lines of references\n  {HINT}"
    )
    assert call(*FILES, "--target", "one") == (f"one: 1 line, but 2 lines of references\n  {HINT}")
    assert call("--outputs", "out", "--target", "one") == (
        f"out: 2 lines, but 1 line of references\n  {HINT}"
    )
    for option in (["--baseline"], ["--source"], ["--group-by", "sentence-type", "--labels"]):
        assert call(*FILES, *option, "one").startswith("one: 1 line, but 2 lines of references")


def test_empty_file(call, trained):
    message = "empty: contains no lines\n  give a file with text in it"
    assert call("--outputs", "out", "--target", "empty") == message
    assert call(trained, "--source", "empty", "--target", "empty") == message


def test_missing_file(call):
    assert call("--outputs", "outt", "--target", "ref") == (
        "outt: no such file; did you mean 'out'?\n  check the path"
    )


def test_standard_input_for_two_files(call):
    assert call("--outputs", "-", "--target", "-") == (
        "-: standard input can only be one of the files\n  name a file for the others"
    )


def test_options_without_effect(call):
    assert call(*FILES, "--training-targets", "ref") == (
        "--training-targets: works only with --group-by word-frequency\n"
        "  add --group-by word-frequency, or leave it out"
    )
    assert call(*FILES, "--labels", "ref", "--group-by", "length") == (
        "--labels: works only with --group-by sentence-type\n"
        "  add --group-by sentence-type, or leave it out"
    )


def test_groups_without_sources_or_training_data(call):
    assert call(*FILES, "--group-by", "length") == (
        "--group-by length: the source texts are not known\n  add --source FILE"
    )
    assert call(*FILES, "--group-by", "sentence-type") == (
        "--group-by sentence-type: the source texts are not known\n"
        "  add --source FILE, or --labels FILE"
    )
    assert call(*FILES, "--group-by", "word-frequency") == (
        "--group-by word-frequency: the training data is not known\n"
        "  add --training-targets FILE with the target texts of training"
    )


def test_baseline_run_without_sources(call, trained):
    assert call(*FILES, "--baseline", trained) == (
        "--baseline: a run needs source texts\n  add --source FILE"
    )


def test_options_of_references_for_a_language_model(call, tmp_path):
    recipe, run = write_text_recipe(tmp_path / "text", steps=2, every=2), tmp_path / "run"
    train(str(recipe), run)
    for option in (
        ["--metrics", "bleu"],
        ["--group-by", "length"],
        ["--confidence"],
        ["--baseline", "out"],
    ):
        assert call(run, "ref", *option) == (
            f"{option[0]}: has no effect: this run is a language model: it continues a text\n"
            "  leave it out"
        )


def test_invalid_links_and_tags(call, tmp_path):
    (tmp_path / "links").write_text("0-0\n1:1\n")
    hint = "write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one"
    assert call("--outputs", "links", "--target", "links", "--metrics", "aer") == (
        f"line 2 of the outputs: '1:1' is not an alignment link\n  {hint}"
    )
    (tmp_path / "links").write_text("0-0\n1-1\n")
    (tmp_path / "gold").write_text("0-0\n1*1\n")
    assert call("--outputs", "links", "--target", "gold", "--metrics", "aer") == (
        f"line 2 of the references: '1*1' is not an alignment link\n  {hint}"
    )
    assert call(*FILES, "--metrics", "span-f1") == (
        "line 1 of the references: 'a' is not a tag\n"
        "  write O, B-TYPE or I-TYPE for each word, separated by spaces"
    )

"""The full text of what a user is told when outputs cannot be measured."""

import pytest

from heedful import train
from heedful.evaluation.registry import METRICS, MODEL_METRICS
from tests.commands import heedful
from tests.language_modeling import write_text_recipe

LOST = "line n of one must belong to line n of the other: look for lost or added lines"


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


def test_nothing_to_measure(call):
    assert call() == (
        "RUN: there is nothing to measure\n"
        "  name a run, or give files: heedful evaluate --outputs FILE --target FILE"
    )


def test_outputs_beside_a_run(call):
    assert call("run", *FILES) == (
        "--outputs: given beside a run, which makes outputs of its own\n"
        "  leave out one of them; to compare them: --baseline FILE"
    )


def test_outputs_without_references(call):
    assert call("--outputs", "out") == (
        "--outputs: given without --target\n  add --target FILE, whose lines are the references"
    )


def test_an_unknown_metric(call):
    assert call(*FILES, "--metrics", "bleu,roug-l") == (
        "--metrics: no metric is called 'roug-l'; did you mean 'rouge-l'?\n"
        f"  choose from: {', '.join(sorted({**METRICS, **MODEL_METRICS}))}"
    )


def test_files_of_unlike_lengths(call):
    assert call("--outputs", "one", "--target", "ref") == (
        f"one: 1 line, but 2 lines of references\n  {LOST}"
    )
    assert call(*FILES, "--target", "one") == (f"one: 1 line, but 2 lines of references\n  {LOST}")
    assert call("--outputs", "out", "--target", "one") == (
        f"out: 2 lines, but 1 line of references\n  {LOST}"
    )
    for option in (["--baseline"], ["--source"], ["--group-by", "kind", "--kinds"]):
        assert call(*FILES, *option, "one").startswith("one: 1 line, but 2 lines of references")


def test_files_without_a_line(call, trained):
    message = "on_empty: holds no lines\n  give a file with text in it"
    assert call("--outputs", "out", "--target", "empty") == message
    assert call(trained, "--source", "empty", "--target", "empty") == message


def test_a_missing_file(call):
    assert call("--outputs", "outt", "--target", "ref") == (
        "outt: no such file; did you mean 'out'?\n  check the path"
    )


def test_standard_input_twice(call):
    assert call("--outputs", "-", "--target", "-") == (
        "-: standard input can only be one of the files\n  name a file for the others"
    )


def test_options_that_would_be_overlooked(call):
    assert call(*FILES, "--train", "ref") == (
        "--train: given without --group-by rare, which counts its words\n  add --group-by rare, or leave it out"
    )
    assert call(*FILES, "--kinds", "ref", "--group-by", "length") == (
        "--kinds: given without --group-by kind, which reads its labels\n  add --group-by kind, or leave it out"
    )


def test_parts_of_a_test_set_that_is_not_known(call):
    assert call(*FILES, "--group-by", "length") == (
        "--group-by length: sources are not known\n  name them: --source FILE"
    )
    assert call(*FILES, "--group-by", "kind") == (
        "--group-by kind: sources are not known\n  name them: --source FILE, or give labels: --kinds FILE"
    )
    assert call(*FILES, "--group-by", "rare") == (
        "--group-by rare: it is not known what was learned from\n"
        "  name the target texts of training: --train FILE"
    )


def test_a_baseline_that_has_nothing_to_translate(call, trained):
    assert call(*FILES, "--baseline", trained) == (
        "--baseline: a run needs texts to translate\n  name them, too: --source FILE"
    )


def test_metrics_of_outputs_for_a_language_model(call, tmp_path):
    recipe, run = write_text_recipe(tmp_path / "text", steps=2, every=2), tmp_path / "run"
    train(str(recipe), run)
    for option in (
        ["--metrics", "bleu"],
        ["--group-by", "length"],
        ["--confidence"],
        ["--baseline", "out"],
    ):
        assert call(run, "ref", *option) == (
            f"{option[0]}: this run is a language model, of which no outputs are measured\n"
            "  leave it out"
        )


def test_links_and_tags_that_cannot_be_read(call, tmp_path):
    (tmp_path / "links").write_text("0-0\n1:1\n")
    remedy = "write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one"
    assert call("--outputs", "links", "--target", "links", "--metrics", "aer") == (
        f"line 2 of the outputs: '1:1' is no link\n  {remedy}"
    )
    (tmp_path / "links").write_text("0-0\n1-1\n")
    (tmp_path / "wanted").write_text("0-0\n1*1\n")
    assert call("--outputs", "links", "--target", "wanted", "--metrics", "aer") == (
        f"line 2 of the references: '1*1' is no link\n  {remedy}"
    )
    assert call(*FILES, "--metrics", "span-f1") == (
        "line 1 of the references: 'a' is no tag\n"
        "  write O, B-TYPE or I-TYPE for each word, parted by spaces"
    )

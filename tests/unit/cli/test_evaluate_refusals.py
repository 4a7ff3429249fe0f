"""What cannot be measured is refused, by name, before a model is asked for anything."""

import pytest

from heedful import train
from tests.commands import heedful, write_recipe

BLIND = "{type: recurrent, embedding_size: 8, hidden_size: 8, wiring: {type: final-state}}"
LOOKS_NOWHERE = (
    "is told by attention, and this run looks nowhere\n"
    "  leave it out, or measure a run that looks at its sources"
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


def test_links_that_people_made_without_a_run(call):
    files = "--outputs", "out", "--target", "gold", "--metrics", "aer"
    assert call(*files, "--gold-alignments", "gold") == (
        "--gold-alignments: given without a run, whose links would be held against them\n"
        "  give links as outputs: --outputs LINKS --target GOLD --metrics aer"
    )


def test_links_that_people_made_which_no_metric_reads(call, trained):
    assert call(trained, "--gold-alignments", "gold") == (
        "--gold-alignments: given without the metric that reads them\n"
        "  add aer to --metrics, or leave it out"
    )


def test_links_of_a_run_without_any_to_hold_them_against(call, trained):
    assert call(trained, "--metrics", "aer") == (
        "--metrics: aer of a run needs links that people made between sources and references\n"
        "  name them: --gold-alignments FILE"
    )


def test_links_from_a_pipe_that_something_else_is_read_from(call, trained):
    files = "--source", "-", "--target", "ref", "--metrics", "aer"
    assert call(trained, *files, "--gold-alignments", "-").startswith(
        "-: standard input can only be"
    )


def test_texts_where_numbers_are_wanted(call):
    assert call("--outputs", "ref", "--target", "ref", "--metrics", "perplexity") == (
        "line 1 of the outputs: 'a' is no number\n"
        "  write a number for each token, parted by spaces, or measure a run"
    )


def test_attention_of_a_run_that_has_none(call, tmp_path):
    recipe = write_recipe(tmp_path / "blind", steps=2, every=2)
    train(str(recipe), tmp_path / "run", overrides=[f"model.decoder={BLIND}"])
    files = "--source", "ref", "--target", "ref", "--gold-alignments", "gold"
    for name in ("aer", "attention-entropy"):
        wanted = f"--metrics: {name} {LOOKS_NOWHERE}"
        given = files if name == "aer" else files[:4]
        assert call(tmp_path / "run", *given, "--metrics", name) == wanted

"""The full text of what a user is told when a command is not as it should be."""

import pytest

from heedful.attention.composite_scores import ScoreConfig
from heedful.config.base import type_of, types_in
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.recipes import recipe_names
from tests.commands import heedful, write_recipe


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, *words, stdin=stdin)

    return run


def test_an_unknown_recipe(call):
    ended = call("train", "latin-demi")
    assert ended.code == 2
    assert ended.err == (
        "heedful: latin-demi: no recipe has this name; did you mean 'latin-demo'?\n"
        f"  choose from: {', '.join(recipe_names())}; or give a file that ends in .yaml\n"
    )


def test_a_recipe_file_that_is_not_there(call):
    ended = call("train", "mine.yaml")
    assert ended.code == 2
    assert ended.err == "heedful: mine.yaml: no such file\n  check the path\n"


def test_a_recipe_with_a_typo(call, tmp_path):
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace("hidden_size", "hiden_size", 1))
    ended = call("train", "letters.yaml")
    assert ended.code == 2
    assert ended.err == (
        "heedful: letters.yaml: model.encoder.hiden_size: no setting is called 'hiden_size'; "
        "did you mean 'hidden_size'?\n"
        f"  choose from: {', '.join(sorted(RecurrentEncoderConfig.model_fields))}\n"
    )


def test_a_mechanism_with_a_typo(call):
    ended = call("train", "reverse-tiny", "--set", "model.decoder.attention.score.type=aditive")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --set model.decoder.attention.score.type: no score is called 'aditive'; "
        "did you mean 'additive'?\n"
        f"  choose from: {', '.join(sorted(map(type_of, types_in(ScoreConfig))))}\n"
    )


def test_sizes_that_do_not_fit(call):
    ended = call(
        "train",
        "reverse-tiny",
        "--set",
        "model.decoder.attention.score.type=dot",
        "--set",
        "model.decoder.hidden_size=32",
    )
    assert ended.code == 2
    assert ended.err.endswith(
        "heedful: score.type: 'dot' needs equal sizes, but queries have 32 and keys 64\n"
        "  make the sizes equal, or choose 'bilinear' or 'additive'\n"
    )


def test_one_file_without_the_other(call):
    for given, missing in (("--source", "--target"), ("--target", "--source")):
        ended = call("train", given, "a.txt")
        assert ended.code == 2
        assert ended.err == (
            f"heedful: {given}: given without {missing}\n"
            f"  add {missing} FILE, whose lines belong to these\n"
        )
    ended = call("train", "--dev-source", "a.txt")
    assert ended.err == (
        "heedful: --dev-source: given without --dev-target\n"
        "  add --dev-target FILE, whose lines belong to these\n"
    )


def test_nothing_to_learn_from(call):
    ended = call("train")
    assert ended.code == 2
    assert ended.err == (
        "heedful: data.train: the recipe does not say what to learn from\n"
        "  give two files: --source FILE --target FILE\n"
    )


def test_a_missing_file(call):
    ended = call("train", "--source", "a.txt", "--target", "b.txt")
    assert ended.code == 2
    assert ended.err.startswith("reading a.txt and b.txt\nheedful: a.txt: no such file")


def test_unequal_files_are_refused_before_any_work(call, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.txt").write_text("eins\nzwei\n")
    ended = call("train", "--source", "a.txt", "--target", "b.txt", "--run", "run")
    assert ended.code == 2
    assert ended.err == (
        "reading a.txt and b.txt\n"
        "heedful: a.txt: 3 lines, but b.txt has 2\n"
        "  line n of one must belong to line n of the other: look for lost or added lines\n"
    )
    assert not (tmp_path / "run").exists()


def test_one_pair_is_too_few_to_validate_on(call, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    ended = call("train", "--source", "a.txt", "--target", "a.txt", "--run", "run")
    assert ended.code == 2
    assert ended.err == (
        "reading a.txt and a.txt\n"
        "heedful: a.txt and a.txt: one pair is too few: one is needed to learn from and one to "
        "validate on\n"
        "  give more lines, or files to validate on: --dev-source FILE --dev-target FILE\n"
    )
    assert not (tmp_path / "run").exists()


def test_evaluating_with_one_file(call, trained):
    ended = call("evaluate", trained, "--source", "a.txt")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --source, --target: only one of them is given\n  give both files, or neither\n"
    )


def test_evaluating_a_run_without_a_test_set(call, trained):
    ended = call("evaluate", trained)
    assert ended.code == 2
    assert ended.err == (
        "heedful: data.test: the run's recipe names no test set\n"
        "  give two files: --source FILE --target FILE\n"
    )


def test_an_unknown_corpus_and_split(call):
    ended = call("data", "latim")
    assert ended.code == 2
    assert "did you mean 'latin'?" in ended.err
    ended = call("data", "copy", "--split", "names")
    assert ended.code == 2
    assert "choose from: dev, test, train" in ended.err


def test_a_device_that_is_not_there(call, trained):
    ended = call("translate", trained, "--device", "cud")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --device: there is no device called 'cud'\n"
        "  choose cpu, cuda (or cuda:1 and so on, where there are several), or auto\n"
    )

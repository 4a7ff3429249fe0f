"""The full text of errors of commands."""

import pytest

from tests.commands import heedful, write_recipe


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, *words, stdin=stdin)

    return run


def test_unknown_recipe(call):
    ended = call("train", "latin-demi")
    assert ended.code == 2
    assert ended.err == (
        "heedful: latin-demi: no recipe is called 'latin-demi'; did you mean 'latin-demo'?\n"
        "  choose from: latin-demo, icons-demo; `heedful recipes` lists all; or give a file "
        "that ends in .yaml\n"
    )


def test_file_of_data_in_place_of_a_recipe(call, tmp_path):
    (tmp_path / "train.de").write_text("ein Wort")
    ended = call("train", "train.de")
    assert ended.code == 2
    assert ended.err == (
        "heedful: train.de: a recipe ends in .yaml, and 'train.de' does not\n"
        "  data are given with options: --source FILE --target FILE, --text FILE, --labeled FILE, "
        "--conll FILE, --series FILE, --captions FILE or --digits FILE\n"
    )


def test_missing_recipe_file(call):
    ended = call("train", "mine.yaml")
    assert ended.code == 2
    assert ended.err == "heedful: mine.yaml: no such file\n  check the path\n"


def test_unknown_setting(call, tmp_path):
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace("hidden_size", "hiden_size", 1))
    ended = call("train", "letters.yaml")
    assert ended.code == 2
    assert ended.err == (
        "heedful: letters.yaml: model.encoder.hiden_size: no setting is called 'hiden_size'; "
        "did you mean 'hidden_size'?\n"
        "  choose from: hidden_size, embedding_size; `heedful recipes --schema` lists every "
        "setting and its values\n"
    )


def test_two_files_as_arguments_answered_with_options(call, tmp_path):
    files = [tmp_path / "a.de", tmp_path / "a.en"]
    for file in files:
        file.write_text("a\n")
    ended = call("train", *files)
    assert ended.code == 2
    assert f"two files of texts: --source {files[0]} --target {files[1]}" in ended.err


def test_unknown_type(call):
    ended = call("train", "reverse-tiny", "--set", "model.decoder.attention.score.type=aditive")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --set model.decoder.attention.score.type: no score is called 'aditive'; "
        "did you mean 'additive'?\n"
        "  choose from: additive, relative-key, alibi; `heedful recipes --schema` lists every "
        "setting and its values\n"
    )


def test_sizes_that_do_not_match(call):
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


def test_source_without_target(call):
    for given, missing in (("--source", "--target"), ("--target", "--source")):
        ended = call("train", given, "a.txt")
        assert ended.code == 2
        assert ended.err == (
            f"heedful: {given}: given without {missing}\n"
            f"  add {missing} FILE with one line per line of {given}\n"
        )
    ended = call("train", "--dev-source", "a.txt")
    assert ended.err == (
        "heedful: --dev-source: given without --dev-target\n"
        "  add --dev-target FILE with one line per line of --dev-source\n"
    )


def test_no_training_data(call):
    ended = call("train")
    assert ended.code == 2
    assert ended.err == (
        "heedful: data.train: the recipe names no training data\n"
        "  give --source FILE --target FILE; `heedful --help` lists the options for other data\n"
    )


def test_labeled_texts_without_a_recipe_become_a_classifier(call, tmp_path):
    (tmp_path / "a.tsv").write_text("good\tfine words\nbad\tother words\n" * 10)
    small = ["--set", "model.encoder={embedding_size: 4, hidden_size: 4}", "--steps", "1"]
    ended = call("train", "--labeled", "a.tsv", "--run", "run", *small)
    assert ended.code == 0
    assert ended.out.endswith("heedful classify run FILE\n")
    assert ended.err.startswith("no recipe is named: default-classifier trains a classifier; ")
    ended = call("translate", "run", "a.tsv")
    assert ended.code == 2
    assert ended.err == (
        "heedful: run: this run classifies texts\n  use `heedful classify run FILE`\n"
    )


def test_file_of_another_task_than_the_recipe(call, tmp_path):
    (tmp_path / "a.tsv").write_text("good\tfine words\n")
    ended = call("train", "bahdanau-2015", "--labeled", "a.tsv", "--run", "run")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --labeled: trains a classifier, but the model of this recipe translates\n"
        "  give --source FILE --target FILE; or leave out the recipe, and one for --labeled is "
        "chosen\n"
    )


def test_missing_data_file(call):
    ended = call("train", "--source", "a.txt", "--target", "b.txt")
    assert ended.code == 2
    assert ended.err.startswith("heedful: a.txt: no such file")


def test_files_of_different_length_reported_before_training(call, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.txt").write_text("eins\nzwei\n")
    ended = call("train", "--source", "a.txt", "--target", "b.txt", "--run", "run")
    assert ended.code == 2
    assert ended.err == (
        "heedful: a.txt: 3 lines, but b.txt has 2\n"
        "  line n of one must belong to line n of the other: look for lost or added lines\n"
    )
    assert not (tmp_path / "run").exists()


def test_one_pair_is_too_few(call, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n")
    ended = call("train", "--source", "a.txt", "--target", "b.txt", "--run", "run")
    assert ended.code == 2
    assert ended.err == (
        "no recipe is named: default trains a translator for 5 minutes; change settings "
        "with --set, or choose a recipe\n"
        "reading a.txt and b.txt\n"
        "heedful: a.txt and b.txt: one pair is not enough: one is needed to train on and one to "
        "validate on\n"
        "  give more lines, or files to validate on: --dev-source FILE --dev-target FILE\n"
    )
    assert not (tmp_path / "run").exists()


def test_evaluate_with_one_file(call, trained):
    ended = call("evaluate", trained, "--source", "a.txt")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --source: given without --target\n"
        "  add --target FILE with one line per line of --source\n"
    )


def test_evaluate_without_a_test_set(call, trained):
    ended = call("evaluate", trained)
    assert ended.code == 2
    assert ended.err == (
        "heedful: data.test: the recipe of the run names no test set\n"
        "  give --source FILE --target FILE\n"
    )


def test_unknown_corpus_and_split(call):
    ended = call("data", "latim")
    assert ended.code == 2
    assert "did you mean 'latin'?" in ended.err
    ended = call("data", "copy", "--split", "names")
    assert ended.code == 2
    assert "choose from: dev, longer, test, train" in ended.err


def test_dtype_without_a_run(call, trained, tmp_path):
    outputs = tmp_path / "outputs"
    outputs.write_text("a\n")
    ended = call("evaluate", "--outputs", outputs, "--target", outputs, "--dtype", "bf16")
    assert ended.code == 2
    assert ended.err == "heedful: --dtype: works only with a run\n  name a run, or leave it out\n"


def test_missing_device(call, trained):
    ended = call("translate", trained, "--device", "cud")
    assert ended.code == 2
    assert ended.err == (
        "heedful: --device: there is no device called 'cud'\n"
        "  choose cpu, cuda, cuda:1, mps or auto\n"
    )


BATCHES = "'data.lm_batching.batch_size' or 'data.series_batching.batch_size'"


@pytest.mark.parametrize(
    ("override", "meant", "remedy"),
    [
        (
            "training.lr=0.1",
            "'training.optimizer.learning_rate'",
            "--set training.optimizer.learning_rate=0.1, or --lr 0.1",
        ),
        ("epochs=3", "'training.max_epochs'", "--set training.max_epochs=3"),
        (
            "training.batch_size=32",
            f"'training.batching.max_tokens' or {BATCHES}",
            "--set training.batching.max_tokens=N, or --batch-tokens N",
        ),
        (
            "model.encoder.layers=2",
            "'model.encoder.num_layers'",
            "--set model.encoder.num_layers=2",
        ),
        (
            "model.dropout_rate=0.1",
            "'model.encoder.dropout' or 'model.decoder.dropout' or "
            "'model.encoder.lower_attention.dropout'",
            "--set model.encoder.dropout=0.1",
        ),
    ],
)
def test_settings_of_other_toolkits_translated(call, override, meant, remedy):
    ended = call("train", "reverse-tiny", "--set", override)
    setting = override.partition("=")[0]
    name = setting.rpartition(".")[2]
    message = f"heedful: --set {setting}: no setting is called {name!r}"
    assert ended.err == f"{message}; did you mean {meant}?\n  write {remedy}\n"

import gzip

import pytest

from heedful.comparison.training import find_dataset
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError
from heedful.recipes import load_recipe
from heedful.tasks.registry import all_tasks
from heedful.tasks.translation.task import TASK as TRANSLATION
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe


def on(name, recipe):
    """A recipe with the data of this name."""
    original = load_recipe(recipe)
    adapted = find_dataset(name, original.task)
    return load_recipe(recipe, adapted.overrides(original))


@pytest.mark.parametrize("name", sorted(SYNTHETIC_CORPORA))
@pytest.mark.parametrize("recipe", ["luong-2015-dot-small", "gpt-tiny"])
def test_built_in_corpus_is_pairs_or_running_text(name, recipe):
    adapted = on(name, recipe)
    for split, size in {"train": 100_000, "dev": 500, "test": 1000}.items():
        source = getattr(adapted.data, split)
        assert (source.name, source.split, source.num_examples) == (name, split, size)
    assert adapted.tokenizers == load_recipe(recipe).tokenizers
    assert adapted.data.lm_batching == load_recipe(recipe).data.lm_batching


@pytest.mark.parametrize(
    ("recipe", "name", "has_dev"),
    [
        ("bilstm-tagger", "reverse", True),
        ("show-and-tell-2015-small", "icons", True),
        ("ram-2014-small", "digits", True),
        ("deepar-2020-small", "el-nino", False),  # the end of the training series
    ],
)
def test_built_in_corpora_are_those_of_the_task(recipe, name, has_dev):
    data = on(name, recipe).data
    assert (data.train.name, data.train.split, data.test.split) == (name, "train", "test")
    assert (data.dev is not None) == has_dev


@pytest.mark.parametrize(
    ("recipe", "name", "expected", "choices"),
    [
        ("bilstm-tagger", "latin", "tagged sentences", "argsort, copy, reverse, sort; or give"),
        ("bilstm-classifier", "latin", "labeled texts", ""),
        ("ram-2014-small", "latin", "labeled images", "digits; or give"),
        ("luong-2015-dot-small", "icons", "pairs of texts", "arithmetic, arithmetic-gaps"),
    ],
)
def test_built_in_corpus_of_another_task_raises(recipe, name, expected, choices):
    with pytest.raises(ConfigError) as caught:
        on(name, recipe)
    assert caught.value.location == f"--data {name}"
    assert caught.value.message == f"this built-in corpus has no {expected}"
    assert choices in caught.value.hint
    assert caught.value.hint.endswith("give a recipe with data, a .yaml file or a folder")


def test_data_of_a_recipe_replace_those_of_another():
    adapted = on("reverse-tiny", "luong-2015-dot-small")
    assert adapted.data == load_recipe("reverse-tiny").data
    assert adapted.model == load_recipe("luong-2015-dot-small").model


def test_tokenizers_of_the_dataset_used_if_set(tmp_path):
    recipe = write_recipe(tmp_path)
    assert (
        on(str(recipe), "transformer-2017-small").tokenizers == load_recipe(str(recipe)).tokenizers
    )
    bare = tmp_path / "bare.yaml"
    bare.write_text(f"data: {{train: {{type: tsv, path: {tmp_path}/a.tsv}}}}")
    own = load_recipe("transformer-2017-small").tokenizers
    assert on(str(bare), "transformer-2017-small").tokenizers == own


def test_lm_batching_of_the_dataset_is_used_if_set(tmp_path):
    recipe = write_text_recipe(tmp_path)
    adapted = on(str(recipe), "gpt-tiny")
    assert adapted.data.lm_batching.context_length == 16
    bare = tmp_path / "bare.yaml"
    bare.write_text(
        "data: {train: {type: text, path: a}}\nmodel: {type: language-model}\n"
        "tokenizers: {type: shared}"
    )
    assert on(str(bare), "gpt-tiny").data.lm_batching.context_length == 64


@pytest.mark.parametrize(
    ("files", "types"),
    [
        (
            ["train.source", "train.target", "test.src", "test.tgt"],
            ["parallel-files", None, "parallel-files"],
        ),
        (["train.tsv.gz", "dev.jsonl"], ["tsv", "jsonl", None]),
        (["train.csv", "test.parquet"], ["csv", None, "parquet"]),
        (["train.src.xz", "train.tgt.xz", "train.tsv"], ["parallel-files", None, None]),
    ],
)
def test_folder_files_found_by_split_and_suffix(tmp_path, files, types):
    for name in files:
        content = gzip.compress(b"a\tb\n") if name.endswith(".gz") else b"a\tb\n"
        (tmp_path / name).write_bytes(content)
    data = on(str(tmp_path), "luong-2015-dot-small").data
    adapted = [data.train, data.dev, data.test]
    assert [source and source.type for source in adapted] == types


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_folder_files_load_as_the_option_of_the_task_reads_them(tmp_path, task):
    option = task.data.file_options.single_file
    assert option.file_names
    for number, pattern in enumerate(option.file_names):
        folder = tmp_path / str(number)
        path = folder / pattern.format(split="train")
        if pattern == "{split}":  # a folder of images
            path.mkdir(parents=True)
        else:
            folder.mkdir()
            path.write_text("a\tb\n")
        expected = task.data.file_options.data_setting({option.name: str(path)})
        assert task.data.file_options.folder_setting(folder, "train") == expected


def test_folder_of_labeled_texts_has_the_label_first(tmp_path):
    (tmp_path / "train.tsv").write_text("good\tI like it\n")
    assert on(str(tmp_path), "bilstm-classifier").data.train.read() == [("I like it", "good")]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("gpt-tiny", "train.txt"),
        ("bilstm-classifier", "train.tsv"),
        ("bilstm-tagger", "train.conllu"),
        ("deepar-2020-small", "train.csv"),
        ("show-and-tell-2015-small", "train.tsv"),
        ("ram-2014-small", "train-images-idx3-ubyte"),
        ("luong-2015-dot-small", "train.source and train.target, or train.tsv"),
    ],
)
def test_folder_without_training_data_raises(tmp_path, recipe, expected):
    (tmp_path / "train.source").touch()
    with pytest.raises(ConfigError) as caught:
        on(str(tmp_path), recipe)
    assert str(caught.value) == (
        f"--data {tmp_path}: the folder has no {expected}\n"
        "  rename the files, or write a .yaml file with a `data` section"
    )


def test_unknown_dataset_raises():
    with pytest.raises(ConfigError) as caught:
        find_dataset("latn", TRANSLATION)
    assert str(caught.value) == (
        "--data latn: no dataset is called 'latn'; did you mean 'latin'?\n"
        f"  choose from: {', '.join(sorted(SYNTHETIC_CORPORA))}; "
        "or give a recipe with data, a .yaml file or a folder"
    )


def test_recipe_without_data_raises():
    with pytest.raises(ConfigError) as caught:
        find_dataset("transformer-2017-small", TRANSLATION)
    assert str(caught.value) == (
        "--data transformer-2017-small: the recipe has no training data\n"
        "  name a recipe with `data.train`, a built-in corpus or a folder"
    )

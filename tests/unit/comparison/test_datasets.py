import pytest

from heedful.comparison.training import SIZES, find_dataset
from heedful.data.examples import PAIRS
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError
from heedful.recipes import load_recipe
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe


def on(name, recipe):
    """A recipe with the data of this name."""
    original = load_recipe(recipe)
    adapted = find_dataset(name, original.task.example_format)
    return load_recipe(recipe, adapted.overrides(original))


@pytest.mark.parametrize("name", sorted(SYNTHETIC_CORPORA))
@pytest.mark.parametrize("recipe", ["luong-2015-dot-small", "gpt-tiny"])
def test_built_in_corpus_is_pairs_or_running_text(name, recipe):
    adapted = on(name, recipe)
    for split, size in SIZES.items():
        source = getattr(adapted.data, split)
        assert (source.name, source.split, source.num_examples) == (name, split, size)
    assert adapted.tokenizers == load_recipe(recipe).tokenizers
    assert adapted.data.lm_batching == load_recipe(recipe).data.lm_batching


def test_data_of_a_recipe_replace_those_of_another():
    adapted = on("reverse-tiny", "luong-2015-dot-small")
    assert adapted.data == load_recipe("reverse-tiny").data
    assert adapted.model == load_recipe("luong-2015-dot-small").model


def test_tokenizers_of_the_dataset_are_used_if_set(tmp_path):
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
def test_folder_files_are_found_by_split_and_suffix(tmp_path, files, types):
    for name in files:
        (tmp_path / name).touch()
    data = on(str(tmp_path), "luong-2015-dot-small").data
    adapted = [data.train, data.dev, data.test]
    assert [source and source.type for source in adapted] == types


def test_folder_of_running_text(tmp_path):
    (tmp_path / "train.txt").touch()
    assert on(str(tmp_path), "gpt-tiny").data.train.path == f"{tmp_path}/train.txt"


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("gpt-tiny", "train.txt"),
        ("luong-2015-dot-small", "train.source and train.target, or train.tsv"),
    ],
)
def test_folder_without_training_data_is_reported(tmp_path, recipe, expected):
    (tmp_path / "train.source").touch()
    with pytest.raises(ConfigError) as caught:
        on(str(tmp_path), recipe)
    assert str(caught.value) == (
        f"--data {tmp_path}: the folder has no {expected}\n"
        "  rename the files, or write a .yaml file with a `data` section"
    )


def test_unknown_dataset_is_reported():
    with pytest.raises(ConfigError) as caught:
        find_dataset("latn", PAIRS)
    assert str(caught.value) == (
        "--data latn: no dataset is called 'latn'; did you mean 'latin'?\n"
        f"  choose from: {', '.join(sorted(SYNTHETIC_CORPORA))}; "
        "or give a recipe with data, a .yaml file or a folder"
    )


def test_recipe_without_data_is_reported():
    with pytest.raises(ConfigError) as caught:
        find_dataset("transformer-2017-small", PAIRS)
    assert str(caught.value) == (
        "--data transformer-2017-small: the recipe has no training data\n"
        "  name a recipe with `data.train`, a built-in corpus or a folder"
    )

import pytest

from heedful.comparison.plan import SIZES, find_dataset
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError
from heedful.recipes import load_recipe
from tests.commands import write_recipe
from tests.running_text import write_text_recipe


def on(name, recipe):
    """A recipe with the data of this name."""
    own = load_recipe(recipe)
    found = find_dataset(name, is_monolingual=own.is_monolingual)
    return load_recipe(recipe, found.overrides(own))


@pytest.mark.parametrize("name", sorted(SYNTHETIC_CORPORA))
@pytest.mark.parametrize("recipe", ["luong-2015-dot-small", "gpt-tiny"])
def test_every_built_in_corpus_is_pairs_or_running_text(name, recipe):
    found = on(name, recipe)
    for split, size in SIZES.items():
        source = getattr(found.data, split)
        assert (source.name, source.split, source.size) == (name, split, size)
    assert found.tokenizers == load_recipe(recipe).tokenizers
    assert found.data.lm_batching == load_recipe(recipe).data.lm_batching


def test_the_data_of_a_recipe_replaces_that_of_another():
    found = on("reverse-tiny", "luong-2015-dot-small")
    assert found.data == load_recipe("reverse-tiny").data
    assert found.model == load_recipe("luong-2015-dot-small").model


def test_text_is_cut_as_the_data_says_if_it_says_so(tmp_path):
    recipe = write_recipe(tmp_path)
    assert (
        on(str(recipe), "transformer-2017-small").tokenizers == load_recipe(str(recipe)).tokenizers
    )
    silent = tmp_path / "silent.yaml"
    silent.write_text(f"data: {{train: {{type: tsv, path: {tmp_path}/a.tsv}}}}")
    own = load_recipe("transformer-2017-small").tokenizers
    assert on(str(silent), "transformer-2017-small").tokenizers == own


def test_running_text_is_read_as_the_data_says_if_it_says_so(tmp_path):
    recipe = write_text_recipe(tmp_path)
    found = on(str(recipe), "gpt-tiny")
    assert found.data.lm_batching.context_length == 16
    silent = tmp_path / "silent.yaml"
    silent.write_text(
        "data: {train: {type: text, path: a}}\nmodel: {type: language-model}\ntokenizers: {type: shared}"
    )
    assert on(str(silent), "gpt-tiny").data.lm_batching.context_length == 64


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        (["train.source", "train.target", "test.src", "test.tgt"], ["files", None, "files"]),
        (["train.tsv.gz", "dev.jsonl"], ["tsv", "jsonl", None]),
        (["train.src.xz", "train.tgt.xz", "train.tsv"], ["files", None, None]),
    ],
)
def test_a_folder_names_its_files_by_what_they_are_for(tmp_path, files, kinds):
    for name in files:
        (tmp_path / name).touch()
    data = on(str(tmp_path), "luong-2015-dot-small").data
    found = [data.train, data.dev, data.test]
    assert [source and source.type for source in found] == kinds


def test_a_folder_of_running_text(tmp_path):
    (tmp_path / "train.txt").touch()
    assert on(str(tmp_path), "gpt-tiny").data.train.path == f"{tmp_path}/train.txt"


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        ("gpt-tiny", "train.txt"),
        ("luong-2015-dot-small", "train.source and train.target, or train.tsv"),
    ],
)
def test_a_folder_without_data_is_refused(tmp_path, recipe, wanted):
    (tmp_path / "train.source").touch()
    with pytest.raises(ConfigError) as caught:
        on(str(tmp_path), recipe)
    assert str(caught.value) == (
        f"--data {tmp_path}: the folder does not hold {wanted}\n"
        "  name its files so, or write a .yaml file with a `data` section"
    )


def test_an_unknown_name_is_refused():
    with pytest.raises(ConfigError) as caught:
        find_dataset("latn", is_monolingual=False)
    assert str(caught.value) == (
        "--data latn: no data is called so; did you mean 'latin'?\n"
        f"  choose from: {', '.join(sorted(SYNTHETIC_CORPORA))}; "
        "or give a recipe with data, a .yaml file or a folder"
    )


def test_a_recipe_without_data_is_refused():
    with pytest.raises(ConfigError) as caught:
        find_dataset("transformer-2017-small", is_monolingual=False)
    assert str(caught.value) == (
        "--data transformer-2017-small: this recipe does not say what to learn from\n"
        "  name one with `data.train`, a built-in corpus or a folder"
    )

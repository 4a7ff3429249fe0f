"""The schema of a recipe: data, text and model must be of one kind."""

import pytest

from heedful.config import resolve
from heedful.errors import ConfigError
from heedful.recipes import Recipe

TEXT = {"kind": "text", "path": "book.txt"}
PAIRS = {"kind": "built-in", "name": "latin", "size": 9}
SHARED = {"kind": "shared", "tokenizer": {"kind": "character"}}


def recipe(**settings):
    return resolve(Recipe, settings, origin="here")


def message(**settings):
    with pytest.raises(ConfigError) as caught:
        recipe(**settings)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_models_of_text_take_running_text(kind):
    made = recipe(model={"kind": kind}, text=SHARED, data={"train": TEXT})
    assert made.is_of_text
    assert made.data.train.path == "book.txt"
    several = {"kind": "text", "path": ["a", "b"]}
    made = recipe(model={"kind": kind}, text=SHARED, data={"train": several})
    assert made.data.train.path == ["a", "b"]


@pytest.mark.parametrize("kind", ["encoder-decoder", "continuation"])
def test_models_of_pairs_take_pairs(kind):
    assert not recipe(model={"kind": kind}, data={"train": PAIRS}).is_of_text


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_pairs_are_no_running_text(split):
    said = message(model={"kind": "language-model"}, text=SHARED, data={split: PAIRS})
    assert said == (
        f"data.{split}.kind: the model (kind: language-model) learns from running text, "
        "not from 'built-in'\n"
        f"  choose from: built-in-text, text{', tokens' if split == 'train' else ''}"
    )


def test_running_text_is_no_pairs():
    assert message(data={"train": TEXT}) == (
        "data.train.kind: the model (kind: encoder-decoder) learns from pairs of texts, "
        "not from 'text'\n"
        "  choose from: built-in, files, jsonl, several, tokens, tsv"
    )


def test_one_text_has_one_tokenizer():
    assert message(model={"kind": "language-model"}) == (
        "text.kind: a language-model reads one kind of text, but this is 'separate'\n"
        "  set `text: {kind: shared, tokenizer: {kind: character}}`, or another tokenizer"
    )


def test_a_masked_model_says_nothing_to_go_on_from():
    said = message(
        model={"kind": "masked-language-model"},
        text=SHARED,
        training={"sampling": {"kind": "linear"}},
    )
    assert said == (
        "training.sampling.kind: a masked-language-model goes on from no token of its own, so "
        "'linear' has no meaning\n"
        "  leave training.sampling out"
    )

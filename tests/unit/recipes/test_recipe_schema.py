"""The schema of a recipe: data, text and model must be of one kind."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.recipes import Recipe

TOKENIZER_FOLDER = {"type": "text", "path": "book.txt"}
PAIRS = {"type": "synthetic", "name": "latin", "num_examples": 9}
SHARED = {"type": "shared", "tokenizer": {"type": "character"}}


def recipe(**settings):
    return validate_settings(Recipe, settings, location="here")


def message(**settings):
    with pytest.raises(ConfigError) as caught:
        recipe(**settings)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_models_of_text_take_running_text(kind):
    made = recipe(model={"type": kind}, tokenizers=SHARED, data={"train": TOKENIZER_FOLDER})
    assert made.is_monolingual
    assert made.data.train.path == "book.txt"
    several = {"type": "text", "path": ["a", "b"]}
    made = recipe(model={"type": kind}, tokenizers=SHARED, data={"train": several})
    assert made.data.train.path == ["a", "b"]


@pytest.mark.parametrize("kind", ["encoder-decoder", "continuation"])
def test_models_of_pairs_take_pairs(kind):
    assert not recipe(model={"type": kind}, data={"train": PAIRS}).is_monolingual


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_pairs_are_no_running_text(split):
    said = message(model={"type": "language-model"}, tokenizers=SHARED, data={split: PAIRS})
    assert said == (
        f"data.{split}.type: the model (type: language-model) learns from running text, "
        "not from 'built-in'\n"
        f"  choose from: built-in-text, text{', tokens' if split == 'train' else ''}"
    )


def test_running_text_is_no_pairs():
    assert message(data={"train": TOKENIZER_FOLDER}) == (
        "data.train.type: the model (kind: encoder-decoder) learns from pairs of texts, "
        "not from 'text'\n"
        "  choose from: built-in, files, jsonl, several, tokens, tsv"
    )


def test_one_text_has_one_tokenizer():
    assert message(model={"type": "language-model"}) == (
        "tokenizers.type: a language-model reads one kind of text, but this is 'separate'\n"
        "  set `text: {kind: shared, tokenizer: {kind: character}}`, or another tokenizer"
    )


def test_a_masked_model_says_nothing_to_go_on_from():
    said = message(
        model={"type": "masked-language-model"},
        tokenizers=SHARED,
        training={"scheduled_sampling": {"type": "linear"}},
    )
    assert said == (
        "training.scheduled_sampling.type: a masked-language-model goes on from no token of its own, so "
        "'linear' has no meaning\n"
        "  leave training.scheduled_sampling out"
    )

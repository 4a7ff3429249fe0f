"""Recipes: loading, and the checks of their tasks."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.recipes.recipe import recipe_groups

TEXT = {"type": "text", "path": "book.txt"}
PAIRS = {"type": "synthetic", "name": "latin", "num_examples": 9}
SHARED = {"type": "shared", "tokenizer": {"type": "character"}}


def test_overridden_type_has_its_own_defaults():
    recipe = load_recipe("default", ["model.decoder.attention.score.type=bilinear"])
    assert recipe.model.decoder.attention.score.model_dump() == {"type": "bilinear"}
    assert recipe.model.decoder.hidden_size == 256


def test_overrides_reach_any_depth():
    recipe = load_recipe(
        "reverse-tiny", ["training.batching.max_tokens=99", "tokenizers.source.type=character"]
    )
    assert recipe.training.batching.max_tokens == 99
    assert recipe.tokenizers.source.type == "character"


def test_groups_contain_every_recipe_once():
    names = [
        f"{name}{variant}"
        for name, variants in recipe_groups()
        for variant in ("", *(f"-{variant}" for variant in variants))
    ]
    assert sorted(names) == recipe_names()


def test_groups_without_variants_come_first():
    has_variants = [bool(variants) for _, variants in recipe_groups()]
    assert has_variants == sorted(has_variants)
    assert ("default", ("gpu",)) in recipe_groups()
    assert ("latin-demo", ()) in recipe_groups()


def build(**settings):
    return validate_settings(Recipe, settings, location="here")


def message(**settings):
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_language_models_take_running_text(kind):
    recipe = build(model={"type": kind}, tokenizers=SHARED, data={"train": TEXT})
    assert recipe.task.example_format.name == "lines"
    assert recipe.data.train.path == "book.txt"
    several = {"type": "text", "path": ["a", "b"]}
    recipe = build(model={"type": kind}, tokenizers=SHARED, data={"train": several})
    assert recipe.data.train.path == ["a", "b"]


@pytest.mark.parametrize("kind", ["encoder-decoder", "prefix-lm"])
def test_translation_models_take_pairs(kind):
    assert build(model={"type": kind}, data={"train": PAIRS}).task.name == "translation"


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_language_model_rejects_pairs(split):
    text = message(model={"type": "language-model"}, tokenizers=SHARED, data={split: PAIRS})
    assert text == (
        f"data.{split}.type: the model (type: language-model) learns from running text, "
        "not from 'synthetic'\n"
        f"  choose from: {'prepared, ' if split == 'train' else ''}synthetic-text, text"
    )


def test_translation_model_rejects_running_text():
    assert message(data={"train": TEXT}) == (
        "data.train.type: the model (type: encoder-decoder) learns from pairs of texts, "
        "not from 'text'\n"
        "  choose from: jsonl, mixture, parallel-files, prepared, synthetic, tsv"
    )


def test_language_model_needs_a_shared_tokenizer():
    assert message(model={"type": "language-model"}) == (
        "tokenizers.type: a language-model has one tokenizer, but this is 'separate'\n"
        "  set `tokenizers: {type: shared, tokenizer: {type: character}}`, or another tokenizer"
    )


def test_masked_language_model_rejects_scheduled_sampling():
    text = message(
        model={"type": "masked-language-model"},
        tokenizers=SHARED,
        training={"scheduled_sampling": {"type": "linear"}},
    )
    assert text == (
        "training.scheduled_sampling.type: a masked-language-model predicts no token from its "
        "own outputs, so 'linear' has no effect\n"
        "  remove training.scheduled_sampling"
    )


def test_unknown_metric_is_reported_with_those_of_the_task():
    settings = {"model": {"type": "language-model"}, "tokenizers": SHARED}
    assert message(**settings, training={"metric_for_best_model": "bleu"}) == (
        "training.metric_for_best_model: the model (type: language-model) has no metric called "
        "'bleu'\n"
        "  choose from: accuracy, loss"
    )
    assert message(training={"metric_for_best_model": "blue"}).startswith(
        "training.metric_for_best_model: the model (type: encoder-decoder) has no metric called "
        "'blue'; did you mean 'bleu'?\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        "training.seed",
        "training.gradient_accumulation_steps",
        "training.max_steps",
        "data.max_in_memory_examples",
        "decoding.beam_size",
        "decoding.n_best",
        "decoding.max_length",
        "decoding.max_length_ratio",
        "decoding.max_length_offset",
        "decoding.length_penalty.alpha",
        "model.encoder.embedding_size",
    ],
)
@pytest.mark.parametrize("value", ["-1", "1e308", "99999999999999999999", f"0x{'f' * 9999}"])
def test_numbers_out_of_range_are_an_error(name, value):
    with pytest.raises(ConfigError) as caught:
        load_recipe("reverse-tiny", [f"{name}={value}"])
    assert name in str(caught.value)
    assert len(str(caught.value)) < 1920  # 24 lines of 80 columns


def test_beam_sizes_have_a_limit_in_python_too():
    with pytest.raises(ConfigError, match=r"decoding\.beam_size: 1000000 is over 10000"):
        load_recipe("reverse-tiny").decoding.with_beam_size(beam_size=1_000_000)

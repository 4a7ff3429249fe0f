"""Attention of chosen kinds, layers and heads, of every model of the catalogue."""

import re

import numpy as np
import pytest

from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis, mark_default
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_selection import AttentionSelection, parse_numbers
from heedful.inspection.attention_trace import trace_attention
from heedful.inspection.mechanism_overlays import OVERLAY_FIELDS
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.tokenizer import NormalizerConfig, WordTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, Vocabulary
from tests.catalogue import LAYERS, SYSTEMS, VOCABULARY, build, each_system
from tests.shape_checking import unchecked

TRANSFORMERS = [
    name
    for name in SYSTEMS
    if name.startswith("transformer") and not re.search("over|blocks|span", name)
]
WORDS = [f" {letter}" for letter in "abcdefghijk"[: VOCABULARY - NUM_SPECIAL_TOKENS]]


def translate(name, text="b a d"):
    return translate_and_trace(name, text)[0]


def translate_and_trace(name, text="b a d"):
    tokenizer = WordTokenizer(Vocabulary(WORDS), NormalizerConfig().normalize)
    config = DecodingConfig(beam_size=1, min_length=2)
    translator = Translator(build(name).float(), TokenizerPair(tokenizer, tokenizer), config)
    with unchecked(), trace_attention(translator.model) as records:
        (result,) = translator.predict([text], need_layers=True)
    return result, records


def select(result, *arguments, **options):
    return AttentionSelection(*arguments, **options).select(
        result.attention_layers, result.attention_map
    )


@each_system
def test_default_map_has_the_weights_of_the_prediction(name):
    result = translate(name)
    (drawn,) = select(result)
    columns = slice(len(result.source_tokens))
    np.testing.assert_allclose(drawn.weights[:, columns], result.weights, atol=1e-5)
    assert list(drawn.target) == result.tokens
    assert list(drawn.source)[columns] == result.source_tokens
    assert drawn.output == result.text


@each_system
def test_layer_has_each_overlay_that_mechanism_traces(name):
    result, records = translate_and_trace(name)
    for layer in result.attention_layers:
        traced = [
            set(record.extras) & set(OVERLAY_FIELDS)
            for record in records
            if record.module_path == layer.path and not layer.is_intra
        ]
        fields = set(layer.overlays)  # a module may be called with a state and without one
        assert set.intersection(*traced or [set()]) <= fields <= set().union(*traced)
        for values in layer.overlays.values():
            assert values.shape in (layer.weights.shape, layer.weights.shape[:2])
        if "coverage" in fields:
            before = layer.weights.cumsum(axis=1) - layer.weights
            np.testing.assert_allclose(layer.overlays["coverage"], before, atol=1e-4)
        for head, overlays in enumerate(layer.to_json()["overlays"]):
            assert fields <= set(overlays)
            for field in fields:
                expected = layer.overlays[field][head]
                np.testing.assert_allclose(overlays[field], expected, atol=1e-6)
            assert ("gates" in overlays) == (layer.gates is not None)
            assert ("copy_probs" in overlays) == (layer.queries.copy_probs is not None)


@pytest.mark.wide
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_each_layer_of_each_kind_of_a_transformer_is_there(name):
    result = translate(name)
    kinds = [layer.kind for layer in result.attention_layers]
    num_layers = LAYERS["num_layers"]
    for kind in ("encoder-self", "decoder-self", "cross"):
        assert kinds.count(kind) == num_layers
    encoder, decoder = (select(result, [kind]) for kind in ("encoder-self", "decoder-self"))
    assert list(encoder[0].target) == result.source_tokens
    assert list(decoder[0].source)[:1] == ["(start)"]
    assert list(decoder[0].source)[1:] == result.tokens[:-1]
    assert not np.triu(decoder[0].weights, 1).any(), "no token attends to itself or a later one"


@pytest.mark.parametrize("span", ["blocks", "compressed", "both"])
def test_self_attention_by_blocks_is_skipped(span):
    result = translate(f"transformer, span {span}")
    assert {layer.kind for layer in result.attention_layers} == {"cross"}


def axis(tokens, words=(), word_ids=None):
    return TokenAxis(tokens, words, word_ids or [-1] * len(tokens))


RNG = np.random.default_rng(0)
QUERIES = axis(["\u2581The", "\u2581gar", "den", "s", "."], ["The", "gardens."], [0, 1, 1, 1, 1])
KEYS = axis(["\u2581hor", "ti", "(end)"], ["horti"], [0, 0, -1])
BASE = AttentionMap([], [], np.zeros((0, 0)), title="horti", output="The gardens.")


def layer(kind, num_heads):
    weights = RNG.dirichlet(np.ones(3), size=(num_heads, 5))
    return AttentionLayer(kind, QUERIES, KEYS, weights)


LAYERS_OF_MODEL = mark_default(
    [layer("encoder-self", 2), layer("encoder-self", 2), layer("cross", 2), layer("cross", 2)],
    "cross",
)


def test_layers_and_heads_are_chosen_and_named():
    maps = AttentionSelection(["encoder-self", "cross"], ["1", "mean"], ["2", "mean"]).select(
        LAYERS_OF_MODEL, BASE
    )
    titles = ["encoder self-attention", "cross-attention"]
    layers = ["layer 1 of 2", "mean of 2 layers"]
    heads = ["head 2 of 2", "mean of 2 heads"]
    expected = [f"{title}, {one}, {two}" for title in titles for one in layers for two in heads]
    assert [drawn.caption for drawn in maps] == expected
    first, second, third, fourth = (each.weights for each in LAYERS_OF_MODEL)
    wanted = [
        *(first[1], first.mean(0), (first[1] + second[1]) / 2, (first + second).mean(0) / 2),
        *(third[1], third.mean(0), (third[1] + fourth[1]) / 2, (third + fourth).mean(0) / 2),
    ]
    for drawn, weights in zip(maps, wanted, strict=True):
        np.testing.assert_allclose(drawn.weights, weights)
        assert (drawn.title, drawn.output) == ("horti", "The gardens.")


def test_default_is_the_mean_head_of_the_last_layer_of_cross_attention():
    (drawn,) = AttentionSelection().select(LAYERS_OF_MODEL, BASE)
    assert drawn.caption == "cross-attention, layer 2 of 2, mean of 2 heads"
    np.testing.assert_allclose(drawn.weights, LAYERS_OF_MODEL[-1].weights.mean(0))


def test_all_kinds_layers_and_heads():
    maps = AttentionSelection(["all"], ["all"], ["all"]).select(LAYERS_OF_MODEL, BASE)
    assert len({drawn.caption for drawn in maps}) == len(maps) == 2 * 2 * 2


def test_single_layers_and_heads_not_counted():
    (drawn,) = AttentionSelection().select([layer("cross", 1)], BASE)
    assert drawn.caption == "cross-attention"


def test_words_sum_attention_to_tokens_and_average_attention_from_them():
    (drawn,) = AttentionSelection(joins_words=True).select(LAYERS_OF_MODEL, BASE)
    weights = LAYERS_OF_MODEL[-1].weights.mean(0)
    assert drawn.target == ["The", "gardens."]
    assert drawn.source == ["horti", "(end)"]
    for row, queries in enumerate(([0], [1, 2, 3, 4])):
        for column, keys in enumerate(([0, 1], [2])):
            entries = [sum(weights[query, key] for key in keys) for query in queries]
            assert drawn.weights[row, column] == pytest.approx(sum(entries) / len(queries))
    np.testing.assert_allclose(drawn.weights.sum(1), 1)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["2"], [2]),
        (["1,3"], [1, 3]),
        (["2-4", "1"], [2, 3, 4, 1]),
        (["last", "mean", "4"], [4, 0]),
        (["all"], [1, 2, 3, 4]),
    ],
)
def test_numbers(values, numbers):
    assert parse_numbers(values, 4, "--layer") == numbers


@pytest.mark.parametrize("value", ["0", "5", "2-9", "4-2", "x", "", "-1"])
def test_number_of_no_layer_raises(value):
    with pytest.raises(ConfigError) as caught:
        parse_numbers([value], 4, "--layer")
    assert str(caught.value) == (
        f"--layer: there is no layer {value!r}: this model has 4\n"
        "  give numbers such as 1 or 1,3 or 2-4, or: all, mean, last"
    )


def test_unknown_kind_raises():
    with pytest.raises(ConfigError) as caught:
        AttentionSelection(["crossed"]).select(LAYERS_OF_MODEL, BASE)
    assert str(caught.value) == (
        "--kind: this model has no attention of kind 'crossed'\n"
        "  choose from: encoder-self, cross, all"
    )


def test_options_without_layers_reported():
    drawn = AttentionMap(["a"], ["b"], np.ones((1, 1)))
    assert AttentionSelection().select([], drawn) == [drawn]
    with pytest.raises(ConfigError) as caught:
        AttentionSelection(layers=["1"]).select([], drawn)
    assert str(caught.value) == (
        "--kind: this model has no layers with one attention weight per token\n"
        "  leave out --kind, --layer, --head and --words"
    )

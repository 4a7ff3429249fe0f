"""Resegmented texts decode to the same text and depend on their key alone."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tokenization.subword import (
    BPEDropoutConfig,
    SubwordTokenizerConfig,
    UnigramSamplingConfig,
)
from heedful.tokenization.subword_regularization import (
    SubwordPiece,
    SubwordRegularizer,
    UnigramSampler,
)
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from tests.segmentation import MIN_P_VALUE, keys, p_value, rows_of, sequences
from tests.unit.tokenization.test_unigram_sampling import distribution

ANIMALS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse"]
TEXTS = [f"the {one} sees the {other}, in the garden" for one in ANIMALS for other in ANIMALS]
CONFIGS = {
    "unigram-sampling": SubwordTokenizerConfig(
        vocab_size=340, subword_regularization=UnigramSamplingConfig(alpha=0.2)
    ),
    "bpe-dropout": SubwordTokenizerConfig(
        vocab_size=340, model_type="bpe", subword_regularization=BPEDropoutConfig(dropout=0.3)
    ),
}
TOKENIZERS = {name: config.train(TEXTS) for name, config in CONFIGS.items()}
REGULARIZERS = {
    name: config.build_regularizer(TOKENIZERS[name]) for name, config in CONFIGS.items()
}
each_regularizer = pytest.mark.parametrize("name", CONFIGS)
ANY_TEXT = st.text(max_size=12) | st.text("thedogar, \u2581\u2585\ue000\u6f22", max_size=20)


@each_regularizer
@given(texts=st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=40)
def test_resegmented_text_decodes_to_same_text(name, texts):
    tokenizer = TOKENIZERS[name]
    rows = rows_of(
        REGULARIZERS[name].resegment(sequences(*tokenizer.encode_batch(texts)), keys(len(texts)))
    )
    assert list(map(tokenizer.decode, rows)) == texts
    assert all(token >= NUM_SPECIAL_TOKENS for row in rows for token in row)


@each_regularizer
def test_resegmentation_depends_on_key(name):
    row = TOKENIZERS[name].encode(TEXTS[0])
    rows = rows_of(REGULARIZERS[name].resegment(sequences(*[row] * 50), keys(50)))
    assert len(set(rows)) > 10


@each_regularizer
def test_repeated_word_is_segmented_independently(name):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode("garden garden")
    rows = rows_of(REGULARIZERS[name].resegment(sequences(*[ids] * 50), keys(50)))
    halves = [
        next(end for end in range(len(row)) if tokenizer.decode(row[:end]) == "garden")
        for row in rows
    ]
    assert any(row[:half] != row[half:] for row, half in zip(rows, halves, strict=True))


@each_regularizer
@given(data=st.data(), offset=st.integers(0, 10**6))
@settings(max_examples=15)
def test_resegmentation_does_not_depend_on_other_texts(name, data, offset):
    rows = TOKENIZERS[name].encode_batch(
        data.draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
    )
    row_keys = keys(len(rows)) + np.uint64(offset)
    together = rows_of(REGULARIZERS[name].resegment(sequences(*rows), row_keys))
    for row, key, expected in zip(rows, row_keys, together, strict=True):
        assert rows_of(REGULARIZERS[name].resegment(sequences(row), np.array([key]))) == [expected]


@each_regularizer
def test_resegmentation_of_empty_texts(name):
    empty = REGULARIZERS[name].resegment(sequences(), keys(0))
    assert rows_of(empty) == []
    row = TOKENIZERS[name].encode("dog")
    rows = rows_of(REGULARIZERS[name].resegment(sequences([], row, [], []), keys(4)))
    assert [len(row) > 0 for row in rows] == [False, True, False, False]


def test_splitting_into_spans_keeps_distribution():
    names = {"a": -1.0, "b": -2.0, "c": -1.7, "ab": -1.5, "abb": -2.5, "ca": -2.9, "cc": -3.0}
    pieces = {
        name: SubwordPiece(index, score) for index, (name, score) in enumerate(names.items(), 10)
    }
    text = "abbcabcca"  # no piece crosses b and c
    row = [pieces[character].id for character in text]
    regularizer = SubwordRegularizer(pieces, UnigramSampler(pieces, 0.4))
    counts = Counter(rows_of(regularizer.resegment(sequences(*[row] * 20_000), keys(20_000))))
    assert p_value(counts, distribution(text, pieces, 0.4)) > MIN_P_VALUE


def test_regularizer_asserts_characters_are_pieces():
    pieces = {"ab": SubwordPiece(10, -1.0), "a": SubwordPiece(11, -1.0)}
    with pytest.raises(AssertionError, match=r"characters \['b'\] of pieces are not pieces"):
        SubwordRegularizer(pieces, UnigramSampler(pieces, 1.0))

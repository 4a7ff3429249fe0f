from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tokenization.segments import SubwordPiece
from heedful.tokenization.subword import (
    BPEDropoutConfig,
    SubwordTokenizerConfig,
    UnigramSamplingConfig,
)
from heedful.tokenization.subword_regularization import SubwordRegularizer, UnigramSampler
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from tests.cuts import TOO_RARE, how_rare, keys, rows_of, sequences
from tests.unit.tokenization.test_subword_regularization_sampled_cuts import distribution

ANIMALS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse"]
TEXTS = [f"the {one} sees the {other}, in the garden" for one in ANIMALS for other in ANIMALS]
CONFIGS = {
    "sampling": SubwordTokenizerConfig(
        vocab_size=340, subword_regularization=UnigramSamplingConfig(alpha=0.2)
    ),
    "dropout": SubwordTokenizerConfig(
        vocab_size=340, model_type="bpe", subword_regularization=BPEDropoutConfig(dropout=0.3)
    ),
}
TOKENIZERS = {kind: config.train(TEXTS) for kind, config in CONFIGS.items()}
RECUTTERS = {kind: config.build_regularizer(TOKENIZERS[kind]) for kind, config in CONFIGS.items()}
KINDS = pytest.mark.parametrize("kind", CONFIGS)
ANY_TEXT = st.text(max_size=12) | st.text("thedogar, \u2581\u2585\ue000\u6f22", max_size=20)


@KINDS
@given(texts=st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=40)
def test_resegmented_text_decodes_to_same_text(kind, texts):
    tokenizer = TOKENIZERS[kind]
    found = rows_of(
        RECUTTERS[kind].resegment(sequences(*tokenizer.encode_batch(texts)), keys(len(texts)))
    )
    assert list(map(tokenizer.decode, found)) == texts
    assert all(each >= NUM_SPECIAL_TOKENS for row in found for each in row)


@KINDS
def test_resegmentation_depends_on_key(kind):
    row = TOKENIZERS[kind].encode(TEXTS[0])
    found = rows_of(RECUTTERS[kind].resegment(sequences(*[row] * 50), keys(50)))
    assert len(set(found)) > 10


@KINDS
def test_repeated_word_is_segmented_independently(kind):
    tokenizer = TOKENIZERS[kind]
    row = tokenizer.encode("garden garden")
    for new in rows_of(RECUTTERS[kind].resegment(sequences(*[row] * 50), keys(50))):
        half = next(end for end in range(len(new)) if tokenizer.decode(new[:end]) == "garden")
        if new[:half] != new[half:]:
            return
    pytest.fail("both are always cut alike")


@KINDS
@given(data=st.data(), number=st.integers(0, 10**6))
@settings(max_examples=15)
def test_resegmentation_does_not_depend_on_other_texts(kind, data, number):
    rows = TOKENIZERS[kind].encode_batch(
        data.draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
    )
    some = keys(len(rows)) + np.uint64(number)
    together = rows_of(RECUTTERS[kind].resegment(sequences(*rows), some))
    for row, key, expected in zip(rows, some, together, strict=True):
        assert rows_of(RECUTTERS[kind].resegment(sequences(row), np.array([key]))) == [expected]


@KINDS
def test_resegmentation_of_empty_texts(kind):
    nothing = RECUTTERS[kind].resegment(sequences(), keys(0))
    assert rows_of(nothing) == []
    row = TOKENIZERS[kind].encode("dog")
    among = rows_of(RECUTTERS[kind].resegment(sequences([], row, [], []), keys(4)))
    assert [len(each) > 0 for each in among] == [False, True, False, False]


def test_splitting_into_spans_keeps_distribution():
    names = {"a": -1.0, "b": -2.0, "c": -1.7, "ab": -1.5, "abb": -2.5, "ca": -2.9, "cc": -3.0}
    pieces = {
        name: SubwordPiece(number, score) for number, (name, score) in enumerate(names.items(), 10)
    }
    text = "abbcabcca"  # nothing lies across b and c
    row = [pieces[character].id for character in text]
    recutter = SubwordRegularizer(pieces, UnigramSampler(pieces, 0.4))
    counts = Counter(rows_of(recutter.resegment(sequences(*[row] * 20_000), keys(20_000))))
    assert how_rare(counts, distribution(text, pieces, 0.4)) > TOO_RARE


def test_regularizer_asserts_characters_are_pieces():
    pieces = {"ab": SubwordPiece(10, -1.0), "a": SubwordPiece(11, -1.0)}
    with pytest.raises(AssertionError, match=r"characters \['b'\] are in pieces, but are none"):
        SubwordRegularizer(pieces, UnigramSampler(pieces, 1.0))

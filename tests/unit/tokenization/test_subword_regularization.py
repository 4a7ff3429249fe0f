"""Resegmented texts decode to the same text, depend on their key alone, and follow the papers."""

from collections import Counter
from itertools import combinations, pairwise, product
from math import exp

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tokenization.subword import (
    BPEDropoutConfig,
    SubwordTokenizerConfig,
    UnigramSamplingConfig,
)
from heedful.tokenization.subword_regularization import (
    UNIFORM_RESOLUTION,
    BPEDropout,
    SubwordPiece,
    SubwordRegularizer,
    UnigramSampler,
    derive_keys,
    random_bits,
)
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from tests.segmentation import MIN_P_VALUE, keys, p_value, rows_of, sequences

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
    assert p_value(counts, unigram_distribution(text, pieces, 0.4)) > MIN_P_VALUE


def test_regularizer_asserts_characters_are_pieces():
    pieces = {"ab": SubwordPiece(10, -1.0), "a": SubwordPiece(11, -1.0)}
    with pytest.raises(AssertionError, match=r"characters \['b'\] of pieces are not pieces"):
        SubwordRegularizer(pieces, UnigramSampler(pieces, 1.0))


KEYS = np.arange(20_000, dtype=np.uint64)


@given(key=st.integers(0, 2**64 - 1), index=st.integers(0, 2**40))
def test_random_bits_are_elementwise(key, index):
    keys = np.array([key, 5, key], dtype=np.uint64)
    together = random_bits(keys, np.array([index, index + 1, index]))
    assert together[0] == together[2] == random_bits(keys[:1], index)[0]
    assert (together < UNIFORM_RESOLUTION).all()


def test_random_bits_are_uniform():
    for samples in (
        random_bits(KEYS, 0),
        random_bits(KEYS, 7),
        random_bits(KEYS[:1], np.arange(20_000)),
    ):
        counts = np.bincount((samples >> np.uint64(28)).astype(np.int64), minlength=16)
        chi_square = ((counts - 1250) ** 2 / 1250).sum()
        assert chi_square < 37.7  # 15 degrees of freedom: exceeded once in 1,000


def test_random_bits_of_one_key_uncorrelated():
    first, second = (random_bits(KEYS, index) / UNIFORM_RESOLUTION - 0.5 for index in (0, 1))
    correlation = 12 * (first * second).mean()
    assert abs(correlation) < 4 / np.sqrt(len(KEYS))


def test_derived_keys_are_distinct():
    assert len(np.unique(derive_keys(KEYS, 3))) == len(KEYS)
    assert not (derive_keys(KEYS, 3) == derive_keys(KEYS, 4)).any()


# In the order in which they were learned, characters last.
BPE_NAMES = ["ab", "abc", "bc", "abab", "cc", "bcc", "a", "b", "c"]
RANKED = {name: SubwordPiece(index + 10, -float(index)) for index, name in enumerate(BPE_NAMES)}
WORDS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse", "garden", "window"]
BPE_TEXTS = [f"the {one} sees the {other} in the house" for one in WORDS for other in WORDS]
BYTE = 5


def character_ids(text, pieces=RANKED):
    return [pieces[character].id for character in text]


def possible_merges(state, pieces=RANKED):
    """Return the positions of possible merges, best first, leftmost of equals first."""
    merges = [
        (-pieces[left + right].score, position)
        for position, (left, right) in enumerate(pairwise(state))
        if left + right in pieces
    ]
    return [position for _, position in sorted(merges)]


def merged(state, position):
    return (*state[:position], state[position] + state[position + 1], *state[position + 2 :])


def bpe_distribution(state, p):
    """Algorithm 1 of the paper, enumerating the sets of dropped merges at every step."""
    merges = possible_merges(state)
    if not merges:
        return {state: 1.0}
    probabilities = Counter()
    for dropped in product([True, False], repeat=len(merges)):
        weight = np.prod([p if is_dropped else 1 - p for is_dropped in dropped])
        remaining = [
            position for position, is_dropped in zip(merges, dropped, strict=True) if not is_dropped
        ]
        ends = bpe_distribution(merged(state, remaining[0]), p) if remaining else {state: 1.0}
        for end, probability in ends.items():
            probabilities[end] += weight * probability
    return probabilities


def greedy(text, pieces=RANKED):
    state = tuple(text)
    while merges := possible_merges(state, pieces):
        state = merged(state, merges[0])
    return state


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("text", ["abcc", "ababc", "aabbc", "a"])
def test_bpe_dropout_frequencies_match_paper_algorithm(text, p):
    spans = sequences(*[[RANKED[name].id for name in greedy(text)]] * 20_000)
    counts = Counter(rows_of(BPEDropout(RANKED, p).segment(spans, keys(20_000))))
    expected = {
        tuple(RANKED[name].id for name in state): weight
        for state, weight in bpe_distribution(tuple(text), p).items()
    }
    assert sum(expected.values()) == pytest.approx(1)
    assert p_value(counts, expected) > MIN_P_VALUE


def test_spans_without_dropped_merges_equal_merged_characters():
    """The shortcut for unchanged spans gives the same as merging all characters."""
    texts = ["".join(text) for text in product("abc", repeat=4)]
    dropout = BPEDropout(RANKED, 0.2)
    greedy_ids = [[RANKED[name].id for name in greedy(text)] for text in texts]
    shortcut = dropout.segment(sequences(*greedy_ids), keys(len(texts)))
    full = dropout.merge_characters(sequences(*map(character_ids, texts)), keys(len(texts)))
    assert rows_of(shortcut) == rows_of(full)
    assert rows_of(shortcut) != list(map(tuple, greedy_ids))


def test_many_long_spans_match_few(monkeypatch):
    texts = ["abc" * size for size in range(1, 40)]
    dropout = BPEDropout(RANKED, 0.4)
    greedy_ids = [[RANKED[name].id for name in greedy(text)] for text in texts]
    at_once = rows_of(dropout.segment(sequences(*greedy_ids), keys(len(texts))))
    monkeypatch.setattr("heedful.tokenization.subword_regularization._MAX_TABLE_CELLS", 100)
    assert rows_of(dropout.segment(sequences(*greedy_ids), keys(len(texts)))) == at_once


# ----- comparison with SentencePiece

TOKENIZER = SubwordTokenizerConfig(vocab_size=340, model_type="bpe").train(BPE_TEXTS)
LETTERS = sorted({letter for text in BPE_TEXTS for letter in text} - {" "})


@given(words=st.lists(st.text(LETTERS, min_size=1) | st.sampled_from(WORDS), min_size=1))
@settings(max_examples=50)
def test_zero_dropout_same_as_sentencepiece(words):
    pieces = TOKENIZER.learned_pieces
    spans = ["\u2581" + word for word in words]
    segmented = BPEDropout(pieces, 0.0).merge_characters(
        sequences(*(character_ids(span, pieces) for span in spans)),
        keys(len(words)),
    )
    assert segmented.values.tolist() == TOKENIZER.encode(" ".join(words))


@pytest.mark.parametrize(
    "segmenter",
    [BPEDropout(RANKED, 0.5), UnigramSampler(RANKED, 0.2)],
    ids=["bpe", "unigram"],
)
def test_ids_outside_pieces_unchanged(segmenter):
    ids = sequences([BYTE], [RANKED["b"].id])
    assert rows_of(segmenter.segment(ids, keys(2))) == rows_of(ids)


def test_segmented_ids_keep_dtype():
    segmented = BPEDropout(RANKED, 0.9).segment(sequences([RANKED["abc"].id]), keys(1))
    assert segmented.values.dtype == np.int32


UNIGRAM_SCORES = {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -3.0, "aba": -2.5, "bb": -2.2}
SCORED = {
    name: SubwordPiece(index, score)
    for index, (name, score) in enumerate(UNIGRAM_SCORES.items(), 10)
}
UNIGRAM_TEXTS = [
    f"the {one} sees a {other}" for one in ("dog", "doge", "god") for other in ("god", "egos")
]


def ids_of(text):
    return [SCORED[character].id for character in text]


def all_segmentations(text, pieces):
    """Enumerate the segmentations of a text into pieces."""
    for count in range(len(text)):
        for splits in combinations(range(1, len(text)), count):
            ends = (0, *splits, len(text))
            names = [text[start:end] for start, end in pairwise(ends)]
            if all(name in pieces for name in names):
                yield tuple(names)


def unigram_distribution(text, pieces, alpha):
    """P(segmentation) ~ P(pieces)^alpha, by enumeration."""
    weights = {
        tuple(pieces[name].id for name in segmentation): exp(
            alpha * sum(pieces[name].score for name in segmentation)
        )
        for segmentation in all_segmentations(text, pieces)
    }
    return {
        segmentation: weight / sum(weights.values()) for segmentation, weight in weights.items()
    }


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("text", ["abab", "bbabb", "a"])
def test_segmentations_follow_smoothed_unigram_distribution(text, alpha):
    sampler = UnigramSampler(SCORED, alpha)
    counts = Counter(rows_of(sampler.segment(sequences(*[ids_of(text)] * 20_000), keys(20_000))))
    assert p_value(counts, unigram_distribution(text, SCORED, alpha)) > MIN_P_VALUE


def test_sampling_does_not_depend_on_input_segmentation():
    sampler = UnigramSampler(SCORED, 0.2)
    first = sampler.segment(sequences(*[ids_of("abab")] * 100), keys(100))
    second = sampler.segment(sequences(*[[SCORED["ab"].id, SCORED["ab"].id]] * 100), keys(100))
    assert rows_of(first) == rows_of(second)


def test_clearing_cache_does_not_change_samples():
    """A suffix gets another index when it is cached again: samples must not depend on it."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(["a", "b"], size)) for size in random.integers(1, 9, 200)]
    bounded, unbounded = (
        UnigramSampler(SCORED, 0.2, max_cache_size=3),
        UnigramSampler(SCORED, 0.2),
    )
    together = rows_of(unbounded.segment(sequences(*map(ids_of, texts)), keys(200)))
    for text, key, expected in reversed(list(zip(texts, keys(200), together, strict=True))):
        alone = bounded.segment(sequences(ids_of(text)), np.array([key]))
        assert rows_of(alone) == [expected]


# ----- comparison with SentencePiece


def trained(alpha):
    config = SubwordTokenizerConfig(
        vocab_size=320, subword_regularization=UnigramSamplingConfig(alpha=alpha)
    )
    tokenizer = config.train(UNIGRAM_TEXTS)
    return tokenizer, config.build_regularizer(tokenizer)


def test_large_alpha_returns_most_likely_segmentation():
    tokenizer, regularizer = trained(alpha=1e4)
    assert isinstance(regularizer, SubwordRegularizer)
    rows = tokenizer.encode_batch([*UNIGRAM_TEXTS, "godog", "see the eggs"])
    segmented = regularizer.resegment(sequences(*rows), keys(len(rows)))
    assert rows_of(segmented) == list(map(tuple, rows))


def test_segmentation_frequencies_match_sentencepiece():
    tokenizer, regularizer = trained(alpha=0.3)
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    text, count = "the doge sees", 5000
    row = tokenizer.encode(text)
    ours = Counter(rows_of(regularizer.resegment(sequences(*[row] * count), keys(count))))
    options = {"enable_sampling": True, "alpha": 0.3, "nbest_size": -1}
    theirs = Counter(tuple(processor.encode(text, **options)) for _ in range(count))
    assert len(ours) > 10
    distance = sum(
        abs(ours[segmentation] - theirs[segmentation]) for segmentation in ours | theirs
    ) / (2 * count)
    # Two samples of one distribution differ by about sqrt(segmentations / (pi * count)) at most.
    assert distance < 2 * np.sqrt(len(ours | theirs) / (np.pi * count))

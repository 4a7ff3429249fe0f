"""BPE-dropout follows the algorithm of the paper."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.subword_regularization import BPEDropout, SubwordPiece
from tests.segmentation import MIN_P_VALUE, keys, p_value, rows_of, sequences

# In the order in which they were learned, characters last.
NAMES = ["ab", "abc", "bc", "abab", "cc", "bcc", "a", "b", "c"]
PIECES = {name: SubwordPiece(index + 10, -float(index)) for index, name in enumerate(NAMES)}
WORDS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse", "garden", "window"]
TEXTS = [f"the {one} sees the {other} in the house" for one in WORDS for other in WORDS]
BYTE = 5


def character_ids(text, pieces=PIECES):
    return [pieces[character].id for character in text]


def possible_merges(state, pieces=PIECES):
    """Return the positions of possible merges, best first, leftmost of equals first."""
    merges = [
        (-pieces[left + right].score, position)
        for position, (left, right) in enumerate(pairwise(state))
        if left + right in pieces
    ]
    return [position for _, position in sorted(merges)]


def merged(state, position):
    return (*state[:position], state[position] + state[position + 1], *state[position + 2 :])


def distribution(state, p):
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
        ends = distribution(merged(state, remaining[0]), p) if remaining else {state: 1.0}
        for end, probability in ends.items():
            probabilities[end] += weight * probability
    return probabilities


def greedy(text, pieces=PIECES):
    state = tuple(text)
    while merges := possible_merges(state, pieces):
        state = merged(state, merges[0])
    return state


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("text", ["abcc", "ababc", "aabbc", "a"])
def test_bpe_dropout_frequencies_match_paper_algorithm(text, p):
    spans = sequences(*[[PIECES[name].id for name in greedy(text)]] * 20_000)
    counts = Counter(rows_of(BPEDropout(PIECES, p).segment(spans, keys(20_000))))
    expected = {
        tuple(PIECES[name].id for name in state): weight
        for state, weight in distribution(tuple(text), p).items()
    }
    assert sum(expected.values()) == pytest.approx(1)
    assert p_value(counts, expected) > MIN_P_VALUE


def test_spans_without_dropped_merges_equal_merged_characters():
    """The shortcut for unchanged spans gives the same as merging all characters."""
    texts = ["".join(text) for text in product("abc", repeat=4)]
    dropout = BPEDropout(PIECES, 0.2)
    greedy_ids = [[PIECES[name].id for name in greedy(text)] for text in texts]
    shortcut = dropout.segment(sequences(*greedy_ids), keys(len(texts)))
    full = dropout.merge_characters(sequences(*map(character_ids, texts)), keys(len(texts)))
    assert rows_of(shortcut) == rows_of(full)
    assert rows_of(shortcut) != list(map(tuple, greedy_ids))


def test_ids_outside_pieces_unchanged():
    segmented = BPEDropout(PIECES, 0.5).segment(sequences([BYTE], character_ids("b")), keys(2))
    assert rows_of(segmented) == [(BYTE,), (PIECES["b"].id,)]


@given(text=st.text("abc", min_size=1, max_size=30), others=st.lists(st.text("abc", min_size=1)))
@settings(max_examples=30)
def test_span_segmentation_does_not_depend_on_other_spans(text, others):
    dropout = BPEDropout(PIECES, 0.4)
    texts = [*others, text]
    greedy_ids = [[PIECES[name].id for name in greedy(text)] for text in texts]
    together = rows_of(dropout.segment(sequences(*greedy_ids), keys(len(texts))))
    assert (
        rows_of(dropout.segment(sequences(greedy_ids[-1]), keys(len(texts))[-1:])) == together[-1:]
    )


def test_many_long_spans_match_few(monkeypatch):
    texts = ["abc" * size for size in range(1, 40)]
    dropout = BPEDropout(PIECES, 0.4)
    greedy_ids = [[PIECES[name].id for name in greedy(text)] for text in texts]
    at_once = rows_of(dropout.segment(sequences(*greedy_ids), keys(len(texts))))
    monkeypatch.setattr("heedful.tokenization.subword_regularization._MAX_TABLE_CELLS", 100)
    assert rows_of(dropout.segment(sequences(*greedy_ids), keys(len(texts)))) == at_once


# ----- comparison with SentencePiece

TOKENIZER = SubwordTokenizerConfig(vocab_size=340, model_type="bpe").train(TEXTS)
LETTERS = sorted({letter for text in TEXTS for letter in text} - {" "})


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


def test_segmented_ids_keep_dtype():
    segmented = BPEDropout(PIECES, 0.9).segment(sequences([PIECES["abc"].id]), keys(1))
    assert segmented.values.dtype == np.int32

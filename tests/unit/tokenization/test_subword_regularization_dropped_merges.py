from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tokenization.segments import IdSequences, SubwordPiece
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.subword_regularization import BPEDropout
from tests.cuts import TOO_RARE, how_rare, keys, rows_of, sequences

# In the order they were learned, the characters last.
NAMES = ["ab", "abc", "bc", "abab", "cc", "bcc", "a", "b", "c"]
PIECES = {name: SubwordPiece(number + 10, -float(number)) for number, name in enumerate(NAMES)}
WORDS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse", "garden", "window"]
TEXTS = [f"the {one} sees the {other} in the house" for one in WORDS for other in WORDS]
BYTE = 5


def token_texts(text, pieces=PIECES):
    return [pieces[character].id for character in text]


def merges_of(state, pieces=PIECES):
    """Where two neighbours are a piece together, the best first, of equals the leftmost."""
    found = [
        (-pieces[left + right].score, place)
        for place, (left, right) in enumerate(pairwise(state))
        if left + right in pieces
    ]
    return [place for _, place in sorted(found)]


def merged(state, place):
    return (*state[:place], state[place] + state[place + 1], *state[place + 2 :])


def distribution(state, p):
    """Algorithm 1 of the paper, with every set of dropped merges tried at every step."""
    merges = merges_of(state)
    if not merges:
        return {state: 1.0}
    chances = Counter()
    for dropped in product([True, False], repeat=len(merges)):
        chance = np.prod([p if each else 1 - p for each in dropped])
        left = [place for place, is_dropped in zip(merges, dropped, strict=True) if not is_dropped]
        ends = distribution(merged(state, left[0]), p) if left else {state: 1.0}
        for end, share in ends.items():
            chances[end] += chance * share
    return chances


def greedy(text, pieces=PIECES):
    state = tuple(text)
    while merges := merges_of(state, pieces):
        state = merged(state, merges[0])
    return state


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("text", ["abcc", "ababc", "aabbc", "a"])
def test_bpe_dropout_frequencies_match_paper_algorithm(text, p):
    stretches = sequences(*[[PIECES[name].id for name in greedy(text)]] * 20_000)
    counts = Counter(rows_of(BPEDropout(PIECES, p).segment(stretches, keys(20_000))))
    expected = {
        tuple(PIECES[name].id for name in state): chance
        for state, chance in distribution(tuple(text), p).items()
    }
    assert sum(expected.values()) == pytest.approx(1)
    assert how_rare(counts, expected) > TOO_RARE


def test_spans_without_dropped_merges_equal_merged_characters():
    """The short way round gives, key by key, what the long one gives."""
    texts = ["".join(text) for text in product("abc", repeat=4)]
    cuts = BPEDropout(PIECES, 0.2)
    plain = [[PIECES[name].id for name in greedy(text)] for text in texts]
    short = cuts.segment(sequences(*plain), keys(len(texts)))
    long = cuts.merge_characters(sequences(*map(token_texts, texts)), keys(len(texts)))
    assert rows_of(short) == rows_of(long)
    assert rows_of(short) != list(map(tuple, plain))


def test_ids_outside_pieces_are_unchanged():
    found = BPEDropout(PIECES, 0.5).segment(sequences([BYTE], token_texts("b")), keys(2))
    assert rows_of(found) == [(BYTE,), (PIECES["b"].id,)]


@given(text=st.text("abc", min_size=1, max_size=30), others=st.lists(st.text("abc", min_size=1)))
@settings(max_examples=30)
def test_span_segmentation_does_not_depend_on_other_spans(text, others):
    cuts = BPEDropout(PIECES, 0.4)
    texts = [*others, text]
    plain = [[PIECES[name].id for name in greedy(each)] for each in texts]
    together = rows_of(cuts.segment(sequences(*plain), keys(len(texts))))
    assert rows_of(cuts.segment(sequences(plain[-1]), keys(len(texts))[-1:])) == together[-1:]


def test_many_long_spans_match_few(monkeypatch):
    texts = ["abc" * size for size in range(1, 40)]
    cuts = BPEDropout(PIECES, 0.4)
    plain = [[PIECES[name].id for name in greedy(each)] for each in texts]
    at_once = rows_of(cuts.segment(sequences(*plain), keys(len(texts))))
    monkeypatch.setattr("heedful.tokenization.subword_regularization._MAX_TABLE_CELLS", 100)
    assert rows_of(cuts.segment(sequences(*plain), keys(len(texts)))) == at_once


# --- beside SentencePiece --------------------------------------------------------------------

TOKENIZER = SubwordTokenizerConfig(vocab_size=340, model_type="bpe").train(TEXTS)
LETTERS = sorted({letter for text in TEXTS for letter in text} - {" "})


@given(words=st.lists(st.text(LETTERS, min_size=1) | st.sampled_from(WORDS), min_size=1))
@settings(max_examples=50)
def test_zero_dropout_matches_sentencepiece(words):
    pieces = TOKENIZER.learned_pieces
    stretches = ["\u2581" + word for word in words]
    found = BPEDropout(pieces, 0.0).merge_characters(
        sequences(*(token_texts(each, pieces) for each in stretches)),
        keys(len(words)),
    )
    assert found.ids.tolist() == TOKENIZER.encode(" ".join(words))


def test_segmented_ids_keep_dtype():
    found = BPEDropout(PIECES, 0.9).segment(
        IdSequences(np.array([PIECES["abc"].id], np.int32), np.array([1])), keys(1)
    )
    assert found.ids.dtype == np.int32

"""CIDEr-D by hand, against slow loops from the paper's formula, and its invariants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.cider_d import CiderD, HashTable, NgramCounts
from heedful.tokenization.ragged_array import RaggedArray
from tests.unit.evaluation.slow_cider_d import slow_cider_d

A, DOG, RUNS, CAT, SITS, BARKS = range(6)
TEXTS = st.lists(st.integers(0, 5), max_size=8)
GROUPS = st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=5)


def score(groups, outputs, rows=None):
    """The scores of outputs; the n-th belongs to the n-th group unless `rows` says otherwise."""
    rows = range(len(outputs)) if rows is None else rows
    sequences = RaggedArray.from_sequences(outputs)
    return CiderD.from_groups(groups).score(sequences, np.array(rows, dtype=np.int64))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        # Of two documents every word but "a" is in one and weighs log 2; "a" weighs nothing.
        # "dog" of (dog, sits) and (dog, runs): 1 / 2; "a dog" of two pairs each: 1 / 2; no triple.
        ([A, DOG, SITS], 10 / 4 * (1 / 2 + 1 / 2)),
        # Equal: 1 for words, pairs and triples; there are no runs of four words.
        ([A, DOG, RUNS], 10 / 4 * 3),
        # "dog" counts once of three times: min(3, 1) * 1 / (3 sqrt(2)).
        ([DOG, DOG, DOG], 10 / 4 / (3 * math.sqrt(2))),
        # Two pairs of words shorter: exp(-2^2 / (2 * 6^2)).
        ([DOG], 10 / 4 / math.sqrt(2) * math.exp(-1 / 18)),
        # "barks" is in no reference: as rare as a word of one document.
        ([A, DOG, BARKS], 10 / 4 * (1 / 2 + 1 / 2)),
        ([A], 0.0),
        ([], 0.0),
    ],
)
def test_score_same_as_hand_calculation(output, expected):
    references = [[[A, DOG, RUNS]], [[A, CAT, SITS]]]
    assert score(references, [output]) == pytest.approx([expected])


def test_score_is_the_mean_over_references():
    groups = [[[A, DOG, RUNS], [A, DOG, SITS]], [[A, CAT, SITS]]]
    # "sits" is now in both documents. Against (dog, runs): 1, 1, 1. Against (dog): "dog" of
    # (dog, runs), 1 / sqrt(2); "a dog" of two pairs each: 1 / 2; no triple.
    expected = 10 / 4 * (3 + 1 / math.sqrt(2) + 1 / 2) / 2
    assert score(groups, [[A, DOG, RUNS]]) == pytest.approx([expected])


@given(groups=GROUPS, data=st.data())
def test_score_same_as_slow_loops(groups, data):
    rows = data.draw(st.lists(st.integers(0, len(groups) - 1), min_size=1, max_size=6))
    outputs = [data.draw(TEXTS) for _ in rows]
    expected = [
        slow_cider_d(groups, output, row) for output, row in zip(outputs, rows, strict=True)
    ]
    assert score(groups, outputs, rows) == pytest.approx(expected)


@given(groups=GROUPS, data=st.data())
def test_score_does_not_depend_on_the_batch(groups, data):
    rows = data.draw(st.lists(st.integers(0, len(groups) - 1), min_size=1, max_size=6))
    outputs = [data.draw(TEXTS) for _ in rows]
    together = score(groups, outputs, rows)
    alone = [score(groups, [output], [row])[0] for output, row in zip(outputs, rows, strict=True)]
    assert together == pytest.approx(alone, abs=1e-12)


@given(groups=GROUPS, output=TEXTS)
def test_no_output_scores_higher_than_a_single_reference(groups, output):
    alone = [group[:1] for group in groups]
    scores = score(alone, [output, alone[0][0]], [0, 0])
    assert scores[0] <= scores[1] + 1e-9
    assert 0 <= scores[1] <= 10 + 1e-9


def test_references_may_come_in_any_order_of_groups():
    texts = [[A, DOG, RUNS], [A, CAT, SITS], [DOG, RUNS], [CAT]]
    mixed = CiderD(RaggedArray.from_sequences(texts), np.array([0, 1, 0, 1]))
    sorted_groups = CiderD.from_groups([[texts[0], texts[2]], [texts[1], texts[3]]])
    outputs, rows = RaggedArray.from_sequences([[A, DOG], [CAT, SITS]]), np.array([0, 1])
    assert mixed.score(outputs, rows) == pytest.approx(sorted_groups.score(outputs, rows))
    assert (mixed.num_groups, mixed.num_ngrams) == (2, 5 + 4 + 2)


def test_nothing_to_score_and_nothing_to_compare_with():
    assert score([[[A, DOG]]], []).shape == (0,)
    assert score([[[]], [[]]], [[A], []]).tolist() == [0.0, 0.0]


def test_order_is_a_part_of_the_hash():
    # Token 0 is a token: "0" and "0 0" are different n-grams.
    ngrams = NgramCounts.from_sequences(RaggedArray.from_sequences([[0, 0, 0, 0]]))
    assert dict(zip(ngrams.orders.tolist(), ngrams.counts.tolist(), strict=True)) == {
        0: 4,
        1: 3,
        2: 2,
        3: 1,
    }


@given(st.sets(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_hash_table_finds_what_it_has_and_nothing_else(known, others):
    hashes = sorted(known)
    queries = [*hashes, *others]
    expected = [hashes.index(query) if query in known else -1 for query in queries]
    found = HashTable(np.array(hashes, np.uint64)).find(np.array(queries, np.uint64))
    assert found.tolist() == expected

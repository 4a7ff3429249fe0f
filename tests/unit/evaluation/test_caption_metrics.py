"""Metrics of captions by hand; the package is met in tests/conformance/test_coco_caption.py."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import compute_score
from heedful.evaluation.breakdowns import LabelBreakdown
from heedful.evaluation.caption_metrics import CiderD, HashTable, NgramCounts, caption_words
from heedful.evaluation.registry import CAPTION_METRICS
from heedful.evaluation.significance import bootstrap_interval, compare_systems
from heedful.tokenization.ragged_array import RaggedArray
from tests.unit.evaluation.slow_cider_d import slow_cider_d

REFERENCES = [
    ["A dog runs on the grass .", "a brown dog is running"],
    ["Two men sit on a bench .", "the men sit"],
]
OUTPUTS = ["a dog runs on a bench", "two men sit on a bench"]


def value(name, outputs=OUTPUTS, references=REFERENCES):
    return compute_score(CAPTION_METRICS[name], outputs, references).value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "A man's T-shirt, (red) - isn't it?",
            ["a", "man", "'s", "t-shirt", "red", "is", "n't", "it"],
        ),
        ("the man 's shirt does n't fit .", ["the", "man", "'s", "shirt", "does", "n't", "fit"]),
        ('two "dogs" & 3.5 cats ...', ["two", "dogs", "&", "3.5", "cats"]),
        ("caf\u00e9 \u2014 \u201cna\u00efve\u201d", ["caf\u00e9", "na\u00efve"]),
        (" . ! ", []),
        ("", []),
    ],
)
def test_words_of_captions(text, words):
    assert caption_words(text) == words


def test_bleu_same_as_hand_calculation():
    # Words: a, dog, runs, on of 6 ("a" once) and 6 of 6. Pairs: a dog, dog runs, runs on of 5; 5 of
    # 5. Triples: 2 of 4; 4 of 4. Four words: 1 of 3; 3 of 3. Closest lengths: 6 and 6.
    precisions = [10 / 12, 8 / 10, 6 / 8, 4 / 6]
    for order in range(1, 5):
        expected = 100 * math.prod(precisions[:order]) ** (1 / order)
        assert value(f"bleu-{order}") == pytest.approx(expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_without_a_match_has_the_constants_of_coco_caption(order):
    num_ngrams = [2, 1, 0, 0][:order]
    product = math.prod((0 + 1e-15) / (number + 1e-9) for number in num_ngrams)
    expected = 100 * product ** (1 / order)
    assert value(f"bleu-{order}", ["a dog"], [["two men"]]) == pytest.approx(expected, rel=1e-6)


def test_bleu_takes_the_shorter_of_two_equally_close_lengths():
    # Of references with 2 and 6 words, 2 counts for an output of 4: no brevity penalty.
    assert value("bleu-1", ["a b c d"], [["a b", "a b c d e f"]]) == pytest.approx(100)
    assert value("bleu-1", ["a b c d"], [["a b c d e f"]]) == pytest.approx(100 * math.exp(-1 / 2))


def test_rouge_l_takes_precision_and_recall_from_different_references():
    # Output "a b c d": of "a b c d e f g h" P = 1, R = 1 / 2; of "a b x" P = 1 / 2, R = 2 / 3.
    result = value("caption-rouge-l", ["a b c d"], [["a b c d e f g h", "a b x"]])
    assert result == pytest.approx(100 * 2.44 * 1 * (2 / 3) / (2 / 3 + 1.44 * 1))
    assert value("caption-rouge-l", ["x y"], [["a b"]]) == 0
    assert value("caption-rouge-l", [""], [["a b"]]) == 0


def test_cider_d_same_as_hand_calculation():
    # As in test_cider_d.py: words of one document weigh log 2, "a" nothing. For the
    # first caption words and pairs are half right; the second has three kinds of runs all right.
    references = [["a dog runs"], ["a cat sits"]]
    result = value("cider-d", ["A dog sits .", "a cat sits"], references)
    assert result == pytest.approx(100 * (2.5 + 7.5) / 2)


def test_cider_d_of_a_single_caption_is_zero():
    assert value("cider-d", ["a dog"], [["a dog"]]) == 0
    assert compute_score(CAPTION_METRICS["cider-d"], [], []).signature.startswith("nrefs:var")


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("bleu-2", "nrefs:2|case:lc|tok:caption|punct:no|order:2|smooth:none|version:"),
        ("caption-rouge-l", "nrefs:2|case:lc|tok:caption|punct:no|beta:1.2"),
        ("cider-d", "nrefs:2|case:lc|tok:caption|punct:no|n:4|sigma:6|df:references"),
    ],
)
def test_signatures(name, signature):
    assert CAPTION_METRICS[name].signature(REFERENCES).startswith(signature)


WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=2, max_size=6), st.data())
def test_groups_keep_the_document_frequencies_of_the_test_set(rows, data):
    outputs, *columns = zip(*rows, strict=True)
    references = list(zip(*columns, strict=True))
    labels = [data.draw(st.sampled_from("xy")) for _ in rows]
    metric = CAPTION_METRICS["cider-d"]
    groups = LabelBreakdown(labels).score_groups(metric, outputs, references)
    total = sum(group.size * group.score.value for group in groups) / len(rows)
    assert total == pytest.approx(compute_score(metric, outputs, references).value)


@pytest.mark.parametrize("name", ["bleu-4", "caption-rouge-l", "cider-d"])
def test_paired_test_tells_a_better_system_from_an_equal_one(name):
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(40)]
    texts = [rng.choice(words, 8).tolist() for _ in range(60)]
    references = [[" ".join(text), " ".join([*text[:6], "x"])] for text in texts]
    metric = CAPTION_METRICS[name]
    good, equal, bad = (
        metric.sentence_statistics([" ".join([*text[:kept], "y"]) for text in texts], references)
        for kept in (7, 7, 5)
    )
    better = compare_systems(good, bad, metric.compute, num_samples=500)
    assert better.value > 0
    assert better.is_significant
    assert compare_systems(good, equal, metric.compute, num_samples=500) == (0.0, 1.0)
    low, high, _ = bootstrap_interval(good, metric.compute, num_samples=200)
    assert low <= float(metric.compute(good.sum(axis=0))) <= high


A, DOG, RUNS, CAT, SITS, BARKS = range(6)
TOKENS = st.lists(st.integers(0, 5), max_size=8)
GROUPS = st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=5)


def cider_d(groups, outputs, rows=None):
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
    assert cider_d(references, [output]) == pytest.approx([expected])


@given(groups=GROUPS, data=st.data())
def test_score_same_as_slow_loops(groups, data):
    rows = data.draw(st.lists(st.integers(0, len(groups) - 1), min_size=1, max_size=6))
    outputs = [data.draw(TOKENS) for _ in rows]
    expected = [
        slow_cider_d(groups, output, row) for output, row in zip(outputs, rows, strict=True)
    ]
    assert cider_d(groups, outputs, rows) == pytest.approx(expected)


@given(groups=GROUPS, output=TOKENS)
def test_no_output_scores_higher_than_a_single_reference(groups, output):
    alone = [group[:1] for group in groups]
    scores = cider_d(alone, [output, alone[0][0]], [0, 0])
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
    assert cider_d([[[A, DOG]]], []).shape == (0,)
    assert cider_d([[[]], [[]]], [[A], []]).tolist() == [0.0, 0.0]


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

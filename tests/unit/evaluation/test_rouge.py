"""ROUGE by hand; the package is met in test_rouge_parity."""

import pytest

from heedful.evaluation.base import compute_score
from heedful.evaluation.text_metrics import (
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    Rouge,
    RougeScore,
    ascii_words,
    unicode_words,
)

OUTPUT, REFERENCE = "the gunman killed the police", "police killed the gunman"


def test_rouge_1_and_2_match_hand_calculation():
    # 4 of 5 words, all 4 of the reference; "the gunman", "killed the": 2 of 4 pairs and of 3.
    assert ROUGE_1.score_pair(OUTPUT, [REFERENCE]) == pytest.approx((4 / 5, 1, 8 / 9))
    assert ROUGE_2.score_pair(OUTPUT, [REFERENCE]) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


def test_rouge_l_same_as_hand_calculation():
    # "killed the" and "the gunman": 2 of 5 and 2 of 4.
    assert ROUGE_L.score_pair(OUTPUT, [REFERENCE]) == pytest.approx((2 / 5, 2 / 4, 4 / 9))


def test_rouge_of_a_corpus_is_the_mean_over_texts():
    result = compute_score(ROUGE_1, [OUTPUT, "x"], [REFERENCE, "y"])
    assert result.value == pytest.approx(100 * (8 / 9 + 0) / 2)
    assert result.signature == "nrefs:1|case:lc|tok:a-z0-9|stem:no|part:f"


def test_rouge_precision_and_recall():
    precision, recall = (Rouge("", ROUGE_1.overlap, part) for part in ("precision", "recall"))
    assert compute_score(precision, [OUTPUT], [REFERENCE]).value == pytest.approx(80)
    assert compute_score(recall, [OUTPUT], [REFERENCE]).value == 100


def test_rouge_takes_the_reference_with_the_best_f():
    assert ROUGE_1.score_pair("a b", ["a x y z", "a b c"]) == ROUGE_1.score_pair("a b", ["a b c"])


def test_rouge_of_empty_texts_is_zero():
    for metric in (ROUGE_1, ROUGE_2, ROUGE_L):
        assert metric.score_pair("", ["a"]) == metric.score_pair("...", [""]) == RougeScore(0, 0, 0)


def test_rouge_tokenizers():
    text = "Der M\u00e4rz, 2 gr\u00fc\u00dfe"
    assert ascii_words(text) == ["der", "m", "rz", "2", "gr", "e"]
    assert unicode_words(text) == ["der", "m\u00e4rz", "2", "gr\u00fc\u00dfe"]
    kept = Rouge("", ROUGE_1.overlap, tokenize=unicode_words)
    assert kept.signature([["a"]]) == "nrefs:1|case:lc|tok:unicode_words|stem:no|part:f"


def test_rouge_stems_words_of_four_letters_or_more():
    stemmed = Rouge("", ROUGE_1.overlap, stem=lambda word: word[:-1])
    assert stemmed.score_pair("dogs cat", ["dogx caz"]) == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert "stem:yes" in stemmed.signature([["a"]])

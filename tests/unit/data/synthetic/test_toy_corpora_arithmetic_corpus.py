"""Sums in words, worked out a second way."""

import re
from itertools import islice

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.toy_corpora import MAX_NUMBER, number_to_words

SYMBOLS = {"plus": "+", "minus": "-", "times": "*"}
NUMBERS = {number_to_words(number): number for number in range(MAX_NUMBER + 1)}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (7, "seven"),
        (13, "thirteen"),
        (20, "twenty"),
        (42, "forty-two"),
        (90, "ninety"),
        (100, "one hundred"),
        (105, "one hundred five"),
        (999, "nine hundred ninety-nine"),
        (1000, "one thousand"),
        (1018, "one thousand eighteen"),
        (3200, "three thousand two hundred"),
        (9999, "nine thousand nine hundred ninety-nine"),
    ],
)
def test_number_to_words_spells_english(number, words):
    assert number_to_words(number) == words


def test_number_words_are_unique():
    assert len(NUMBERS) == MAX_NUMBER + 1


def test_arithmetic_targets_equal_python_eval():
    for source, target in islice(get_corpus("arithmetic").pairs("train"), 5000):
        parts = re.split(r" (plus|minus|times) ", source.removesuffix(" equals"))
        assert source.endswith(" equals")
        assert 3 <= len(parts) <= 7
        formula = " ".join(SYMBOLS.get(part) or str(NUMBERS[part]) for part in parts)
        assert eval(formula) == NUMBERS[target]  # digits and three operators only


def test_evaluate_expression_multiplies_before_adding():
    from heedful.data.synthetic.toy_corpora import evaluate_expression

    assert evaluate_expression([2, 3, 3], ["times", "times"]) == 18
    assert evaluate_expression([2, 3, 4], ["plus", "times"]) == 14
    assert evaluate_expression([9, 3, 2], ["minus", "minus"]) == 4


def test_arithmetic_covers_operators_and_lengths():
    pairs = list(islice(get_corpus("arithmetic").pairs("train"), 2000))
    counts = {sum(source.count(operator) for operator in SYMBOLS) for source, _ in pairs}
    assert counts == {1, 2, 3}
    assert all(any(operator in source for source, _ in pairs) for operator in SYMBOLS)

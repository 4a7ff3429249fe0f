"""Sums in words, worked out a second way."""

import re
from itertools import islice

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.toy_corpora import MAX_NUMBER, RESERVED_NUMBERS, number_to_words

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


def parse(source):
    """Return the operands and operators of a sum in words."""
    assert source.endswith(" equals")
    parts = re.split(r" (plus|minus|times) ", source.removesuffix(" equals"))
    return [NUMBERS[words] for words in parts[::2]], parts[1::2]


def sums(name, split, count=300):
    return [
        (*parse(source), NUMBERS[target])
        for source, target in islice(get_corpus(name).pairs(split), count)
    ]


@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("arithmetic", "train", 5000),
        ("arithmetic", "longer", 300),
        ("arithmetic", "larger", 300),
        ("arithmetic-gaps", "train", 300),
        ("arithmetic-gaps", "numbers", 300),
    ],
)
def test_arithmetic_targets_equal_python_eval(name, split, count):
    for numbers, operators, result in sums(name, split, count):
        signs = [*(SYMBOLS[operator] for operator in operators), ""]
        formula = " ".join(f"{number} {sign}" for number, sign in zip(numbers, signs, strict=True))
        assert eval(formula) == result  # digits and three operators only


@pytest.mark.parametrize("name", ["arithmetic", "arithmetic-gaps"])
def test_further_splits_are_beyond_the_training_data(name):
    trained = sums(name, "train", 3000)
    assert {len(operators) for _, operators, _ in trained} == {1, 2, 3}
    assert {len(operators) for _, operators, _ in sums(name, "longer")} == {4, 5, 6}
    for numbers, operators, _ in sums(name, "larger"):
        neighbors = zip(["", *operators], [*operators, ""], strict=True)
        for number, around in zip(numbers, neighbors, strict=True):
            assert number > (20 if "times" in around else 99)


def test_reserved_numbers_are_operands_of_one_split_only():
    reserved = set(RESERVED_NUMBERS)
    for split in ("train", "dev", "test", "longer", "larger"):
        operands = {number for numbers, *_ in sums("arithmetic-gaps", split) for number in numbers}
        assert not operands & reserved
    found = [reserved.intersection(numbers) for numbers, *_ in sums("arithmetic-gaps", "numbers")]
    assert all(found)
    assert set.union(*found) == reserved
    words = {word for numbers, *_ in sums("arithmetic-gaps", "train", 3000) for word in numbers}
    known = {part for number in words for part in number_to_words(number).split("-")}
    for number in reserved:
        assert set(number_to_words(number).split("-")) <= known


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

"""Sums in words, dates and letters, worked out a second way."""

import re
from datetime import date, datetime
from itertools import islice

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.corpus import (
    FIRST_DAY,
    LAST_DAY,
    MAX_LENGTH,
    MAX_NUMBER,
    RESERVED_NUMBERS,
    STYLES,
    format_date,
    number_to_words,
)

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
    from heedful.data.synthetic.corpus import evaluate_expression

    assert evaluate_expression([2, 3, 3], ["times", "times"]) == 18
    assert evaluate_expression([2, 3, 4], ["plus", "times"]) == 14
    assert evaluate_expression([9, 3, 2], ["minus", "minus"]) == 4


def test_arithmetic_covers_operators_and_lengths():
    pairs = list(islice(get_corpus("arithmetic").pairs("train"), 2000))
    counts = {sum(source.count(operator) for operator in SYMBOLS) for source, _ in pairs}
    assert counts == {1, 2, 3}
    assert all(any(operator in source for source, _ in pairs) for operator in SYMBOLS)


FORMATS = [
    "%d %B %Y",
    "%B %d, %Y",
    "%A, %d %B %Y",
    "%A, %B %d, %Y",
    "%a %d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%Y, %B %d",
]


def said(day):
    return [format_date(day, style) for style in STYLES]


def read(text):
    """Read a date with the standard library, after ordinals are made plain numbers."""
    plain = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text)
    for form in FORMATS:
        try:
            return datetime.strptime(plain, form).date()
        except ValueError:
            continue
    return None


def test_date_styles():
    assert said(date(1987, 3, 3)) == [
        "3 March 1987",
        "March 3, 1987",
        "3rd March 1987",
        "March 3rd, 1987",
        "the third of March 1987",
        "March the third, 1987",
        "Tuesday, 3 March 1987",
        "Tuesday, March 3rd, 1987",
        "Tue 3 Mar 1987",
        "03-Mar-1987",
        "Mar 3, 1987",
        "1987, March 3",
    ]


def test_numeric_ordinals_have_correct_suffixes():
    days = (1, 2, 11, 12, 13, 21, 22, 23, 31)
    numbered = [said(date(2000, 1, day))[2].split()[0] for day in days]
    assert " ".join(numbered) == "1st 2nd 11th 12th 13th 21st 22nd 23rd 31st"


def test_ordinal_words_are_correct():
    worded = [said(date(2000, 1, day))[4] for day in (12, 20, 23, 30, 31)]
    assert worded == [
        f"the {word} of January 2000"
        for word in ("twelfth", "twentieth", "twenty-third", "thirtieth", "thirty-first")
    ]


def test_leap_day_is_valid():
    assert said(date(2000, 2, 29))[6] == "Tuesday, 29 February 2000"


def test_dates_parse_with_strptime():
    num_read = 0
    for source, target in islice(get_corpus("dates").pairs("train"), 4000):
        day = date.fromisoformat(target)
        assert FIRST_DAY <= day <= LAST_DAY
        found = read(source)
        if found is None:  # the two styles with the day in words
            assert source in said(day)
        else:
            num_read += 1
            assert found == day
            if source.split(",")[0].endswith("day"):
                assert source.startswith(day.strftime("%A"))
    assert num_read > 3000


def test_date_texts_are_unambiguous():
    days = [date(1999, month, day) for month in range(1, 13) for day in range(1, 29)]
    texts = [text for day in days for text in said(day)]
    repeated = len(texts) - len(set(texts))
    assert repeated == 28  # "May" is its own abbreviation: "May 3, 1999" comes twice for one day


EXPECTED = {
    "copy": lambda letters: letters,
    "reverse": lambda letters: letters[::-1],
    "sort": lambda letters: "".join(sorted(letters)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sequence_targets_transformed_letters(name):
    for source, target in islice(get_corpus(name).pairs("train"), 2000):
        letters = source.replace(" ", "")
        assert " ".join(letters) == source
        assert " ".join(EXPECTED[name](letters)) == target


@pytest.mark.parametrize("name", EXPECTED)
def test_sequence_lengths_cover_range(name):
    lengths = {len(pair.source.split()) for pair in islice(get_corpus(name).pairs("train"), 2000)}
    assert lengths == set(range(1, MAX_LENGTH + 1))


@pytest.mark.parametrize("name", EXPECTED)
def test_longer_split_has_more_letters_than_any_other(name):
    lengths = {len(pair.source.split()) for pair in islice(get_corpus(name).pairs("longer"), 200)}
    assert lengths == set(range(MAX_LENGTH + 1, MAX_LENGTH + 6))


def test_argsort_targets_are_positions_that_sort_the_letters():
    for source, target in islice(get_corpus("argsort").pairs("train"), 2000):
        letters, positions = source.split(), [int(position) for position in target.split()]
        assert sorted(positions) == list(range(1, len(letters) + 1))
        assert "".join(letters[position - 1] for position in positions) == "".join(sorted(letters))

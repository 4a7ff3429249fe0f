import pytest

from heedful.evaluation.breakdowns import scores_by_label, scores_by_sentence_type, sentence_types
from heedful.evaluation.registry import exact_match


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("Quis est?", ["question"]),
        ('"Quis est?" ', ["question"]),
        ("\u8ab0\uff1f", ["question"]),
        ("Quis? nemo.", ["plain"]),
        ("He saw 3 dogs.", ["digits"]),
        ("The dog sees Marcus.", ["name"]),
        ("Marcus sleeps.", ["plain"]),
        ("Is Marcus 7 years old?", ["question", "digits", "name"]),
        ("", ["plain"]),
    ],
)
def test_kinds_are_told_by_signs(source, kinds):
    assert sentence_types(source) == kinds


def test_a_word_that_is_known_is_no_name():
    assert sentence_types("Der Hund sieht Marcus.", {"Hund"}) == ["name"]
    assert sentence_types("Der Hund schlaeft.", {"Hund"}) == ["plain"]


def test_a_sentence_is_measured_in_each_of_its_kinds():
    sources, outputs = ["Is 7 odd?", "Yes.", "Is it?"], ["a", "b", "c"]
    found = scores_by_sentence_type(sources, outputs, ["a", "x", "x"], exact_match)
    assert [(each.name, each.size, each.score.value) for each in found] == [
        *(("question", 2, 50), ("digits", 1, 100), ("plain", 1, 0))
    ]


def test_kinds_may_be_told_by_any_function():
    found = scores_by_sentence_type(
        ["aa", "b"], "xy", "xx", exact_match, classify=lambda text: [str(len(text))]
    )
    assert [(each.name, each.score.value) for each in found] == [("1", 0), ("2", 100)]


def test_labels_part_outputs_and_an_empty_one_is_no_group():
    found = scores_by_label(["law ", "news", "", "law"], "abcd", "axcx", exact_match)
    assert [(each.name, each.size, each.score.value) for each in found] == [
        *(("law", 2, 50), ("news", 1, 0))
    ]

import pytest

from heedful.evaluation.breakdowns import (
    Breakdown,
    LabelBreakdown,
    SentenceTypeBreakdown,
    sentence_types,
)
from heedful.evaluation.registry import METRICS

EXACT_MATCH = METRICS["exact-match"]


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
def test_sentence_types(source, kinds):
    assert sentence_types(source) == kinds


def test_sentence_counts_in_each_of_its_types():
    sources, outputs = ["Is 7 odd?", "Yes.", "Is it?"], ["a", "b", "c"]
    breakdown = SentenceTypeBreakdown(sources)
    result = breakdown.score_groups(EXACT_MATCH, outputs, ["a", "x", "x"])
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("question", 2, 50), ("digits", 1, 100), ("plain", 1, 0))
    ]


def test_custom_sentence_classifier():
    breakdown = Breakdown("letters", [[str(len(text))] for text in ["aa", "b"]])
    result = breakdown.score_groups(EXACT_MATCH, "xy", "xx")
    assert [(each.name, each.score.value) for each in result] == [("1", 0), ("2", 100)]


def test_empty_label_is_skipped():
    breakdown = LabelBreakdown(["law ", "news", "", "law"])
    result = breakdown.score_groups(EXACT_MATCH, "abcd", "axcx")
    assert [(each.name, each.size, each.score.value) for each in result] == [
        *(("law", 2, 50), ("news", 1, 0))
    ]

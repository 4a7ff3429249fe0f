import pytest

from heedful.evaluation.breakdowns import (
    LabelBreakdown,
    LengthBreakdown,
    SentenceTypeBreakdown,
    WordFrequencyBreakdown,
)
from heedful.evaluation.registry import METRICS

SOURCES = ["Who sleeps?", "a b c d e f", "a b"]
OUTPUTS, REFERENCES = ["x y", "y", "z"], ["x y", "y", "w"]


@pytest.mark.parametrize(
    ("breakdown", "parts"),
    [
        (LengthBreakdown(SOURCES), {"1-5": 50, "6-10": 100}),
        (LengthBreakdown(SOURCES, bin_width=6), {"1-6": pytest.approx(200 / 3)}),
        (WordFrequencyBreakdown({"x": 1, "y": 3}, REFERENCES), {"0": 0, "1": 100, "2-4": 100}),
        (SentenceTypeBreakdown(SOURCES), {"question": 100, "plain": 50}),
        (LabelBreakdown(["b", "a", "a"]), {"a": 50, "b": 100}),
    ],
)
def test_breakdown_scores_each_group_separately(breakdown, parts):
    result = breakdown.score_groups(METRICS["exact-match"], OUTPUTS, REFERENCES)
    assert {each.name: each.score.value for each in result} == parts
    assert sum(each.size for each in result) == 3
    assert all(each.score.name == "exact match" for each in result)
    assert breakdown.title


def test_word_frequency_uses_texts_for_alignment_metrics():
    breakdown = WordFrequencyBreakdown({"x": 1, "y": 3}, REFERENCES)
    result = breakdown.score_groups(METRICS["aer"], ["0-0", "0-0", "0-1"], ["0-0", "0-0", "0-0"])
    assert [(each.name, each.score.value) for each in result] == [("0", 100), ("1", 0), ("2-4", 0)]

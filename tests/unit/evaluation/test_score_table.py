import pytest

from heedful.evaluation.base import MetricScore
from heedful.evaluation.breakdowns import GroupScore
from heedful.evaluation.registry import METRICS
from heedful.evaluation.score_table import (
    ScoreEntry,
    entry_to_dict,
    format_entries,
    format_group_table,
    score_outputs,
)
from heedful.evaluation.significance import Difference, Interval

METRIC = MetricScore("BLEU", 31.256, "tok:13a")
OUTPUTS, REFERENCES, WORSE = ["a", "b", "c"] * 5, ["a", "b", "x"] * 5, ["a", "y", "y"] * 5


def test_interval_and_baseline_are_optional():
    result = score_outputs(METRICS["exact-match"], OUTPUTS, REFERENCES)
    assert result.score.value == pytest.approx(200 / 3)
    assert (result.interval, result.difference, result.groups) == (None, None, ())


def test_entry_with_interval_and_baseline():
    metric = METRICS["exact-match"]
    result = score_outputs(metric, OUTPUTS, REFERENCES, baseline=WORSE, confidence=True)
    assert result.interval.low < result.score.value < result.interval.high
    assert result.difference.value == pytest.approx(100 / 3)
    # All of 5 exchanges must go one way: 2 of 2^5 ways, 1/16.
    assert result.difference.p_value == pytest.approx(1 / 16, abs=0.01)


def test_lines_have_score_interval_difference_and_signature():
    entry = ScoreEntry(METRIC, Interval(29.8, 32.71, 0.95), Difference(-1.5, 0.0123))
    assert list(format_entries([entry])) == [
        "BLEU          31.26   [29.80, 32.71]     -1.50 p=0.0123*   tok:13a",
        "[ ] 95 % of 1000 bootstrap samples",
        "+- from the baseline; * p < 0.05, by approximate randomization (10000 trials)",
    ]
    assert list(format_entries([ScoreEntry(METRIC)], digits=1)) == ["BLEU          31.3   tok:13a"]


def test_columns_aligned():
    sure = ScoreEntry(METRIC, Interval(9.8, 100, 0.95), Difference(-1.5, 0.0123))
    large = ScoreEntry(
        MetricScore("perplexity", 12345.6, "per:token"), Interval(9, 10, 0.95), sure.difference
    )
    alone = ScoreEntry(MetricScore("word recall", 9.5, "tok:words"))
    assert list(format_entries([sure, large, alone]))[:3] == [
        "BLEU            31.26   [9.80, 100.00]     -1.50 p=0.0123*   tok:13a",
        "perplexity   12345.60    [9.00, 10.00]     -1.50 p=0.0123*   per:token",
        "word recall      9.50                                        tok:words",
    ]


def test_insignificant_difference_has_no_mark():
    (line, _) = format_entries([ScoreEntry(METRIC, difference=Difference(0.5, 0.3))])
    assert "+0.50 p=0.3000 " in line


def test_group_table_has_a_row_for_each_group():
    groups = [GroupScore("1-5", 120, METRIC), GroupScore("6-10", 3, None)]
    other = [GroupScore("1-5", 120, METRIC._replace(value=100)), GroupScore("6-10", 3, None)]
    entries = [
        ScoreEntry(METRIC, groups=groups),
        ScoreEntry(MetricScore("chrF", 1, ""), groups=other),
    ]
    assert list(format_group_table("words", "outputs", entries)) == [
        "words  outputs   BLEU    chrF",
        "1-5        120  31.26  100.00",
        "6-10         3      -       -",
    ]


def test_json_has_only_computed_fields():
    assert entry_to_dict(ScoreEntry(METRIC)) == {
        "name": "BLEU",
        "value": 31.256,
        "signature": "tok:13a",
    }
    groups = [GroupScore("a", 2, METRIC), GroupScore("b", 1, None)]
    report = entry_to_dict(ScoreEntry(METRIC, Interval(1, 2, 0.95), Difference(1.256, 0.5), groups))
    assert report["interval"] == {
        "low": 1,
        "high": 2,
        "level": 0.95,
        "num_samples": 1000,
        "seed": 12345,
    }
    assert report["baseline"] == {
        **{"value": pytest.approx(30), "difference": 1.256, "p_value": 0.5, "num_trials": 10000}
    }
    assert report["groups"] == [
        {"name": "a", "size": 2, "value": 31.256},
        {"name": "b", "size": 1, "value": None},
    ]

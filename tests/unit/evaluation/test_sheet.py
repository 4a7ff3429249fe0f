import pytest

from heedful.evaluation.groups import Group
from heedful.evaluation.measures import Metric
from heedful.evaluation.metrics import MEASURES
from heedful.evaluation.resampling import Interval
from heedful.evaluation.sheet import Entry, as_json, as_table, as_text, judge
from heedful.evaluation.significance import Difference

METRIC = Metric("BLEU", 31.256, "tok:13a")
OUTPUTS, REFERENCES, WORSE = ["a", "b", "c"] * 5, ["a", "b", "x"] * 5, ["a", "y", "y"] * 5


def test_only_what_was_asked_for_is_computed():
    found = judge(MEASURES["exact-match"], OUTPUTS, REFERENCES)
    assert found.metric.value == pytest.approx(200 / 3)
    assert (found.interval, found.difference, found.groups) == (None, None, ())


def test_an_interval_and_a_baseline_can_be_asked_for():
    measure = MEASURES["exact-match"]
    found = judge(measure, OUTPUTS, REFERENCES, baseline=WORSE, confidence=True)
    assert found.interval.low < found.metric.value < found.interval.high
    assert found.difference.value == pytest.approx(100 / 3)
    # All of 5 exchanges must go one way: 2 of 2^5 ways, 1/16.
    assert found.difference.p == pytest.approx(1 / 16, abs=0.01)


def test_lines_tell_the_score_and_how_sure_it_is():
    entry = Entry(METRIC, Interval(29.8, 32.71, 0.95), Difference(-1.5, 0.0123))
    assert list(as_text([entry])) == [
        "BLEU          31.26   [29.80, 32.71]     -1.50 p=0.0123*   tok:13a",
        "[ ] 95 % of 1000 test sets drawn from these sentences",
        "+- from the baseline; * p < 0.05, by approximate randomisation (10000 trials)",
    ]
    assert list(as_text([Entry(METRIC)], digits=1)) == ["BLEU          31.3   tok:13a"]


def test_numbers_of_a_kind_stand_below_one_another():
    sure = Entry(METRIC, Interval(9.8, 100, 0.95), Difference(-1.5, 0.0123))
    large = Entry(
        Metric("perplexity", 12345.6, "per:token"), Interval(9, 10, 0.95), sure.difference
    )
    alone = Entry(Metric("word recall", 9.5, "tok:words"))
    assert list(as_text([sure, large, alone]))[:3] == [
        "BLEU            31.26   [9.80, 100.00]     -1.50 p=0.0123*   tok:13a",
        "perplexity   12345.60    [9.00, 10.00]     -1.50 p=0.0123*   per:token",
        "word recall      9.50                                        tok:words",
    ]


def test_a_difference_that_may_be_chance_has_no_mark():
    (line, _) = as_text([Entry(METRIC, difference=Difference(0.5, 0.3))])
    assert "+0.50 p=0.3000 " in line


def test_a_table_has_a_row_for_each_group():
    groups = [Group("1-5", 120, METRIC), Group("6-10", 3, None)]
    other = [Group("1-5", 120, METRIC._replace(value=100)), Group("6-10", 3, None)]
    entries = [Entry(METRIC, groups=groups), Entry(Metric("chrF", 1, ""), groups=other)]
    assert list(as_table("words", "outputs", entries)) == [
        "words  outputs   BLEU    chrF",
        "1-5        120  31.26  100.00",
        "6-10         3      -       -",
    ]


def test_json_holds_what_was_asked_for_and_no_more():
    assert as_json(Entry(METRIC)) == {"name": "BLEU", "value": 31.256, "signature": "tok:13a"}
    groups = [Group("a", 2, METRIC), Group("b", 1, None)]
    told = as_json(Entry(METRIC, Interval(1, 2, 0.95), Difference(1.256, 0.5), groups))
    assert told["interval"] == {"low": 1, "high": 2, "level": 0.95, "samples": 1000, "seed": 12345}
    assert told["baseline"] == {
        **{"value": pytest.approx(30), "difference": 1.256, "p": 0.5, "trials": 10000}
    }
    assert told["groups"] == [
        {"name": "a", "size": 2, "value": 31.256},
        {"name": "b", "size": 1, "value": None},
    ]

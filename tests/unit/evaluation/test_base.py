"""Invariants of every metric, and metrics by name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.evaluation.base import MetricScore, as_multi_reference, compute_score
from heedful.evaluation.registry import (
    ALIGNMENT_METRICS,
    DEFAULT_METRICS,
    METRICS,
    compute_metrics,
    get_metrics,
)

WORDS = st.lists(st.sampled_from("abcde"), min_size=4, max_size=9).map(" ".join)
TAGS = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), max_size=6).map(" ".join)
LINKS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6).map(
    lambda links: " ".join(f"{source}-{target}" for source, target in sorted(links))
)
TEXTS = {**dict.fromkeys(ALIGNMENT_METRICS, LINKS), "span-f1": TAGS, "span-f1-iob2": TAGS}

every_metric = pytest.mark.parametrize("name", METRICS)
few_examples = settings(max_examples=10)  # of several sentences each


def texts(name, count):
    return st.lists(TEXTS.get(name, WORDS), min_size=count, max_size=count)


# CIDEr-D has no common best score: it depends on how rare the words of the references are.
@pytest.mark.parametrize("name", sorted(METRICS.keys() - {"cider-d"}))
@few_examples
@given(st.data())
def test_perfect_outputs_have_the_best_score(name, data):
    metric, count = METRICS[name], data.draw(st.integers(1, 4))
    references, others = (data.draw(texts(name, count)) for _ in range(2))
    perfect, other = (
        compute_score(metric, said, references).value for said in (references, others)
    )
    best = {"higher": 100, "lower": 0}[metric.direction]
    assert perfect == pytest.approx(best)
    assert other <= best + 1e-9 if best else other >= best - 1e-9


@every_metric
@few_examples
@given(st.data())
def test_score_does_not_depend_on_sentence_order(name, data):
    outputs, references = (data.draw(texts(name, 4)) for _ in range(2))
    order = data.draw(st.permutations(range(4)))
    moved = ([lines[row] for row in order] for lines in (outputs, references))
    value = compute_score(METRICS[name], outputs, references).value
    assert compute_score(METRICS[name], *moved).value == pytest.approx(value)


# Of references that are equally good by chrF, sacreBLEU takes the first.
@pytest.mark.parametrize("name", sorted(METRICS.keys() - {"chrf"}))
@few_examples
@given(st.data())
def test_score_does_not_depend_on_reference_order_or_repetition(name, data):
    metric = METRICS[name]
    outputs, one, other = (data.draw(texts(name, 3)) for _ in range(3))
    value = compute_score(metric, outputs, list(zip(one, other, strict=True))).value
    assert compute_score(
        metric, outputs, list(zip(other, one, strict=True))
    ).value == pytest.approx(value)
    twice = compute_score(metric, outputs, list(zip(one, one, strict=True))).value
    assert twice == pytest.approx(compute_score(metric, outputs, one).value)


@every_metric
@few_examples
@given(st.data())
def test_compute_accepts_leading_dimensions(name, data):
    metric = METRICS[name]
    outputs, references = (data.draw(texts(name, 6)) for _ in range(2))
    counted = metric.sentence_statistics(outputs, as_multi_reference(references))
    result = metric.compute(counted.reshape(2, 3, -1))
    alone = [float(metric.compute(row)) for row in counted]
    assert result.shape == (2, 3)
    assert result.ravel() == pytest.approx(alone)
    assert counted.dtype == np.float64


@every_metric
def test_unequal_numbers_are_an_error(name):
    references = ["0-0"] if name in ALIGNMENT_METRICS else ["O"]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        compute_score(METRICS[name], ["0-0", "1-1"], references)


@every_metric
def test_signature_has_the_number_of_references(name):
    choices = [["0-0", "1-1"]] if name in ALIGNMENT_METRICS else [["O", "B-x"]]
    assert "nrefs:2" in METRICS[name].signature(choices)
    mixed = METRICS[name].signature([*choices, ["O"]])
    assert "nrefs:var" in mixed


def test_single_reference_becomes_a_list():
    assert as_multi_reference(["a b", "c"]) == [("a b",), ("c",)]
    assert as_multi_reference([["a", "b"], ["c"]]) == [["a", "b"], ["c"]]


def test_score_has_value_and_signature():
    result = compute_score(METRICS["exact-match"], ["a", "b"], ["a", "c"])
    assert result == MetricScore("exact match", 50.0, "case:mixed|space:kept")


def test_metrics_selected_by_name():
    result = compute_metrics(["a"], ["b"], ["wer", "rouge-l"])
    assert [each.name for each in result] == ["WER", "ROUGE-L"]
    assert get_metrics(DEFAULT_METRICS) == [METRICS[name] for name in DEFAULT_METRICS]


def test_unknown_metric_raises():
    with pytest.raises(ConfigError, match="no metric is called 'blue'; did you mean 'bleu'"):
        get_metrics(["chrf", "blue"])

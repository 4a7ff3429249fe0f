from itertools import product
from statistics import mean, stdev

import numpy as np
import pytest

from heedful.comparison.test_sets import score_systems
from heedful.evaluation.breakdowns import LengthBreakdown
from heedful.evaluation.registry import METRICS
from heedful.evaluation.score_table import score_outputs
from tests.unit.evaluation.systems import REFERENCES, system

EXACT = METRICS["exact-match"]
TARGETS = [(line,) for line in REFERENCES]


def exact_scores(*rights):
    """Return outputs, correct where the digit is 1, and their references."""
    references = [(f"r{place}",) for place in range(len(rights[0]))]
    outputs = [
        [f"r{place}" if right == "1" else "wrong" for place, right in enumerate(each)]
        for each in rights
    ]
    return outputs, references


@pytest.mark.parametrize("name", ["exact-match", "bleu", "chrf", "ter"])
def test_single_runs_scored_as_by_evaluate(name):
    measure, one, other = METRICS[name], system(0.1), system(0.3, seed=1)
    first, second = score_systems(measure, [[one], [other]], REFERENCES, TARGETS)
    for result, outputs in ((first, one), (second, other)):
        expected = score_outputs(measure, outputs, TARGETS, confidence=True)
        assert result.score == expected.score
        assert result.interval == expected.interval
        assert result.stats == (expected.score.value, None)
        assert result.direction == measure.direction
    expected = score_outputs(measure, other, TARGETS, baseline=one).difference
    assert first.difference is None
    assert second.difference.p_value == expected.p_value
    assert second.difference.value == pytest.approx(expected.value)


def test_score_of_several_runs_is_their_mean():
    (one, other), references = exact_scores("1110000000", "1111100000")
    (result,) = score_systems(EXACT, [[one, other]], references_as_sources(references), references)
    assert result.stats == (mean([30, 50]), pytest.approx(stdev([30, 50])))
    assert result.score.value == 40
    assert result.interval == score_outputs(EXACT, one, references, confidence=True).interval


def references_as_sources(references):
    return [text for (text,) in references]


def test_equal_outputs_have_p_one():
    outputs = system(0.2)
    for runs in ([[outputs], [outputs]], [[outputs, outputs], [outputs]], [[outputs]] * 3):
        _, *others = score_systems(EXACT, runs, REFERENCES, TARGETS)
        assert {result.difference.p_value for result in others} == {1.0}
        assert {result.difference.value for result in others} == {0.0}


def test_baseline_may_be_any_system():
    runs = [[system(0.1)], [system(0.3, seed=1)]]
    first, second = score_systems(EXACT, runs, REFERENCES, TARGETS, baseline=1)
    _, other = score_systems(EXACT, runs, REFERENCES, TARGETS)
    assert second.difference is None
    assert first.difference.p_value == other.difference.p_value
    assert first.difference.value == pytest.approx(-other.difference.value)


def test_sentences_swapped_with_the_outputs_of_all_runs():
    """By trying all swaps of eight sentences."""
    texts = ["11101110", "11011100", "00000110", "01000100"]
    outputs, references = exact_scores(*texts)
    rights = np.array([[int(digit) for digit in text] for text in texts])
    gaps = rights[:2].sum(axis=0) - rights[2:].sum(axis=0)  # of each sentence
    totals = [abs((gaps * signs).sum()) for signs in product([1, -1], repeat=len(gaps))]
    expected = np.mean([total >= abs(gaps.sum()) for total in totals])
    sources = references_as_sources(references)
    _, result = score_systems(EXACT, [outputs[2:], outputs[:2]], sources, references)
    assert result.difference.p_value == pytest.approx(expected, abs=0.015)
    assert result.difference.value == pytest.approx(100 * (rights[:2].mean() - rights[2:].mean()))


def test_systems_may_have_different_numbers_of_runs():
    """Two runs against three: both are repeated to six."""
    texts = ["11101110", "11011100", "00000110", "01000100", "01100000"]
    outputs, references = exact_scores(*texts)
    sources = references_as_sources(references)
    _, result = score_systems(EXACT, [outputs[2:], outputs[:2]], sources, references)
    even = [outputs[2:] * 2, outputs[:2] * 3]
    _, expected = score_systems(EXACT, even, sources, references)
    assert result.difference.p_value == expected.difference.p_value
    assert result.difference.value == pytest.approx(expected.difference.value)


def test_length_groups_are_those_of_evaluate():
    one, other = system(0.1), system(0.3, seed=1)
    (result,) = score_systems(EXACT, [[one, other]], REFERENCES, TARGETS)
    groups = [
        LengthBreakdown(REFERENCES).score_groups(EXACT, each, TARGETS) for each in (one, other)
    ]
    assert result.by_length == [
        (first.name, first.size, mean([first.score.value, second.score.value]))
        for first, second in zip(*groups, strict=True)
    ]

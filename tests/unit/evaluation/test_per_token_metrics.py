import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.evaluation.annotation_metrics import (
    ATTENTION_ENTROPY,
    PERPLEXITY,
    PERPLEXITY_PER_WORD,
    attention_entropies,
    format_numbers,
    parse_numbers,
)
from heedful.evaluation.base import as_multi_reference
from heedful.evaluation.registry import MODEL_METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.evaluation.significance import bootstrap_interval

every_metric = pytest.mark.parametrize("metric", MODEL_METRICS.values(), ids=MODEL_METRICS)
NUMBERS = st.lists(st.floats(-50, 0), max_size=6)


def value(metric, numbers, references=None):
    lines = [format_numbers(each) for each in numbers]
    return score_outputs(metric, lines, references or [""] * len(lines)).score.value


def test_perplexity_is_the_number_of_equally_likely_tokens():
    log_probs = [[math.log(1 / 8)] * 3, [], [math.log(1 / 2)] * 3]
    assert value(PERPLEXITY, log_probs) == pytest.approx(4)  # the geometric mean of 8 and 2


def test_perplexity_per_word_does_not_depend_on_tokenization():
    whole, cut = [[math.log(1 / 9), 0.0]], [[math.log(1 / 3), math.log(1 / 3), 0.0]]
    # One word and the end share log 9.
    assert value(PERPLEXITY_PER_WORD, whole, ["word"]) == pytest.approx(3)
    assert value(PERPLEXITY_PER_WORD, cut, [["word", "two words"]]) == pytest.approx(3)
    assert value(PERPLEXITY, cut, ["word"]) == pytest.approx(9 ** (1 / 3))


def test_perplexity_overflows_to_infinity():
    assert PERPLEXITY.compute(np.array([[-1e6, 1.0], [0.0, 0.0]])).tolist() == [math.inf, 1.0]
    assert value(PERPLEXITY, [[-math.inf], [-1.0]]) == math.inf


def test_interval_with_an_impossible_sentence():
    counted = PERPLEXITY.sentence_statistics(
        ["-inf", *["-1.0"] * 20], as_multi_reference([""] * 21)
    )
    low, high, _ = bootstrap_interval(counted, PERPLEXITY.compute)
    assert (low, high) == (pytest.approx(math.e), math.inf)


@every_metric
def test_per_token_metrics_have_intervals_and_tests(metric):
    rng = np.random.default_rng(0)
    lines, others = ([format_numbers(-rng.random(5)) for _ in range(50)] for _ in range(2))
    entry = score_outputs(metric, lines, ["a b"] * 50, baseline=others, confidence=True)
    assert entry.interval.low < entry.score.value < entry.interval.high
    assert 0 < entry.difference.p_value <= 1
    assert score_outputs(metric, lines, ["a b"] * 50, baseline=lines).difference.p_value == 1


@every_metric
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=5), data=st.data())
def test_score_does_not_depend_on_sentence_order(metric, numbers, data):
    order = data.draw(st.permutations(range(len(numbers))))
    moved = [numbers[row] for row in order]
    assert value(metric, moved) == pytest.approx(value(metric, numbers))


def test_signatures_of_per_token_metrics():
    result = [metric.signature([["a"]]) for metric in MODEL_METRICS.values()]
    assert result == [
        *("per:token|end:counted", "per:word|end:counted"),
        "per:token|end:left out|unit:nat",
    ]


@given(NUMBERS)
def test_numbers_round_trip(numbers):
    assert parse_numbers(format_numbers(np.array(numbers)), location="") == numbers


@pytest.mark.parametrize("word", ["word", "nan"])
def test_invalid_number_raises(word):
    with pytest.raises(DataError) as caught:
        PERPLEXITY.sentence_statistics(["-1.0", f"-0.5 {word}"], [["a"], ["a"]])
    assert str(caught.value) == (
        f"line 2 of the outputs: {word!r} is not a number\n"
        "  write one number per token, separated by spaces, or evaluate a run"
    )


def test_entropy_is_the_mean_over_nonzero_rows():
    even, sharp, nowhere = [0.25] * 4, [0, 1, 0, 0], [0] * 4
    looked = [
        attention_entropies(np.array([even, nowhere])),
        attention_entropies(np.array([sharp])),
    ]
    assert looked[0] == pytest.approx([math.log(4)])
    assert value(ATTENTION_ENTROPY, looked) == pytest.approx(math.log(4) / 2)


def test_entropy_normalizes_rows():
    leaking = np.array([[0.1, 0.1, 0.0]], dtype=np.float32)
    assert attention_entropies(leaking) == pytest.approx([math.log(2)])


def test_entropy_of_empty_outputs_is_zero():
    assert value(ATTENTION_ENTROPY, [attention_entropies(np.zeros((0, 3)))]) == 0

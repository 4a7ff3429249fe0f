import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.evaluation.base import as_multi_reference
from heedful.evaluation.per_token_metrics import (
    ATTENTION_ENTROPY,
    PERPLEXITY,
    PERPLEXITY_PER_WORD,
    attention_entropies,
    format_numbers,
    parse_numbers,
)
from heedful.evaluation.registry import MODEL_METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.evaluation.significance import bootstrap_interval

every_measure = pytest.mark.parametrize("measure", MODEL_METRICS.values(), ids=MODEL_METRICS)
NUMBERS = st.lists(st.floats(-50, 0), max_size=6)


def value(measure, numbers, references=None):
    lines = [format_numbers(each) for each in numbers]
    return score_outputs(measure, lines, references or [""] * len(lines)).score.value


def test_perplexity_is_the_number_of_equally_likely_tokens():
    log_probs = [[math.log(1 / 8)] * 3, [], [math.log(1 / 2)] * 3]
    assert value(PERPLEXITY, log_probs) == pytest.approx(4)  # the geometric mean of 8 and 2


def test_perplexity_per_word_does_not_ask_how_words_were_cut():
    whole, cut = [[math.log(1 / 9), 0.0]], [[math.log(1 / 3), math.log(1 / 3), 0.0]]
    # One word and the end share log 9.
    assert value(PERPLEXITY_PER_WORD, whole, ["word"]) == pytest.approx(3)
    assert value(PERPLEXITY_PER_WORD, cut, [["word", "two words"]]) == pytest.approx(3)
    assert value(PERPLEXITY, cut, ["word"]) == pytest.approx(9 ** (1 / 3))


def test_a_surprise_beyond_all_numbers_is_infinite_and_none_is_one():
    assert PERPLEXITY.compute(np.array([[-1e6, 1.0], [0.0, 0.0]])).tolist() == [math.inf, 1.0]
    assert value(PERPLEXITY, [[-math.inf], [-1.0]]) == math.inf


def test_an_impossible_sentence_leaves_an_interval_that_can_be_told():
    counted = PERPLEXITY.sentence_statistics(
        ["-inf", *["-1.0"] * 20], as_multi_reference([""] * 21)
    )
    low, high, _ = bootstrap_interval(counted, PERPLEXITY.compute)
    assert (low, high) == (pytest.approx(math.e), math.inf)


@every_measure
def test_there_are_intervals_and_tests_as_for_other_measures(measure):
    chance = np.random.default_rng(0)
    lines, others = ([format_numbers(-chance.random(5)) for _ in range(50)] for _ in range(2))
    entry = score_outputs(measure, lines, ["a b"] * 50, baseline=others, confidence=True)
    assert entry.interval.low < entry.score.value < entry.interval.high
    assert 0 < entry.difference.p_value <= 1
    assert score_outputs(measure, lines, ["a b"] * 50, baseline=lines).difference.p_value == 1


@every_measure
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=5), data=st.data())
def test_the_order_of_sentences_has_no_influence(measure, numbers, data):
    order = data.draw(st.permutations(range(len(numbers))))
    moved = [numbers[row] for row in order]
    assert value(measure, moved) == pytest.approx(value(measure, numbers))


def test_signatures_say_what_is_shared_out_over_what():
    found = [measure.signature([["a"]]) for measure in MODEL_METRICS.values()]
    assert found == [
        *("per:token|end:counted", "per:word|end:counted"),
        "per:token|end:left out|unit:nat",
    ]


@given(NUMBERS)
def test_numbers_are_read_as_they_were_written(numbers):
    assert parse_numbers(format_numbers(np.array(numbers)), location="") == numbers


@pytest.mark.parametrize("word", ["word", "nan"])
def test_what_is_no_number_is_refused(word):
    with pytest.raises(DataError) as caught:
        PERPLEXITY.sentence_statistics(["-1.0", f"-0.5 {word}"], [["a"], ["a"]])
    assert str(caught.value) == (
        f"line 2 of the outputs: {word!r} is not a number\n"
        "  write one number per token, separated by spaces, or evaluate a run"
    )


def test_entropy_is_the_mean_over_rows_that_looked_anywhere():
    even, sharp, nowhere = [0.25] * 4, [0, 1, 0, 0], [0] * 4
    looked = [
        attention_entropies(np.array([even, nowhere])),
        attention_entropies(np.array([sharp])),
    ]
    assert looked[0] == pytest.approx([math.log(4)])
    assert value(ATTENTION_ENTROPY, looked) == pytest.approx(math.log(4) / 2)


def test_rows_that_leak_are_made_whole_first():
    leaking = np.array([[0.1, 0.1, 0.0]], dtype=np.float32)
    assert attention_entropies(leaking) == pytest.approx([math.log(2)])


def test_outputs_without_a_token_looked_nowhere():
    assert value(ATTENTION_ENTROPY, [attention_entropies(np.zeros((0, 3)))]) == 0

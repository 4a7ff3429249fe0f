"""Alignment error rate (Och & Ney 2003), spans after conlleval, and numbers of tokens."""

import gzip
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.aligners.links import AlignmentLinks, parse_alignment
from heedful.errors import DataError
from heedful.evaluation.annotation_metrics import (
    ATTENTION_ENTROPY,
    PERPLEXITY,
    PERPLEXITY_PER_WORD,
    AlignmentErrorRate,
    AlignmentPrecision,
    AlignmentRecall,
    Span,
    SpanF1,
    attention_entropies,
    extract_spans,
    format_numbers,
    parse_numbers,
)
from heedful.evaluation.base import as_multi_reference, compute_score
from heedful.evaluation.registry import MODEL_METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.evaluation.significance import bootstrap_interval

LINKS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def line(sure, possible=()):
    return " ".join([*(f"{a}-{b}" for a, b in sure), *(f"{a}?{b}" for a, b in possible)])


def rate(outputs, references):
    return compute_score(AlignmentErrorRate(), outputs, references).value


def test_sure_and_possible_links_parsed():
    assert parse_alignment("0-0 1?2 12p3") == AlignmentLinks({(0, 0)}, {(0, 0), (1, 2), (12, 3)})
    assert parse_alignment("") == AlignmentLinks(set(), set())


def test_alignment_error_rate_same_as_hand_calculation():
    # A = {00, 11, 22}, S = {00, 13}, P = S + {11}: 1 - (1 + 2) / (3 + 2).
    assert rate(["0-0 1-1 2-2"], ["0-0 1-3 1?1"]) == pytest.approx(40)
    # Another sentence, all right, adds 2 + 2 above and below: 1 - (3 + 4) / (5 + 4).
    assert rate(["0-0 1-1 2-2", "0-0 1-1"], ["0-0 1-3 1?1", "0-0 1-1"]) == (
        pytest.approx(100 * 2 / 9)
    )


@given(LINKS, LINKS, LINKS)
def test_alignment_error_rate_same_as_the_formula(result, sure, possible):
    everything = sure | possible
    below = len(result) + len(sure)
    above = len(result & sure) + len(result & everything)
    expected = 100 * (1 - above / below) if below else 0
    assert rate([line(result)], [line(sure, possible - sure)]) == pytest.approx(expected)


@given(LINKS, LINKS, LINKS)
def test_precision_and_recall_match_the_formula(result, sure, possible):
    outputs, references = [line(result)], [line(sure, possible - sure)]
    precision = compute_score(AlignmentPrecision(), outputs, references).value
    recall = compute_score(AlignmentRecall(), outputs, references).value
    num_possible = len(result & (possible | sure))
    assert precision == pytest.approx(100 * num_possible / len(result) if result else 100)
    assert recall == pytest.approx(100 * len(result & sure) / len(sure) if sure else 100)


SYSTEMS = {  # AER, precision and recall, published with the data
    "giza_grow_diag": (5.94, 97.54, 89.70),
    "fast_align_grow_diag": (10.48, 90.84, 87.77),
    "awesome_align": (4.07, 96.27, 95.42),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_published_systems_on_hansards(heedful_data, system):
    folder = heedful_data / "alignments"
    gold, links = (
        gzip.decompress((folder / f"hansards.{name}.gz").read_bytes()).decode().splitlines()
        for name in ("gold", system)
    )
    metrics = AlignmentErrorRate(), AlignmentPrecision(), AlignmentRecall()
    scores = tuple(round(compute_score(metric, links, gold).value, 2) for metric in metrics)
    assert scores == SYSTEMS[system]


@given(LINKS, LINKS, st.data())
def test_possible_links_are_optional(sure, possible, data):
    chosen = data.draw(st.sets(st.sampled_from(sorted(possible)))) if possible else set()
    assert rate([line(sure | chosen)], [line(sure, possible)]) == pytest.approx(0)


def marked(text, scheme="bio"):
    return extract_spans(text.split(), scheme)


def test_span_starts_with_b_and_continues_with_i():
    result = marked("O B-a I-a O B-b B-b I-b")
    assert result == {Span(1, 2, "a"), Span(4, 4, "b"), Span(5, 6, "b")}
    assert marked("B-a I-a") == marked("B-a I-a", "iob2")


def test_i_tag_starts_a_span_in_bio_but_not_in_iob2():
    assert marked("I-a I-a O I-b B-b") == {Span(0, 1, "a"), Span(3, 3, "b"), Span(4, 4, "b")}
    assert marked("B-a I-b I-b") == {Span(0, 0, "a"), Span(1, 2, "b")}
    assert marked("I-a I-a O I-b B-b", "iob2") == {Span(4, 4, "b")}
    assert marked("B-a I-b I-a", "iob2") == {Span(0, 0, "a")}


def test_tags_without_type_and_with_hyphens():
    assert marked("B I O B-x-y I-x-y") == {Span(0, 1, ""), Span(3, 4, "x-y")}


def test_invalid_predicted_tag_is_outside():
    assert marked("B-a <unk> I-a L-a Bx") == {Span(0, 0, "a"), Span(2, 2, "a")}


def test_bioes_tags_end_spans():
    assert marked("B-a E-a S-a I-a O E-b") == {
        Span(0, 1, "a"),
        Span(2, 2, "a"),
        Span(3, 3, "a"),
        Span(5, 5, "b"),
    }


def test_span_needs_both_ends_and_the_type():
    references = ["B-a I-a O B-b", "B-a O O", "O O"]
    outputs = ["B-a O O B-b", "B-b O B-a", "O O"]
    # Right: the b of the first. Found 2 + 2, expected 2 + 1.
    result = compute_score(SpanF1(), outputs, references)
    assert result.value == pytest.approx(100 * 2 * 1 / (4 + 3))
    assert result.signature == "nrefs:1|scheme:bio|match:exact"


def test_span_f1_without_spans_is_100():
    assert compute_score(SpanF1(), ["O"], ["O"]).value == 100
    assert compute_score(SpanF1(), ["B-a"], ["O"]).value == 0


def test_best_of_several_references_counts():
    assert compute_score(SpanF1(), ["B-a O"], [["O O", "B-a B-b"]]).value == pytest.approx(
        100 * 2 / 3
    )


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

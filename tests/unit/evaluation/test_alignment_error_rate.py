"""Alignment error rate by hand (Och & Ney 2003)."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.aligners.links import AlignmentLinks, parse_alignment
from heedful.evaluation.annotation_metrics import (
    AlignmentErrorRate,
    AlignmentPrecision,
    AlignmentRecall,
)
from heedful.evaluation.base import compute_score

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

"""Laws that every measure keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.measures import Metric, score, several
from heedful.evaluation.metrics import MEASURES

WORDS = st.lists(st.sampled_from("abcde"), min_size=4, max_size=9).map(" ".join)
TAGS = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), max_size=6).map(" ".join)
LINKS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6).map(
    lambda links: " ".join(f"{source}-{target}" for source, target in sorted(links))
)
TEXTS = {"aer": LINKS, "span-f1": TAGS, "span-f1-iob2": TAGS}

every_measure = pytest.mark.parametrize("name", MEASURES)


def texts(name, count):
    return st.lists(TEXTS.get(name, WORDS), min_size=count, max_size=count)


@every_measure
@given(st.data())
def test_a_perfect_output_has_the_best_score_and_no_other_a_better_one(name, data):
    measure, count = MEASURES[name], data.draw(st.integers(1, 4))
    references, others = (data.draw(texts(name, count)) for _ in range(2))
    perfect, other = (score(measure, said, references).value for said in (references, others))
    best = {"higher": 100, "lower": 0}[measure.better]
    assert perfect == pytest.approx(best)
    assert other <= best + 1e-9 if best else other >= best - 1e-9


@every_measure
@given(st.data())
def test_the_order_of_sentences_has_no_influence(name, data):
    outputs, references = (data.draw(texts(name, 4)) for _ in range(2))
    order = data.draw(st.permutations(range(4)))
    moved = ([lines[row] for row in order] for lines in (outputs, references))
    value = score(MEASURES[name], outputs, references).value
    assert score(MEASURES[name], *moved).value == pytest.approx(value)


# Of references that are equally good by chrF, sacreBLEU takes the first.
@pytest.mark.parametrize("name", sorted(MEASURES.keys() - {"chrf"}))
@given(st.data())
def test_the_order_of_references_has_no_influence_and_the_same_again_changes_nothing(name, data):
    measure = MEASURES[name]
    outputs, one, other = (data.draw(texts(name, 3)) for _ in range(3))
    value = score(measure, outputs, list(zip(one, other, strict=True))).value
    assert score(measure, outputs, list(zip(other, one, strict=True))).value == pytest.approx(value)
    twice = score(measure, outputs, list(zip(one, one, strict=True))).value
    assert twice == pytest.approx(score(measure, outputs, one).value)


@every_measure
@given(st.data())
def test_sums_of_any_leading_dimensions_are_scored_one_by_one(name, data):
    measure = MEASURES[name]
    outputs, references = (data.draw(texts(name, 6)) for _ in range(2))
    counted = measure.statistics(outputs, several(references))
    found = measure.total(counted.reshape(2, 3, -1))
    alone = [float(measure.total(row)) for row in counted]
    assert found.shape == (2, 3)
    assert found.ravel() == pytest.approx(alone)
    assert counted.dtype == np.float64


@every_measure
def test_unequal_numbers_are_refused(name):
    with pytest.raises(ValueError, match=r"shorter|longer"):
        score(MEASURES[name], ["0-0", "1-1"], ["0-0"] if name == "aer" else ["O"])


@every_measure
def test_every_measure_says_how_many_references_it_had(name):
    choices = [["0-0", "1-1"]] if name == "aer" else [["O", "B-x"]]
    assert "nrefs:2" in MEASURES[name].signature(choices)
    mixed = MEASURES[name].signature([*choices, ["O"]])
    assert "nrefs:var" in mixed


def test_one_reference_is_a_list_of_one():
    assert several(["a b", "c"]) == [("a b",), ("c",)]
    assert several([["a", "b"], ["c"]]) == [["a", "b"], ["c"]]


def test_a_score_is_a_number_with_its_signature():
    found = score(MEASURES["exact-match"], ["a", "b"], ["a", "c"])
    assert found == Metric("exact match", 50.0, "case:mixed|space:kept")

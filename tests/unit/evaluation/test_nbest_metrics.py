"""Exact match of n-best lists by hand."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS, NBEST_METRICS
from heedful.evaluation.text_metrics import join_outputs

texts = st.text("ab\t ", max_size=2)


def test_exact_match_of_nbest_lists_same_as_hand_calculation():
    outputs = [join_outputs("abcdefghij"), join_outputs("jihgfedcba"), join_outputs(["x"])]
    references = ["c", "c", "x"]
    values = [compute_score(metric, outputs, references).value for metric in NBEST_METRICS.values()]
    assert list(NBEST_METRICS) == ["exact-match@3", "exact-match@5", "exact-match@10"]
    assert [round(value, 2) for value in values] == [66.67, 66.67, 100.0]


@given(st.lists(st.tuples(st.lists(texts, min_size=1, max_size=12), texts), min_size=1, max_size=5))
def test_score_increases_with_the_number_of_outputs(rows):
    outputs, references = [join_outputs(row) for row, _ in rows], [text for _, text in rows]
    first = [row[0].replace("\t", " ") for row, _ in rows]
    spaces = [text.replace("\t", " ") for text in references]
    values = [compute_score(METRICS["exact-match"], first, spaces).value]
    values += [
        compute_score(metric, outputs, references).value for metric in NBEST_METRICS.values()
    ]
    assert values == sorted(values)


def test_signature_has_the_number_of_outputs():
    metric = NBEST_METRICS["exact-match@5"]
    assert metric.signature([["a"]]) == "case:mixed|space:kept|outputs:5"

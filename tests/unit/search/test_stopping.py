"""Stopping criteria: what each guarantees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    LengthPenalty,
    PatienceStopping,
    Trellis,
    heuristic_stopping,
    optimal_stopping,
)
from tests.unit.search.tables import EOS, TableModel, never_stop, search


def outputs_and_tree(stopping, seed, beam_size, alpha, *, formula="gnmt", max_length=5):
    model, trellis = TableModel(seed, max_length), Trellis()
    outputs = search(
        model,
        beam_size=beam_size,
        max_length=max_length,
        length_penalty=LengthPenalty(alpha, formula),
        options=BeamSearchOptions(stopping=stopping),
        trellis=trellis,
    )
    return [(output.tokens, output.score) for output in outputs[0]], trellis.tree(0, eos=EOS)


beam_sizes = st.integers(1, 4)
search_cases = given(seed=st.integers(0, 9999), beam_size=beam_sizes, alpha=st.floats(-0.5, 2))


@pytest.mark.parametrize("formula", ["gnmt", "power"])
@search_cases
def test_optimal_stopping_equals_search_to_max_length(formula, seed, beam_size, alpha):
    optimal, _ = outputs_and_tree(optimal_stopping, seed, beam_size, alpha, formula=formula)
    assert optimal == outputs_and_tree(never_stop, seed, beam_size, alpha, formula=formula)[0]


@search_cases
def test_heuristic_stopping_is_optimal_without_length_penalty(seed, beam_size, alpha):
    heuristic = outputs_and_tree(heuristic_stopping, seed, beam_size, 0.0)
    assert heuristic == outputs_and_tree(optimal_stopping, seed, beam_size, 0.0)


@search_cases
def test_more_patience_never_shrinks_the_tree(seed, beam_size, alpha):
    criteria = [FIRST_FINISHED, PatienceStopping(2.0), never_stop]
    sizes = [len(outputs_and_tree(each, seed, beam_size, alpha)[1]) for each in criteria]
    assert sizes == sorted(sizes)
    assert len(outputs_and_tree(heuristic_stopping, seed, beam_size, alpha)[1]) <= sizes[-1]


@given(seed=st.integers(0, 9999), beam_size=beam_sizes, factor=st.sampled_from([0.5, 1.0, 2.0]))
def test_patience_stops_once_enough_hypotheses_have_finished(seed, beam_size, factor):
    _, tree = outputs_and_tree(PatienceStopping(factor), seed, beam_size, 0.6)

    def depth(node):
        return 0 if node.parent is None else 1 + depth(tree[node.parent])

    depths = [depth(node) for node in tree if node.status == "finished"]
    last = max(depths)
    assert sum(finished < last for finished in depths) < factor * beam_size
    # Nothing is opened once enough have finished.
    assert not any(node.status == "pruned" and depth(node) == last for node in tree)

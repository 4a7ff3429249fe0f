"""Stopping: what each policy promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    HeuristicStopping,
    LengthPenalty,
    OptimalStopping,
    PatienceStopping,
)
from heedful.search.hypotheses import Trellis
from tests.unit.search.tables import END, Never, Table, search


def found_by(stopping, seed, width, alpha, *, form="gnmt", longest=5):
    table, trellis = Table(seed, longest), Trellis()
    penalty, how = LengthPenalty(alpha, form), BeamSearchOptions(stopping=stopping)
    found = search(
        table, width=width, longest=longest, length_penalty=penalty, options=how, trellis=trellis
    )
    return [(each.tokens, each.score) for each in found[0]], trellis.tree(0, eos=END)


cases = given(seed=st.integers(0, 9999), width=st.integers(1, 4), alpha=st.floats(-0.5, 2))


@pytest.mark.parametrize("form", ["gnmt", "power"])
@cases
def test_optimal_finds_what_a_search_to_the_end_finds(form, seed, width, alpha):
    optimal, _ = found_by(OptimalStopping(), seed, width, alpha, form=form)
    assert optimal == found_by(Never(), seed, width, alpha, form=form)[0]


@cases
def test_without_a_penalty_settled_is_optimal(seed, width, alpha):
    assert found_by(HeuristicStopping(), seed, width, 0.0) == found_by(
        OptimalStopping(), seed, width, 0.0
    )


@cases
def test_no_policy_looks_at_more_than_the_more_careful_one(seed, width, alpha):
    policies = [FIRST_FINISHED, PatienceStopping(2.0), Never()]
    sizes = [len(found_by(policy, seed, width, alpha)[1]) for policy in policies]
    assert sizes == sorted(sizes)
    assert len(found_by(HeuristicStopping(), seed, width, alpha)[1]) <= sizes[-1]


@given(seed=st.integers(0, 9999), width=st.integers(1, 4), factor=st.sampled_from([0.5, 1.0, 2.0]))
def test_patience_stops_at_the_step_at_which_enough_have_ended(seed, width, factor):
    _, tree = found_by(PatienceStopping(factor), seed, width, 0.6)

    def depth(node):
        return 0 if node.parent is None else 1 + depth(tree[node.parent])

    ends = [depth(node) for node in tree if node.status == "ended"]
    last = max(ends)
    assert sum(each < last for each in ends) < factor * width
    if any(node.status == "pruned" and depth(node) == last for node in tree):
        pytest.fail("nothing is opened once enough have ended")

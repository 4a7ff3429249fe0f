"""The trellis: every hypothesis with its evidence, and the whole search as a tree."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import LengthPenalty, Trellis
from tests.unit.search.tables import END, Table, search

cases = given(seed=st.integers(0, 9999), width=st.integers(1, 5))


def searched(seed, width):
    table, trellis = Table(seed, 4, sentences=2), Trellis()
    options = {
        "width": width,
        "longest": [4, 2],
        "sentences": 2,
        "length_penalty": LengthPenalty(0.6),
    }
    return table, search(table, trellis=trellis, **options), trellis


@cases
def test_every_token_comes_with_its_worth_and_where_it_looked(seed, width):
    table, found, _ = searched(seed, width)
    for sentence, hypotheses in enumerate(found):
        for each in hypotheses:
            assert each.log_probs.tolist() == pytest.approx(table.of(each.tokens, sentence))
            assert each.log_prob == pytest.approx(each.log_probs.sum())
            looked = torch.from_numpy(each.weights).double()
            wanted = table.looked(each.tokens)
            torch.testing.assert_close(looked, wanted[:-1], atol=1e-6, rtol=0)
            end = torch.from_numpy(each.eos_weights).double()
            torch.testing.assert_close(end, wanted[-1], atol=1e-6, rtol=0)


def said_by(tree, node):
    return [] if node.parent is None else [*said_by(tree, tree[node.parent]), node.token]


@cases
def test_a_tree_holds_every_hypothesis_and_the_worth_of_all_beginnings(seed, width):
    table, found, trellis = searched(seed, width)
    for sentence, hypotheses in enumerate(found):
        tree = trellis.tree(sentence, eos=END)
        root, *others = tree
        assert root.parent is None
        for number, node in enumerate(others, start=1):
            assert node.parent < number
            *before, token = said_by(tree, node)
            *_, worth = (
                table.of(before, sentence)
                if token == END
                else table.of([*before, token], sentence)[:-1]
            )
            assert node.log_prob == pytest.approx(worth)
            assert node.total == pytest.approx(tree[node.parent].total + node.log_prob)
        ended = [said_by(tree, node)[:-1] for node in tree if node.status == "ended"]
        assert all(each.tokens in ended for each in hypotheses)


@cases
def test_what_is_pruned_is_what_nothing_continues(seed, width):
    _, _, trellis = searched(seed, width)
    tree = trellis.tree(0, eos=END)
    parents = {node.parent for node in tree}
    for number, node in enumerate(tree):
        assert (node.status == "went on") == (number in parents)
        assert (node.status == "ended") == (node.token == END)


@cases
def test_no_more_beginnings_are_open_than_the_beam_is_wide(seed, width):
    _, _, trellis = searched(seed, width)
    tree = trellis.tree(0, eos=END)
    lengths = [len(said_by(tree, node)) for node in tree if node.token != END]
    assert max(lengths.count(length) for length in lengths) <= width

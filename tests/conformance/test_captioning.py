"""Show, attend and tell: the paper, its authors' code (arctic-captions) and a tutorial (sgrvinod).

What both compute is written out here.
"""

import math

import pytest
import torch

from heedful.attention import (
    AdditiveScore,
    GatedReadout,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
)
from heedful.attention.auxiliary_losses import DoublyStochasticLoss
from heedful.attention.outputs import AlignmentLossInputs, AlignmentOutput
from tests.conformance.asking import attend, column, row, softmax, visible


def in_one_dimension():
    """tanh(q + k), with W = U = v = 1."""
    score = AdditiveScore(1, 1, hidden_size=1).double()
    names = ["query_projection.weight", "key_projection.weight", "reduction.weight"]
    score.load_state_dict({name: row(1) for name in names})
    return score


@pytest.mark.parametrize(
    ("states", "tutorial"),
    [((-0.1, -2.0), (0.5, 0.5)), ((10.0, 20.0), (0.0, 1.0))],
    ids=["below zero it sees no difference", "above zero it knows no bound"],
)
def test_the_score_is_a_tanh_and_not_a_relu(states, tutorial):
    queries, values = column(0.0), column(*states)
    weights = attend(in_one_dimension(), queries, values, visible(values)).weights[0, 0]
    relu = softmax(*(max(0.0, state) for state in states))
    torch.testing.assert_close(relu, row(*tutorial)[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(weights, softmax(*(math.tanh(state) for state in states)))
    assert (weights - relu).abs().max() > 0.1


def test_where_all_sums_are_zero_tanh_and_relu_agree():
    queries, values = column(1.0), column(-1.0, -1.0)
    weights = attend(in_one_dimension(), queries, values, visible(values)).weights[0, 0]
    torch.testing.assert_close(weights, softmax(max(0.0, 1 - 1), max(0.0, 1 - 1)))


def gated(weight, bias):
    """A gate of ours on the one value that there is to see."""
    read = GatedReadout(WeightedSumReadout(), query_size=1).double()
    read.load_state_dict({"gate.weight": row(weight), "gate.bias": row(bias)[0]})
    queries = column(1.0)
    values = torch.tensor([[[3.0, 5.0]]], dtype=torch.double)
    return read(torch.ones(1, 1, 1).double(), values, queries)[0, 0]


def by_each_number(weights):
    """The tutorial's gate: sigmoid(W q), one number of the context at a time."""
    opened = torch.tensor(weights, dtype=torch.double).sigmoid()
    return opened * torch.tensor([3.0, 5.0], dtype=torch.double)


def test_the_gate_is_one_number_and_not_a_vector():
    # sigmoid(log 3) = 3/4 and sigmoid(0) = 1/2: of (3, 5) the tutorial can let 9/4 and 5/2 through.
    vector = by_each_number([math.log(3), 0.0])
    torch.testing.assert_close(vector, row(9 / 4, 5 / 2)[0])
    context = gated(math.log(3), 0.0)
    torch.testing.assert_close(context, row(9 / 4, 15 / 4)[0])
    for weight in torch.linspace(-3, 3, 7).tolist():
        context = gated(weight, 0.5)
        torch.testing.assert_close(context[1] / context[0], torch.tensor(5 / 3).double())
    assert not math.isclose(vector[1] / vector[0], 5 / 3)


def test_a_vector_of_equal_gates_is_the_scalar_gate():
    equal = by_each_number([math.log(3), math.log(3)])
    torch.testing.assert_close(equal, gated(math.log(3), 0.0))


def looked(copies=1):
    """Two pictures of three places and two words each, any number of times over.

    The first looks at one place twice: (1 - 2)^2 + 1 + 1 = 3. The second at two places once
    each: 0 + 0 + 1 = 1.
    """
    weights = torch.tensor([[[1.0, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0]]]).repeat(copies, 1, 1)
    real = torch.ones(weights.shape[:2], dtype=torch.bool)
    seen = torch.ones(len(weights), 3, dtype=torch.bool)
    return AlignmentLossInputs(AlignmentOutput(weights), torch.zeros(weights.shape[:2]), real, seen)


def missing(copies):
    """(1 - sum_t a)^2 for each picture and place."""
    return (1 - looked(copies).alignment.weights.sum(dim=1)).square()


def test_the_regulariser_is_summed_over_the_places_as_in_the_paper():
    torch.testing.assert_close(missing(1).sum(dim=-1), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(DoublyStochasticLoss()(looked()), torch.tensor(3.0 + 1.0))
    torch.testing.assert_close(DoublyStochasticLoss(0.5)(looked()), torch.tensor(2.0))


@pytest.mark.parametrize("copies", [1, 5])
def test_three_versions_of_the_regulariser_differ_by_places_and_by_pictures(copies):
    pictures, places = 2 * copies, 3
    ours = DoublyStochasticLoss()(looked(copies))
    authors = missing(copies).sum(dim=0).mean()
    tutorial = missing(copies).mean()
    torch.testing.assert_close(ours, torch.tensor(4.0 * copies))
    torch.testing.assert_close(authors, torch.tensor(4.0 * copies / places))
    torch.testing.assert_close(tutorial, torch.tensor(4.0 / 6))
    # In the mean over pictures, which is how a loss is read: 2 by the paper, whatever the batch.
    torch.testing.assert_close(ours / pictures, torch.tensor(2.0))
    torch.testing.assert_close(authors, pictures * tutorial)


def test_the_gate_belongs_to_the_whole_mechanism():
    read = GatedReadout(WeightedSumReadout(), query_size=1)
    attention = SingleHeadAttention(in_one_dimension(), SoftmaxAlignment(), read).double()
    queries, values = column(0.7), column(2.0, 4.0)
    found = attention(queries, attention.build_memory(values, visible(values)))
    beta = torch.sigmoid(0.7 * read.gate.weight + read.gate.bias)
    mean = found.weights[0, 0] @ values[0]
    torch.testing.assert_close(found.context[0], beta * mean)

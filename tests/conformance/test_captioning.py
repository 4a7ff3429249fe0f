"""Show, attend and tell: the paper, its authors' code (arctic-captions) and a tutorial (sgrvinod).

Neither publishes values, so the numbers are calculated by hand.
"""

import math

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore
from heedful.attention.alignments import AlignmentLossInputs, AlignmentOutput
from heedful.attention.auxiliary_losses import DoublyStochasticLoss
from heedful.attention.readouts import GatedReadout, WeightedSumReadout
from tests.conformance.inputs import attend, column, row, softmax, visible


def scalar_score():
    """tanh(q + k), with W = U = v = 1."""
    score = AdditiveScore(1, 1, hidden_size=1).double()
    names = ["query_projection.weight", "key_projection.weight", "score_vector.weight"]
    score.load_state_dict({name: row(1) for name in names})
    return score


@pytest.mark.parametrize(
    ("states", "tutorial", "paper"),
    [
        # tanh(-0.1) - tanh(-2) = 0.86436, and exp(0.86436) = 2.3735 = 0.70357 / 0.29643
        ((-0.1, -2.0), (0.5, 0.5), (0.70357, 0.29643)),
        ((10.0, 20.0), (0.0, 1.0), (0.5, 0.5)),
    ],
    ids=["below zero it sees no difference", "above zero it knows no bound"],
)
def test_score_uses_tanh_not_relu(states, tutorial, paper):
    queries, values = column(0.0), column(*states)
    weights = attend(scalar_score(), queries, values, visible(values)).weights[0, 0]
    relu = softmax(*(max(0.0, state) for state in states))
    torch.testing.assert_close(relu, row(*tutorial)[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(weights, row(*paper)[0], atol=1e-5, rtol=0)
    assert (weights - relu).abs().max() > 0.1


def gated(weight, bias):
    """Return the gated readout of a single value."""
    readout = GatedReadout(WeightedSumReadout(), query_size=1).double()
    readout.load_state_dict({"gate.weight": row(weight), "gate.bias": row(bias)[0]})
    queries = column(1.0)
    values = torch.tensor([[[3.0, 5.0]]], dtype=torch.double)
    return readout(torch.ones(1, 1, 1).double(), values, queries)[0, 0]


def vector_gate(weights):
    """The tutorial's gate: sigmoid(W q), a vector."""
    gates = torch.tensor(weights, dtype=torch.double).sigmoid()
    return gates * torch.tensor([3.0, 5.0], dtype=torch.double)


def test_gate_is_scalar_not_vector():
    # sigmoid(log 3) = 3/4 and sigmoid(0) = 1/2: the tutorial can turn (3, 5) into (9/4, 5/2).
    vector = vector_gate([math.log(3), 0.0])
    torch.testing.assert_close(vector, row(9 / 4, 5 / 2)[0])
    context = gated(math.log(3), 0.0)
    torch.testing.assert_close(context, row(9 / 4, 15 / 4)[0])
    for weight in torch.linspace(-3, 3, 7).tolist():
        context = gated(weight, 0.5)
        torch.testing.assert_close(context[1] / context[0], torch.tensor(5 / 3).double())
    assert not math.isclose(vector[1] / vector[0], 5 / 3)


def loss_inputs(copies=1):
    """Return `copies` of two images with three positions and two words each.

    The first attends to one position twice: (1 - 2)^2 + 1 + 1 = 3. The second attends to two
    positions once each: 0 + 0 + 1 = 1.
    """
    weights = torch.tensor([[[1.0, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0]]]).repeat(copies, 1, 1)
    target_mask = torch.ones(weights.shape[:2], dtype=torch.bool)
    source_mask = torch.ones(len(weights), 3, dtype=torch.bool)
    return AlignmentLossInputs(
        AlignmentOutput(weights), torch.zeros(weights.shape[:2]), target_mask, source_mask
    )


def squared_deficit(copies):
    """(1 - sum_t a)^2 for each image and position."""
    return (1 - loss_inputs(copies).alignment.weights.sum(dim=1)).square()


def test_doubly_stochastic_loss_sums_over_positions_as_in_paper():
    torch.testing.assert_close(squared_deficit(1).sum(dim=-1), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(DoublyStochasticLoss()(loss_inputs()), torch.tensor(3.0 + 1.0))
    torch.testing.assert_close(DoublyStochasticLoss(0.5)(loss_inputs()), torch.tensor(2.0))


@pytest.mark.parametrize("copies", [1, 5])
def test_three_versions_of_doubly_stochastic_loss_differ_by_normalization(copies):
    images, positions = 2 * copies, 3
    ours = DoublyStochasticLoss()(loss_inputs(copies))
    authors = squared_deficit(copies).sum(dim=0).mean()
    tutorial = squared_deficit(copies).mean()
    torch.testing.assert_close(ours, torch.tensor(4.0 * copies))
    torch.testing.assert_close(authors, torch.tensor(4.0 * copies / positions))
    torch.testing.assert_close(tutorial, torch.tensor(4.0 / 6))
    # The mean over images is 2 by the paper, for any batch size.
    torch.testing.assert_close(ours / images, torch.tensor(2.0))
    torch.testing.assert_close(authors, images * tutorial)

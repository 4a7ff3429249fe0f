"""Auxiliary losses against hand calculations, and their invariants."""

import math

import pytest
import torch
from pydantic import TypeAdapter

from heedful.attention.alignments import AlignmentLossInputs, AlignmentOutput
from heedful.attention.auxiliary_losses import (
    AttentionLossConfig,
    CoverageLoss,
    DoublyStochasticLoss,
    EntropyLoss,
    entropy,
)

LOSSES = [DoublyStochasticLoss(0.7), CoverageLoss(1.3), EntropyLoss(0.2)]
all_losses = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)

# One source of three positions and three targets; one of two positions and two targets.
FIRST = [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]
SECOND = [[1.0, 0.0], [0.75, 0.25]]


def loss_inputs(rows, *, extra_targets=0, extra_places=0, probabilities=None):
    """Return loss inputs of one sentence with these weights, and padding."""
    wide = [[*row, *[0.0] * extra_places] for row in rows]
    # Padding targets have weights too.
    wide += [[1.0] + [0.0] * (len(wide[0]) - 1)] * extra_targets
    weights = torch.tensor([wide], dtype=torch.double, requires_grad=True)
    real = torch.arange(len(wide)) < len(rows)
    visible = torch.arange(len(wide[0])) < len(rows[0])
    alignment = AlignmentOutput(weights, probabilities)
    return AlignmentLossInputs(alignment, torch.zeros(1, len(wide)), real[None], visible[None])


def batch_inputs(*parts):
    """Return sentences of one shape as one batch."""
    fields = zip(*(part[1:] for part in parts), strict=True)
    weights = torch.cat([part.alignment.weights for part in parts])
    return AlignmentLossInputs(AlignmentOutput(weights), *(torch.cat(field) for field in fields))


def test_doubly_stochastic_loss_is_sum_over_source_positions():
    """(1 - .75)^2 + (1 - 1)^2 + (1 - 1.25)^2 and (1 - 1.75)^2 + (1 - .25)^2."""
    first, second = 0.0625 + 0 + 0.0625, 0.5625 + 0.5625
    assert DoublyStochasticLoss(1.0)(loss_inputs(FIRST)).item() == first
    assert DoublyStochasticLoss(1.0)(loss_inputs(SECOND)).item() == second
    batch = batch_inputs(loss_inputs(FIRST), loss_inputs(SECOND, extra_targets=1, extra_places=1))
    paper = 2.0 * (first + second)
    assert DoublyStochasticLoss(2.0)(batch).item() == paper
    mean_over_places, mean_over_both = paper / 3, paper / 6
    assert DoublyStochasticLoss(2.0)(batch).item() not in {mean_over_places, mean_over_both}


def test_coverage_loss_is_overlap_with_earlier_weights():
    """Targets 2 and 3 of the first: .25 + .5 + 0, then 0 + 0 + .25; of the second .75 + 0."""
    assert CoverageLoss(1.0)(loss_inputs(FIRST)).item() == 0.75 + 0.25
    assert CoverageLoss(3.0)(loss_inputs(SECOND)).item() == 3 * 0.75


def test_entropy_loss_is_sum_over_targets():
    first = math.log(2) + 1.5 * math.log(2) + 0
    assert EntropyLoss(0.5)(loss_inputs(FIRST)).item() == pytest.approx(0.5 * first)
    assert EntropyLoss(-1.0)(loss_inputs(FIRST)).item() == pytest.approx(-first)


def test_entropy_gradient_is_finite_at_zero_weight():
    shares = torch.tensor([[0.0, 0.25, 0.75]], requires_grad=True)
    entropy(shares).sum().backward()
    assert shares.grad[0].tolist() == pytest.approx([0, -1 - math.log(0.25), -1 - math.log(0.75)])


def test_entropy_keeps_nan_in_the_row():
    actual = entropy(torch.tensor([[0.5, float("nan")], [0.5, 0.5]]))
    assert actual.isnan().tolist() == [True, False]


@all_losses
def test_padding_adds_nothing_to_loss_or_gradient(loss):
    plain, padded = loss_inputs(FIRST), loss_inputs(FIRST, extra_targets=2, extra_places=3)
    torch.testing.assert_close(loss(padded), loss(plain))
    loss(plain).backward()
    loss(padded).backward()
    gradient = padded.alignment.weights.grad
    torch.testing.assert_close(gradient[:, :3, :3], plain.alignment.weights.grad)
    assert (gradient[:, 3:] == 0).all()


@all_losses
def test_loss_of_batch_is_sum_over_sentences(loss):
    parts = [loss_inputs(FIRST), loss_inputs(SECOND, extra_targets=1, extra_places=1)]
    torch.testing.assert_close(loss(batch_inputs(*parts)), loss(parts[0]) + loss(parts[1]))


@all_losses
def test_loss_of_heads_is_sum_over_heads(loss):
    """Leading dimensions are (B, H)."""
    weights = torch.rand(2, 4, 3, 5).softmax(-1)
    real = torch.tensor([[True, True, True], [True, True, False]])[:, None].expand(2, 4, 3)
    visible = torch.ones(2, 4, 5, dtype=torch.bool)
    whole = AlignmentLossInputs(AlignmentOutput(weights), torch.zeros(2, 4, 3), real, visible)
    separate = sum(
        loss(
            AlignmentLossInputs(
                AlignmentOutput(weights[:, head]),
                torch.zeros(2, 3),
                real[:, head],
                visible[:, head],
            )
        )
        for head in range(4)
    )
    torch.testing.assert_close(loss(whole), separate)


@all_losses
def test_hard_attention_loss_uses_probabilities(loss):
    """One-hot weights have no gradient."""
    probabilities = torch.tensor([FIRST], dtype=torch.double, requires_grad=True)
    choices = [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]
    chosen = loss(loss_inputs(choices, probabilities=probabilities))
    torch.testing.assert_close(chosen, loss(loss_inputs(FIRST)))
    chosen.backward()
    assert probabilities.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("settings", "loss_class", "weight"),
    [
        ({"type": "doubly-stochastic"}, DoublyStochasticLoss, 1.0),
        ({"type": "doubly-stochastic", "weight": 0.5}, DoublyStochasticLoss, 0.5),
        ({"type": "coverage"}, CoverageLoss, 1.0),
        ({"type": "entropy", "weight": -0.01}, EntropyLoss, -0.01),
    ],
)
def test_config_passes_weight_to_loss(settings, loss_class, weight):
    built = TypeAdapter(AttentionLossConfig).validate_python(settings).build()
    assert type(built) is loss_class
    assert built.name == settings["type"]
    assert built.weight == weight

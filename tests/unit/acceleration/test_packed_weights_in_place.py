"""In place: what is overwritten is what changing a copy gives."""

import pytest
import torch
from torch import nn

from heedful.acceleration.packed_weights import (
    activate_inplace,
    assume_constant_parameters,
    log_softmax_inplace,
)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 1, 1000), (5, 8000), (0, 4)], ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
@torch.no_grad()
def test_scores_normalised_in_place_are_those_normalised_apart(shape, precision):
    scores = (10 * torch.randn(shape)).to(precision)
    scores[..., :1] = -torch.inf if shape[-1] > 1 else 0
    wanted = scores.clone().log_softmax(dim=-1)
    assert torch.equal(log_softmax_inplace(scores), wanted)
    assert not torch.equal(scores, wanted) or scores.numel() <= 1
    with assume_constant_parameters():
        assert torch.equal(log_softmax_inplace(scores), wanted)
    assert torch.equal(scores, wanted)


def test_scores_that_are_learned_from_are_left():
    scores = torch.randn(2, 5, requires_grad=True)
    with assume_constant_parameters():
        log_softmax_inplace(scores)[:, 0].sum().backward()
    assert scores.grad.any()


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU(), nn.SiLU()], ids=str)
@torch.no_grad()
def test_a_hidden_layer_is_bent_as_its_activation_bends(activation):
    hidden = torch.randn(4, 6)
    wanted = activation(hidden.clone())
    assert torch.equal(activate_inplace(activation, hidden), wanted)

import torch
from torch import nn

from heedful.training.optim import AdamWConfig


def test_matrices_decay_and_vectors_do_not():
    groups = AdamWConfig(weight_decay=0.1).build(nn.Linear(3, 2)).param_groups
    decays = {group["params"][0].dim(): group["weight_decay"] for group in groups}
    assert decays == {2: 0.1, 1: 0.0}


def test_the_first_step_of_adam_moves_each_weight_by_the_rate():
    """m / sqrt(v) is the sign of the gradient at the first step (Kingma & Ba 2015)."""
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    optimizer = AdamWConfig(learning_rate=0.01).build(layer)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), before - 0.01, atol=1e-6, rtol=0)

import pytest
import torch
from torch import nn

from heedful.config.choice import kind_of, types_in
from heedful.training.checkpoints import Progress, load_checkpoint, save_checkpoint
from heedful.training.engine import Learner
from heedful.training.objectives import Loss
from heedful.training.optim import (
    AdadeltaConfig,
    AdagradConfig,
    AdamWConfig,
    OptimizerConfig,
    SgdConfig,
)

EACH = {kind_of(each): each() for each in types_in(OptimizerConfig)} | {
    "sgd with momentum": SgdConfig(learning_rate=0.1, momentum=0.9, nesterov=True)
}
each_optimizer = pytest.mark.parametrize("choice", EACH.values(), ids=EACH)


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


def one_step(choice):
    """How far a weight with the gradients 1, 2 and 4 moves at the first step."""
    layer = nn.Linear(3, 1, bias=False)
    before = layer.weight.detach().clone()
    optimizer = choice.build(layer)
    layer(torch.tensor([[1.0, 2.0, 4.0]])).sum().backward()
    optimizer.step()
    return (before - layer.weight.detach())[0]


def test_gradient_descent_moves_by_rate_times_gradient():
    moved = one_step(SgdConfig(learning_rate=0.5))
    torch.testing.assert_close(moved, torch.tensor([0.5, 1.0, 2.0]))


def test_the_first_step_of_adadelta_follows_its_paper():
    """sqrt(eps) / sqrt((1 - rho) g^2 + eps) * g (Zeiler 2012, algorithm 1)."""
    gradients = torch.tensor([1.0, 2.0, 4.0])
    wanted = (1e-6**0.5 / (0.05 * gradients**2 + 1e-6).sqrt()) * gradients
    torch.testing.assert_close(one_step(AdadeltaConfig()), wanted)


def test_the_first_step_of_adagrad_divides_by_the_root_of_what_has_come():
    gradients = torch.tensor([1.0, 2.0, 4.0])
    wanted = 0.15 * gradients / (0.1 + gradients**2).sqrt()
    torch.testing.assert_close(one_step(AdagradConfig()), wanted)


class OfBatch:
    """As much of a batch as a learner asks for."""

    num_targets = num_tokens = 1

    def __init__(self, number):
        self.inputs = torch.arange(3.0) + number


def learner(choice):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)

    def loss(each, batch):
        return Loss(each(batch.inputs).square().sum(), {})

    return Learner(model, loss, choice.build(model), lambda _: 0.01, max_grad_norm=1.0)


@each_optimizer
def test_training_goes_on_from_a_checkpoint_as_if_never_stopped(choice, tmp_path):
    whole, first, second = learner(choice), learner(choice), learner(choice)
    for number in range(6):
        whole.update([OfBatch(number)])
    for number in range(3):
        first.update([OfBatch(number)])
    save_checkpoint(tmp_path / "state", first, Progress(data=""))
    load_checkpoint(tmp_path / "state", second)
    for number in range(3, 6):
        second.update([OfBatch(number)])
    for before, after in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(before, after)

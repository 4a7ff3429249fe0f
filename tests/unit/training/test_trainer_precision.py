import json

import pytest
import torch
from torch import nn

from heedful.models.output_heads import negative_log_likelihood
from heedful.training.optim import AdamWConfig
from heedful.training.trainer import GradientClipper, MixedPrecision, choose_precision
from tests.catalogue import batch, build, store

NAMES = ("fp32", "bf16", "fp16")
each_precision = pytest.mark.parametrize("name", NAMES)


class Training:
    """A model that learns a few things by heart."""

    def __init__(self, name, model, loss):
        self.model = model.train()
        self.loss = loss
        self.optimizer = AdamWConfig(learning_rate=0.03).build(model)
        self.precision = MixedPrecision(name, "cpu")
        self.weights = list(model.parameters())

    def update(self, poison=1.0):
        """Learn once; `poison` multiplies the loss. Give that, and whether it overflowed."""
        with self.precision.autocast():
            loss = self.loss(self.model)
        self.precision.backward(loss * poison)
        self.precision.unscale_gradients(self.optimizer)
        norm = GradientClipper(max_norm=1.0)(self.weights)
        overflow = not norm.isfinite() and self.precision.handle_overflow()
        if norm.isfinite():
            self.precision.optimizer_step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item(), overflow


def of_system(name, system):
    examples = batch(store(4), [0, 1, 2, 3])

    def loss(model):
        log_probs = model(examples, need_weights=False).log_probs.float()
        return negative_log_likelihood(log_probs, examples.targets) / examples.num_targets

    return Training(name, build(system).float(), loss)


def of_layers(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    inputs, wanted = torch.randn(5, 4), torch.randn(5, 3)
    return Training(name, model, lambda each: (each(inputs).float() - wanted).square().mean())


def learns(training, steps, share):
    first, _ = training.update()
    losses = [training.update()[0] for _ in range(steps)]
    assert min(losses[-10:]) < share * first
    assert all(weight.dtype == torch.float32 for weight in training.weights)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["lstm, attend-then-step", "transformer, pre-norm"])
@each_precision
def test_small_model_learns_the_pairs(name, system):
    learns(of_system(name, system), steps=100, share=0.2)


@each_precision
def test_gradients_do_not_depend_on_the_loss_scale(name):
    precision, layer = MixedPrecision(name, "cpu"), nn.Linear(3, 2)
    loss = layer(torch.ones(3)).square().sum()
    wanted = torch.autograd.grad(loss, layer.weight, retain_graph=True)[0]
    precision.backward(loss)
    precision.unscale_gradients(torch.optim.SGD(layer.parameters(), 0.1))
    assert torch.equal(layer.weight.grad, wanted)  # a power of two rounds nothing


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_autocast_uses_the_precision_and_parameters_stay_fp32(name):
    layer = nn.Linear(3, 2)
    with MixedPrecision(name, "cpu").autocast():
        outputs = layer(torch.ones(3))
    assert outputs.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
    outputs.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


def tiny_gradient(differentiate, precision):
    """The gradient 2^-26, less than half of the least that fp16 holds, through a product."""
    layer = nn.Linear(1, 1, bias=False)
    with precision.autocast():
        outputs = layer(torch.ones(1))
    differentiate(outputs.float().sum() * 2.0**-26)
    precision.unscale_gradients(torch.optim.SGD(layer.parameters(), 0.1))
    return layer.weight.grad.item()


def test_loss_scaling_prevents_underflow():
    half = MixedPrecision("fp16", "cpu")
    assert tiny_gradient(half.backward, half) == 2.0**-26
    assert tiny_gradient(torch.Tensor.backward, half) == 0


def test_fp16_loss_can_be_scaled():
    precision, layer = MixedPrecision("fp16", "cpu"), nn.Linear(2, 1, bias=False)
    with precision.autocast():
        loss = layer(torch.ones(2)).sum()
    assert loss.dtype == torch.float16
    precision.backward(loss)
    precision.unscale_gradients(torch.optim.SGD(layer.parameters(), 0.1))
    assert torch.equal(layer.weight.grad, torch.ones(1, 2))


def test_overflow_halves_the_scale_and_skips_the_step():
    training = of_layers("fp16")
    before = [weight.detach().clone() for weight in training.weights]
    _, overflow = training.update(poison=1e30)
    assert overflow
    assert training.precision.state_dict() == {"scale": 2.0**14, "steps": 0}
    assert all(map(torch.equal, before, training.weights))
    _, overflow = training.update()
    assert not overflow
    assert training.precision.state_dict() == {"scale": 2.0**14, "steps": 1}


def test_scale_doubles_after_two_thousand_steps():
    precision, optimizer = MixedPrecision("fp16", "cpu"), torch.optim.SGD([torch.zeros(1)], 0.1)
    for _ in range(1999):
        precision.optimizer_step(optimizer)
    assert precision.state_dict() == {"scale": 2.0**15, "steps": 1999}
    precision.optimizer_step(optimizer)
    assert precision.state_dict() == {"scale": 2.0**16, "steps": 0}


def test_scale_of_one_is_no_overflow():
    precision = MixedPrecision("fp16", "cpu")
    assert [precision.handle_overflow() for _ in range(18)] == [True] * 15 + [False] * 3
    assert precision.state_dict()["scale"] == 1


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_without_loss_scaling_there_is_no_overflow_and_no_state(name):
    precision = MixedPrecision(name, "cpu")
    assert not precision.handle_overflow()
    assert precision.state_dict() == {}
    precision.load_state_dict({})


@each_precision
def test_precision_state_round_trips_through_json(name):
    poisons = [1.0, 1e30, 1.0, 1e30, 1.0, 1.0, 1e30, 1.0]
    whole, first, second = (of_layers(name) for _ in range(3))
    for poison in poisons:
        whole.update(poison if name == "fp16" else 1.0)
    for poison in poisons[:4]:
        first.update(poison if name == "fp16" else 1.0)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.precision.load_state_dict(json.loads(json.dumps(first.precision.state_dict())))
    for poison in poisons[4:]:
        second.update(poison if name == "fp16" else 1.0)
    assert whole.precision.state_dict() == second.precision.state_dict()
    assert all(map(torch.equal, whole.weights, second.weights))


@pytest.mark.parametrize("has_bf16", [True, False])
def test_precision_of_the_task_is_chosen_on_a_gpu_that_has_it(has_bf16, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    expected = "bf16" if has_bf16 else "fp32"
    assert choose_precision("bf16", torch.device("cuda")) == expected
    assert choose_precision("bf16", torch.device("cpu")) == "fp32"
    assert choose_precision("fp32", torch.device("cuda")) == "fp32"

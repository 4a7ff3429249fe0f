import pytest
import torch
from torch import nn

from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError
from heedful.training.optim import (
    AdadeltaConfig,
    AdagradConfig,
    AdamConfig,
    AdamWConfig,
    OptimizerConfig,
    SGDConfig,
)

MOMENTUM = {"learning_rate": 0.1, "momentum": 0.9}
OPTIMIZERS = {type_of(config): config() for config in types_in(OptimizerConfig)} | {
    "sgd with momentum": SGDConfig(**MOMENTUM),
    "sgd with Nesterov's momentum": SGDConfig(**MOMENTUM, nesterov=True),
}
each_optimizer = pytest.mark.parametrize("config", OPTIMIZERS.values(), ids=OPTIMIZERS)

# A curved function, so that gradients depend on where they are taken.
CURVATURE = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
START = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
RATES = [0.1, 0.1, 0.05, 0.2, 0.01, 0.01, 0.3, 0.02]  # learning rates: not constant


def gradient(weights):
    """The gradient of w C w / 2 + sum of sin w."""
    return weights @ CURVATURE + weights.cos()


def run_optimizer(config, rates=RATES):
    """Return the parameter after all steps, in double precision."""
    weight = nn.Parameter(START.clone())
    model = nn.Module()
    model.weight = weight
    optimizer = config.build(model)
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        weight.grad = gradient(weight.detach())
        optimizer.step()
    return weight.detach()


def assert_equal(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_follows_algorithm_1_of_the_paper(decay):
    """Kingma & Ba 2015; a decay is added to the gradient, as the derivative of decay |w|^2 / 2."""
    w, m, v = START.clone(), 0.0, 0.0
    for t, rate in enumerate(RATES, start=1):
        g = gradient(w) + decay * w
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.999 * v + (1 - 0.999) * g**2
        w = w - rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    assert_equal(run_optimizer(AdamConfig(weight_decay=decay)), w)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_follows_algorithm_2_of_the_paper(decay):
    """Loshchilov & Hutter 2019; their decay is multiplied by the schedule, ours by the rate."""
    w, m, v = START.clone(), 0.0, 0.0
    for t, rate in enumerate(RATES, start=1):
        g = gradient(w)
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.98 * v + (1 - 0.98) * g**2
        step = (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-9)
        w = w - rate * (step + decay * w)
    assert_equal(run_optimizer(AdamWConfig(weight_decay=decay)), w)


def test_sgd_follows_the_gradient_and_weight_decay():
    w = START.clone()
    for rate in RATES:
        w = w - rate * (gradient(w) + 0.1 * w)
    assert_equal(run_optimizer(SGDConfig(weight_decay=0.1)), w)


def test_momentum_follows_the_paper_while_learning_rate_changes():
    """Sutskever et al. 2013, equations 1 and 2."""
    w, v = START.clone(), torch.zeros_like(START)
    for rate in RATES:
        v = 0.9 * v - rate * gradient(w)
        w = w + v
    assert_equal(run_optimizer(SGDConfig(**MOMENTUM)), w)


def test_nesterov_momentum_follows_the_paper_at_the_lookahead_point():
    """Sutskever et al. 2013, equations 3 and 4; the parameters hold w + m v."""
    w, v = START.clone(), torch.zeros_like(START)
    for rate in RATES:
        v = 0.9 * v - rate * gradient(w + 0.9 * v)
        w = w + v
    assert_equal(run_optimizer(SGDConfig(**MOMENTUM, nesterov=True)), w + 0.9 * v)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_same_as_torch_at_constant_learning_rate(nesterov):
    weight = nn.Parameter(START.clone())
    torch_optimizer = torch.optim.SGD(
        [weight], 0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01
    )
    for _ in range(8):
        weight.grad = gradient(weight.detach())
        torch_optimizer.step()
    config = SGDConfig(**MOMENTUM, nesterov=nesterov, weight_decay=0.01)
    assert_equal(run_optimizer(config, [0.1] * 8), weight.detach())


def test_momentum_ignores_parameters_without_gradient():
    layer = nn.Linear(2, 2)
    before = [weight.detach().clone() for weight in layer.parameters()]
    SGDConfig(**MOMENTUM).build(layer).step()
    assert all(map(torch.equal, before, layer.parameters()))


def test_adadelta_follows_algorithm_1_of_the_paper():
    """Zeiler 2012, which has no rate: there it is 1, and here it multiplies the move."""
    w, squares, moves = START.clone(), 0.0, 0.0
    for rate in RATES:
        g = gradient(w)
        squares = 0.95 * squares + 0.05 * g**2
        move = -((moves + 1e-6) ** 0.5) / (squares + 1e-6).sqrt() * g
        moves = 0.95 * moves + 0.05 * move**2
        w = w + rate * move
    assert_equal(run_optimizer(AdadeltaConfig()), w)


def test_adagrad_divides_by_root_of_sum_of_squares():
    """Duchi et al. 2011, figure 1, with diagonal matrices; 0.1 stands there first."""
    w, total = START.clone(), torch.full_like(START, 0.1)
    for rate in RATES:
        g = gradient(w)
        total = total + g**2
        w = w - rate * g / (1e-10 + total.sqrt())
    assert_equal(run_optimizer(AdagradConfig()), w)


def train(model, optimizer, steps):
    for step in steps:
        model(torch.arange(3.0) + step).square().sum().backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + step)
        optimizer.step()
        optimizer.zero_grad()


@each_optimizer
def test_optimizer_state_is_tensors_and_resumes_exactly(config):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = config.build(model)
    train(model, optimizer, range(3))
    state = optimizer.state_dict()["state"]
    saved = {
        index: {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
        for index, tensors in state.items()
    }
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    train(model, optimizer, range(3, 6))
    resumed = config.build(other)
    groups = resumed.state_dict()["param_groups"]
    resumed.load_state_dict({"state": saved, "param_groups": groups})
    train(other, resumed, range(3, 6))
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_weight_decay_applies_to_matrices_only():
    groups = AdamWConfig(weight_decay=0.1).build(nn.Linear(3, 2)).param_groups
    decays = {group["params"][0].dim(): group["weight_decay"] for group in groups}
    assert decays == {2: 0.1, 1: 0.0}


def test_nesterov_without_momentum_raises():
    with pytest.raises(ConfigError) as caught:
        SGDConfig(nesterov=True)
    assert str(caught.value) == (
        "training.optimizer.nesterov: needs momentum, but training.optimizer.momentum is 0\n"
        "  set training.optimizer.momentum, for example to 0.9, or remove nesterov"
    )


def small_model():
    return nn.ModuleDict(
        {
            "encoder": nn.ModuleDict({"lower": nn.Linear(2, 2), "upper": nn.Linear(2, 2)}),
            "decoder": nn.Linear(2, 2),
        }
    )


def group_settings(model, *groups, weight_decay=0.0):
    """Return (lr_scale, weight_decay) of each trainable parameter, by name."""
    config = AdamWConfig(weight_decay=weight_decay, param_groups=groups)
    names = {weight: name for name, weight in model.named_parameters()}
    return {
        names[weight]: (group["lr_scale"], group["weight_decay"])
        for group in config.build(model).param_groups
        for weight in group["params"]
    }


def test_first_matching_param_group_applies():
    settings = group_settings(
        small_model(),
        {"pattern": "encoder.lower.*", "lr_scale": 0.25, "weight_decay": 0.5},
        {"pattern": "encoder.*", "lr_scale": 0.5},
        weight_decay=0.1,
    )
    assert settings == {
        "encoder.lower.weight": (0.25, 0.5),
        "encoder.lower.bias": (0.25, 0.0),
        "encoder.upper.weight": (0.5, 0.1),
        "encoder.upper.bias": (0.5, 0.0),
        "decoder.weight": (1.0, 0.1),
        "decoder.bias": (1.0, 0.0),
    }


def test_frozen_parameters_have_no_gradient_and_no_group():
    model = small_model()
    settings = group_settings(model, {"pattern": "encoder.*", "frozen": True})
    assert set(settings) == {"decoder.weight", "decoder.bias"}
    trainable = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trainable == set(settings)


def test_tied_parameter_same_as_by_either_name():
    model = small_model()
    model["decoder"].weight = model["encoder"]["lower"].weight
    assert group_settings(model, {"pattern": "decoder.*", "lr_scale": 0.5})[
        "encoder.lower.weight"
    ] == (
        0.5,
        0.0,
    )


@each_optimizer
def test_lr_scale_equals_scaled_learning_rate(config):
    """With lr_scale s the parameter moves as with s times the learning rate."""
    groups = ({"pattern": "weight", "lr_scale": 0.25},)
    scaled = run_optimizer(config.model_validate({**config.model_dump(), "param_groups": groups}))
    assert_equal(scaled, run_optimizer(config, [0.25 * rate for rate in RATES]))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            [{"pattern": "decoder.*"}, {"pattern": "encodr.*"}],
            ".1.pattern: no parameter matches 'encodr.*'; did you mean 'encoder.*'?\n"
            "  choose from: decoder.*, encoder.*",
        ),
        (
            [{"pattern": "*", "frozen": True}],
            ": all parameters are frozen\n  leave some of them trainable",
        ),
        (
            [{"pattern": "encoder.*", "frozen": True, "lr_scale": 0.5}],
            ", pattern 'encoder.*': frozen parameters have no lr_scale\n"
            "  remove one of the two settings",
        ),
    ],
)
def test_unusable_param_groups_raise(groups, message):
    with pytest.raises(ConfigError) as caught:
        AdamWConfig(param_groups=groups).build(small_model())
    assert str(caught.value) == f"training.optimizer.param_groups{message}"

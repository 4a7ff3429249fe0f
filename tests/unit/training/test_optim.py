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
EACH = {type_of(each): each() for each in types_in(OptimizerConfig)} | {
    "sgd with momentum": SGDConfig(**MOMENTUM),
    "sgd with Nesterov's momentum": SGDConfig(**MOMENTUM, nesterov=True),
}
each_optimizer = pytest.mark.parametrize("choice", EACH.values(), ids=EACH)

# A valley that is curved, so that gradients depend on where they are taken.
CURVATURE = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
START = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
RATES = [0.1, 0.1, 0.05, 0.2, 0.01, 0.01, 0.3, 0.02]  # no rule may count on a rate that stays


def slope(weights):
    """The gradient of w C w / 2 + sum of sin w."""
    return weights @ CURVATURE + weights.cos()


def walk(choice, rates=RATES):
    """Where the optimizer leads, in double precision."""
    weight = nn.Parameter(START.clone())
    model = nn.Module()
    model.weight = weight
    optimizer = choice.build(model)
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        weight.grad = slope(weight.detach())
        optimizer.step()
    return weight.detach()


def same(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_algorithm_1_of_its_paper(decay):
    """Kingma & Ba 2015; a decay is added to the gradient, as the derivative of decay |w|^2 / 2."""
    w, m, v = START.clone(), 0.0, 0.0
    for t, rate in enumerate(RATES, start=1):
        g = slope(w) + decay * w
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.999 * v + (1 - 0.999) * g**2
        w = w - rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    same(walk(AdamConfig(weight_decay=decay)), w)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_is_algorithm_2_of_its_paper(decay):
    """Loshchilov & Hutter 2019; their decay is multiplied by the schedule, ours by the rate."""
    w, m, v = START.clone(), 0.0, 0.0
    for t, rate in enumerate(RATES, start=1):
        g = slope(w)
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.98 * v + (1 - 0.98) * g**2
        step = (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-9)
        w = w - rate * (step + decay * w)
    same(walk(AdamWConfig(weight_decay=decay)), w)


def test_gradient_descent_follows_the_gradient():
    w = START.clone()
    for rate in RATES:
        w = w - rate * (slope(w) + 0.1 * w)
    same(walk(SGDConfig(weight_decay=0.1)), w)


def test_momentum_is_that_of_its_paper_while_the_rate_changes():
    """Sutskever et al. 2013, equations 1 and 2."""
    w, v = START.clone(), torch.zeros_like(START)
    for rate in RATES:
        v = 0.9 * v - rate * slope(w)
        w = w + v
    same(walk(SGDConfig(**MOMENTUM)), w)


def test_nesterovs_momentum_is_that_of_its_paper_seen_from_where_it_leads():
    """Sutskever et al. 2013, equations 3 and 4; what is held as weights is w + m v."""
    w, v = START.clone(), torch.zeros_like(START)
    for rate in RATES:
        v = 0.9 * v - rate * slope(w + 0.9 * v)
        w = w + v
    same(walk(SGDConfig(**MOMENTUM, nesterov=True)), w + 0.9 * v)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_agrees_with_torch_while_the_rate_stays(nesterov):
    weight = nn.Parameter(START.clone())
    theirs = torch.optim.SGD([weight], 0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    for _ in range(8):
        weight.grad = slope(weight.detach())
        theirs.step()
    mine = SGDConfig(**MOMENTUM, nesterov=nesterov, weight_decay=0.01)
    same(walk(mine, [0.1] * 8), weight.detach())


def test_momentum_leaves_weights_without_a_gradient_alone():
    layer = nn.Linear(2, 2)
    before = [weight.detach().clone() for weight in layer.parameters()]
    SGDConfig(**MOMENTUM).build(layer).step()
    assert all(map(torch.equal, before, layer.parameters()))


def test_adadelta_is_algorithm_1_of_its_paper():
    """Zeiler 2012, which has no rate: there it is 1, and here it multiplies the move."""
    w, squares, moves = START.clone(), 0.0, 0.0
    for rate in RATES:
        g = slope(w)
        squares = 0.95 * squares + 0.05 * g**2
        move = -((moves + 1e-6) ** 0.5) / (squares + 1e-6).sqrt() * g
        moves = 0.95 * moves + 0.05 * move**2
        w = w + rate * move
    same(walk(AdadeltaConfig()), w)


def test_adagrad_divides_by_the_root_of_all_that_has_come():
    """Duchi et al. 2011, figure 1, with diagonal matrices; 0.1 stands there first."""
    w, total = START.clone(), torch.full_like(START, 0.1)
    for rate in RATES:
        g = slope(w)
        total = total + g**2
        w = w - rate * g / (1e-10 + total.sqrt())
    same(walk(AdagradConfig()), w)


def learn(model, optimizer, numbers):
    for number in numbers:
        model(torch.arange(3.0) + number).square().sum().backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + number)
        optimizer.step()
        optimizer.zero_grad()


@each_optimizer
def test_its_state_is_tensors_alone_and_goes_on_as_if_never_stopped(choice):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = choice.build(model)
    learn(model, optimizer, range(3))
    state = optimizer.state_dict()["state"]
    kept = {
        place: {name: tensor.clone() for name, tensor in each.items() if tensor is not None}
        for place, each in state.items()
    }
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    learn(model, optimizer, range(3, 6))
    again = choice.build(other)
    groups = again.state_dict()["param_groups"]
    again.load_state_dict({"state": kept, "param_groups": groups})
    learn(other, again, range(3, 6))
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_matrices_decay_and_vectors_do_not():
    groups = AdamWConfig(weight_decay=0.1).build(nn.Linear(3, 2)).param_groups
    decays = {group["params"][0].dim(): group["weight_decay"] for group in groups}
    assert decays == {2: 0.1, 1: 0.0}


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(ConfigError) as caught:
        SGDConfig(nesterov=True)
    assert str(caught.value) == (
        "training.optimizer.nesterov: without momentum there is nowhere that it leads\n"
        "  set training.optimizer.momentum, for example to 0.9, or leave nesterov out"
    )


def two_parts():
    return nn.ModuleDict(
        {
            "encoder": nn.ModuleDict({"lower": nn.Linear(2, 2), "upper": nn.Linear(2, 2)}),
            "decoder": nn.Linear(2, 2),
        }
    )


def settings_of(model, *layers, weight_decay=0.0):
    """For each weight that learns, by name: its share of the rate and its decay."""
    choice = AdamWConfig(weight_decay=weight_decay, param_groups=layers)
    names = {weight: name for name, weight in model.named_parameters()}
    return {
        names[weight]: (group["scale"], group["weight_decay"])
        for group in choice.build(model).param_groups
        for weight in group["params"]
    }


def test_the_first_layer_that_matches_holds_and_others_learn_as_usual():
    found = settings_of(
        two_parts(),
        {"pattern": "encoder.lower.*", "lr_scale": 0.25, "weight_decay": 0.5},
        {"pattern": "encoder.*", "lr_scale": 0.5},
        weight_decay=0.1,
    )
    assert found == {
        "encoder.lower.weight": (0.25, 0.5),
        "encoder.lower.bias": (0.25, 0.0),
        "encoder.upper.weight": (0.5, 0.1),
        "encoder.upper.bias": (0.5, 0.0),
        "decoder.weight": (1.0, 0.1),
        "decoder.bias": (1.0, 0.0),
    }


def test_frozen_weights_ask_for_no_gradient_and_are_not_moved():
    model = two_parts()
    found = settings_of(model, {"pattern": "encoder.*", "frozen": True})
    assert set(found) == {"decoder.weight", "decoder.bias"}
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learning == set(found)


def test_a_weight_in_two_places_is_matched_by_either_name():
    model = two_parts()
    model["decoder"].weight = model["encoder"]["lower"].weight
    assert settings_of(model, {"pattern": "decoder.*", "lr_scale": 0.5})[
        "encoder.lower.weight"
    ] == (
        0.5,
        0.0,
    )


@each_optimizer
def test_a_weight_learns_by_its_share_of_the_rate(choice):
    """With a share s of the rate it goes where it would go alone with s times the rate."""
    layers = ({"pattern": "weight", "lr_scale": 0.25},)
    shared = walk(choice.model_validate({**choice.model_dump(), "layers": layers}))
    same(shared, walk(choice, [0.25 * rate for rate in RATES]))


def refusal(*layers):
    with pytest.raises(ConfigError) as caught:
        AdamWConfig(param_groups=layers).build(two_parts())
    return str(caught.value)


def test_a_pattern_that_matches_nothing_is_refused_with_near_names():
    assert refusal({"pattern": "decoder.*"}, {"pattern": "encodr.*"}) == (
        "training.optimizer.param_groups.1.pattern: no weight is called 'encodr.*'; "
        "did you mean 'encoder.*'?\n"
        "  choose from: decoder.*, encoder.*"
    )


def test_a_model_that_is_frozen_whole_is_refused():
    assert refusal({"pattern": "*", "frozen": True}) == (
        "training.optimizer.param_groups: every weight of the model is frozen\n"
        "  leave some of them to learn"
    )


def test_frozen_weights_with_a_rate_are_refused():
    assert refusal({"pattern": "encoder.*", "frozen": True, "lr_scale": 0.5}) == (
        "training.optimizer.param_groups, match 'encoder.*': weights that are frozen have no scale\n"
        "  leave out one of the two"
    )

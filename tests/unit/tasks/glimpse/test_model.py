"""Glimpse models: REINFORCE against enumeration and quadrature, stopping, Monte Carlo averages."""

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heedful.data.images.labeled_images import LabeledImageBatch
from heedful.tasks.glimpse.draw_window import DrawWindowConfig
from heedful.tasks.glimpse.model import RecurrentAttentionConfig
from heedful.tasks.glimpse.policies import (
    GaussianLocationPolicy,
    GridLocationPolicy,
    RandomLocationPolicy,
)
from heedful.tasks.glimpse.task import GlimpseObjective

GRID = {"type": "grid", "num_rows": 2, "num_columns": 2}
TINY = {"image_size": 2, "glimpse_size": 1, "num_glimpses": 2, "num_classes": 2, "location": GRID}
SIZES = {"part_size": 4, "glimpse_hidden_size": 5, "hidden_size": 6}


def tiny_model(seed=0, **settings):
    """A model that sees one pixel of a 2 x 2 image at a time, in float64."""
    torch.manual_seed(seed)
    config = RecurrentAttentionConfig.model_validate({**TINY, **SIZES, **settings})
    model = config.build().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=1.0)
    return model


def policy_parameters(model):
    policies = [model.policy, *([model.stopping] if model.stopping else [])]
    return [parameter for policy in policies for parameter in policy.parameters()]


def glimpse_once(model, image, cell, hidden):
    """One step written out: the pixel of a cell, the layers by their formulas."""
    location = torch.tensor([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])[cell].double()
    pixel = image.flatten()[cell].view(1)
    net, core = model.network, model.core
    parts = net.patch_layer(pixel).relu(), net.location_layer(location).relu()
    vector = (net.patch_output(parts[0]) + net.location_output(parts[1])).relu()
    return (core.input_projection(vector) + core.hidden_projection(hidden)).relu()


def enumerate_episodes(model, image, label):
    """Yield probability, reward and random numbers of every episode of two glimpses."""

    def reward(hidden, count):
        correct = float(model.classifier(hidden).argmax() == label)
        return correct - (model.stopping.cost * count if model.stopping else 0)

    def number(probabilities, cell):  # the middle of the interval that selects the cell
        return (probabilities[:cell].sum() + probabilities[cell] / 2).item()

    start = torch.zeros(6).double()
    first_probs = model.policy.projection(start).softmax(-1)
    for first in range(4):
        hidden = glimpse_once(model, image, first, start).detach()
        stop = model.stopping
        stop_prob = torch.zeros(()).double()
        if stop:
            stop_prob = (stop.projection(hidden)[0] + stop.initial_logit).sigmoid()
            numbers = [[number(first_probs, first), 0, 0], [0, 0, stop_prob.item() / 2]]
            yield first_probs[first] * stop_prob, reward(hidden, 1), numbers
        second_probs = model.policy.projection(hidden).softmax(-1)
        for second in range(4):
            last = glimpse_once(model, image, second, hidden).detach()
            probability = first_probs[first] * (1 - stop_prob) * second_probs[second]
            go_on = (1 + stop_prob.item()) / 2
            numbers = [
                [number(first_probs, first), 0, 0],
                [number(second_probs, second), 0, go_on],
            ]
            yield probability, reward(last, 2), numbers


@pytest.mark.parametrize("stopping", [None, {"cost": 0.3, "initial_probability": 0.4}])
@pytest.mark.parametrize("seed", [0, 5, 11])
def test_reinforce_gradient_is_that_of_the_expected_reward(seed, stopping):
    """All 16 (or 20) episodes on a 2 x 2 image; the baseline has random parameters."""
    model = tiny_model(seed, stopping=stopping)
    image = torch.rand(2, 2).double()
    labels = torch.tensor([1])
    parameters = policy_parameters(model)
    episodes = list(enumerate_episodes(model, image, labels[0]))
    assert math.isclose(sum(probability.item() for probability, *_ in episodes), 1.0)
    assert len({reward for _, reward, _ in episodes}) > 1
    expected_reward = sum(probability * reward for probability, reward, _ in episodes)
    exact = torch.autograd.grad(expected_reward, parameters)
    estimate = [torch.zeros_like(parameter) for parameter in parameters]
    for probability, reward, numbers in episodes:
        uniform = torch.tensor([numbers], dtype=torch.float64)
        sampled = model.run_episodes(image.unsqueeze(0), uniform)
        log_probs = model.classifier(sampled.last_states).log_softmax(-1)
        loss = model.policy_losses(sampled, log_probs, labels)["reinforce"]
        assert loss.item() == pytest.approx(1 - reward)
        assert sampled.log_probs.sum().item() == pytest.approx(probability.log().item())
        for total, gradient in zip(estimate, torch.autograd.grad(loss, parameters), strict=True):
            total.sub_(probability.item() * gradient)
    torch.testing.assert_close(estimate, list(exact), rtol=1e-9, atol=1e-11)


def test_gaussian_policy_gradient_is_that_of_the_expected_reward():
    """One glimpse: the reward depends on the pixel, whose probability is a normal integral."""
    model = tiny_model(7, location={"type": "gaussian", "std": 0.6}, num_glimpses=1)
    with torch.no_grad():
        for parameter in model.network.location_output.parameters():
            parameter.zero_()
    image, label = torch.tensor([[0.1, 0.9], [0.6, 0.3]]).double(), torch.tensor([1])
    rewards = torch.zeros(2, 2).double()
    start = torch.zeros(6).double()
    for cell in range(4):
        hidden = glimpse_once(model, image, cell, start)
        rewards.view(-1)[cell] = (model.classifier(hidden).argmax() == label[0]).double()
    assert 0 < rewards.sum() < 4
    # A glimpse of one pixel: corner round(l + 1 - 0.5), so l < 0 is the first pixel (and l = 1 is
    # clipped: corner 2, outside). P(l < 0) and P(l >= 1) by the normal distribution.
    means = model.policy.projection(start).tanh()
    below, inside = (torch.special.ndtr((edge - means) / 0.6) for edge in (0.0, 1.0))
    probabilities = torch.stack([below, inside - below, 1 - inside])  # (3, 2)
    outside = glimpse_once(model, torch.zeros(2, 2).double(), 0, start)
    blank = (model.classifier(outside).argmax() == label[0]).double()
    table = torch.full((3, 3), blank.item()).double()
    table[:2, :2] = rewards
    expected = torch.einsum("i,j,ij->", probabilities[:, 0], probabilities[:, 1], table)
    exact = torch.autograd.grad(expected, list(model.policy.parameters()))
    grid = (torch.arange(600).double() + 0.5) / 600
    uniform = torch.cartesian_prod(grid, grid)
    uniform = torch.cat([uniform, torch.zeros(len(uniform), 1).double()], dim=1).unsqueeze(1)
    sampled = model.run_episodes(image.expand(len(uniform), 2, 2), uniform)
    log_probs = model.classifier(sampled.last_states).log_softmax(-1)
    loss = model.policy_losses(sampled, log_probs, label.expand(len(uniform)))["reinforce"]
    gradients = torch.autograd.grad(-loss / len(uniform), list(model.policy.parameters()))
    for actual, wanted in zip(gradients, exact, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=0.02, atol=4e-3)


def test_log_prob_of_a_gaussian_location_is_the_density():
    torch.manual_seed(0)
    policy = GaussianLocationPolicy(3, std=0.4).double()
    hidden, uniform = torch.randn(5, 3).double(), torch.rand(5, 2).double()
    locations, log_probs = policy(hidden, uniform)
    means = policy.projection(hidden).tanh()
    samples = means + 0.4 * torch.special.ndtri(uniform)
    expected = torch.distributions.Normal(means, 0.4).log_prob(samples).sum(-1)
    torch.testing.assert_close(log_probs, expected)
    torch.testing.assert_close(locations, samples.clamp(-1, 1))
    torch.testing.assert_close(policy(hidden, None).locations, means)


def test_grid_policy_samples_cells_with_probabilities():
    torch.manual_seed(0)
    policy = GridLocationPolicy(3, 2, 3).double()
    hidden = torch.randn(1, 3).double()
    uniform = ((torch.arange(60_000).double() + 0.5) / 60_000).unsqueeze(1).expand(-1, 2)
    locations, log_probs = policy(hidden.expand(len(uniform), -1), uniform)
    probabilities = policy.projection(hidden).softmax(-1)[0]
    centers = [(row, column) for row in (-0.5, 0.5) for column in (-2 / 3, 0.0, 2 / 3)]
    for center, probability in zip(centers, probabilities.tolist(), strict=True):
        chosen = (locations - torch.tensor(center).double()).abs().sum(1) < 1e-6
        assert chosen.double().mean().item() == pytest.approx(probability, abs=1e-4)
        assert log_probs[chosen].exp().unique().tolist() == pytest.approx([probability])


def test_random_policy_is_uniform_over_the_image_and_has_nothing_to_learn():
    policy, uniform = RandomLocationPolicy(), torch.tensor([[0.0, 0.5], [0.25, 1.0]])
    locations, log_probs = policy(torch.randn(2, 3), uniform)
    assert locations.tolist() == [[-1.0, 0.0], [-0.5, 1.0]]
    assert log_probs.tolist() == [0.0, 0.0]
    assert list(policy.parameters()) == []
    assert policy(torch.randn(2, 3), None).locations.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_policies_send_no_gradient_into_the_core():
    model = tiny_model(location={"type": "gaussian"}, stopping={})
    images, labels = torch.rand(3, 2, 2).double(), torch.tensor([0, 1, 1])
    sampled = model.run_episodes(images, torch.rand(3, 2, 3).double())
    log_probs = model.classifier(sampled.last_states).log_softmax(-1).detach()
    sum(model.policy_losses(sampled, log_probs, labels).values()).backward()
    parts = {"policy", "stopping", "baseline"}
    for name, parameter in model.named_parameters():
        has_gradient = parameter.grad is not None and parameter.grad.abs().sum() > 0
        assert has_gradient == (name.split(".")[0] in parts), name


def test_baseline_is_fitted_to_the_reward():
    model = tiny_model(stopping={"cost": 0.25})
    images, labels = torch.rand(4, 2, 2).double(), torch.tensor([0, 1, 1, 0])
    uniform = torch.rand(4, 2, 3).double()
    sampled = model.run_episodes(images, uniform)
    log_probs = model.classifier(sampled.last_states).log_softmax(-1)
    expected = 0.0
    for row in range(4):
        count = int(sampled.num_glimpses[row])
        reward = float(log_probs[row].argmax() == labels[row]) - 0.25 * count
        errors = [(reward - sampled.baselines[row, step].item()) ** 2 for step in range(count)]
        expected += sum(errors)
    losses = model.policy_losses(sampled, log_probs, labels)
    assert losses["baseline"].item() == pytest.approx(expected)


def test_glimpses_after_the_stop_have_no_influence():
    model = tiny_model(stopping={"initial_probability": 0.3}, num_glimpses=4)
    with torch.no_grad():
        for parameter in model.stopping.parameters():
            parameter.zero_()  # stop with probability 0.3
    images = torch.rand(60, 2, 2).double()
    uniform = torch.rand(60, 4, 3).double()
    sampled = model.run_episodes(images, uniform)
    counts = sampled.num_glimpses
    assert set(counts.tolist()) >= {1, 4}
    changed = uniform.clone()
    for row, count in enumerate(counts.tolist()):
        changed[row, count + 1 :] = torch.rand(4 - count - 1 if count < 4 else 0, 3).double()
        if count < 4:
            changed[row, count, :2] = torch.rand(2).double()
    again = model.run_episodes(images, changed)
    torch.testing.assert_close(again.last_states, sampled.last_states)
    torch.testing.assert_close(again.log_probs, sampled.log_probs)


@pytest.mark.parametrize("first", ["policy", "center", "uniform"])
def test_first_location_is_the_one_that_is_set(first):
    model = tiny_model(location={"type": "gaussian", "std": 0.3}, first_location=first)
    uniform = torch.rand(5, 2, 3).double()
    locations = model.run_episodes(torch.rand(5, 2, 2).double(), uniform).locations[:, 0]
    action = model.policy(torch.zeros(5, 6).double(), uniform[:, 0, :2])
    expected = {
        "policy": action.locations,
        "center": torch.zeros(5, 2).double(),
        "uniform": 2 * uniform[:, 0, :2] - 1,
    }
    torch.testing.assert_close(locations, expected[first])


def test_prediction_is_the_mean_of_the_episodes():
    model = tiny_model(num_test_episodes=7, location={"type": "gaussian", "std": 0.5})
    images = torch.rand(3, 2, 2).double()
    numbers = torch.rand(7, 1, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    probabilities = [
        model.classifier(model.run_episodes(images, each.expand(3, 2, 3)).last_states).softmax(-1)
        for each in numbers
    ]
    mean = torch.stack(probabilities).mean(dim=0)
    torch.testing.assert_close(model.predict(images).log_probs.exp(), mean)


def test_several_training_episodes_have_the_mean_loss():
    batch = LabeledImageBatch(
        torch.randint(256, (3, 2, 2), dtype=torch.uint8), torch.tensor([0, 1, 1])
    )
    losses = []
    for count in (1, 4):
        model = tiny_model(num_training_episodes=count, location={"type": "gaussian", "std": 1e-9})
        model = model.float()
        terms = GlimpseObjective()(model, batch, 1, model)
        losses.append(
            [terms.main_loss.item(), *(v.item() for v in terms.auxiliary_losses.values())]
        )
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


CONFIGS = {
    "rnn": RecurrentAttentionConfig(image_size=12, num_scales=2, glimpse_size=4, **SIZES),
    "lstm, grid, stopping": RecurrentAttentionConfig(
        image_size=12, glimpse_size=4, core="lstm", location=GRID, stopping={}, **SIZES
    ),
    "episodes": RecurrentAttentionConfig(image_size=12, num_training_episodes=3, **SIZES),
    "draw": DrawWindowConfig(image_size=12, window_size=4, hidden_size=6),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_training_step_never_reads_a_value_on_the_host(name):
    """Fake tensors have no values: `item` or a shape that depends on values would raise."""
    with FakeTensorMode():
        model = CONFIGS[name].build()
        batch = LabeledImageBatch(
            torch.zeros(5, 8, 8, dtype=torch.uint8),
            torch.zeros(5, dtype=torch.long),
            torch.zeros(5, 2, dtype=torch.long),
            torch.zeros(5, 3, 4, 4, dtype=torch.uint8),
            torch.zeros(5, 3, 2, dtype=torch.long),
        )
        terms = GlimpseObjective()(model, batch, 1, model)
        sum(terms.auxiliary_losses.values(), terms.main_loss).backward()


@pytest.mark.parametrize("name", CONFIGS)
def test_predictions_do_not_depend_on_the_batch(name):
    torch.manual_seed(1)
    model = CONFIGS[name].build().double()
    images = torch.rand(5, 12, 12).double()
    with torch.no_grad():
        together = model.predict(images)
        for row, order in itertools.product(range(5), ([0], [0, 1])):
            alone = model.predict(images[[row, *order]])
            for one, other in zip(alone, together, strict=True):
                torch.testing.assert_close(one[0], other[row])

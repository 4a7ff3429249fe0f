"""Output distributions equal their formulas, and samples have their moments."""

import math

import pytest
import torch

from heedful.tasks.forecasting.distributions import (
    GaussianHead,
    NegativeBinomialHead,
    SeriesScale,
    StudentTHead,
)

OUTPUTS = (0.3, -0.7, 0.9)


def parameters_of(head_class, location, scale):
    head = head_class(2).double()
    outputs = tuple(torch.tensor([[o]]).double() for o in OUTPUTS[: head_class.num_parameters])
    scale = SeriesScale(torch.tensor([location]).double(), torch.tensor([scale]).double())
    return head, head.transform(outputs, *(part.unsqueeze(-1) for part in scale))


def softplus(x):
    return math.log1p(math.exp(x))


def test_gaussian_parameters_and_density_follow_the_formula():
    head, parameters = parameters_of(GaussianHead, 2.0, 5.0)
    mean, deviation = 2 + 5 * 0.3, 5 * (softplus(-0.7) + 1e-5)
    assert [float(p) for p in parameters] == pytest.approx([mean, deviation])
    expected = -((4 - mean) ** 2) / (2 * deviation**2) - math.log(
        deviation * math.sqrt(2 * math.pi)
    )
    assert float(head.log_prob(torch.tensor([[4.0]]).double(), parameters)) == pytest.approx(
        expected
    )


def test_student_t_density_follows_the_formula_and_integrates_to_one():
    head, parameters = parameters_of(StudentTHead, 2.0, 5.0)
    center, deviation, freedom = (float(p) for p in parameters)
    assert freedom == pytest.approx(2 + softplus(0.9))
    grid = torch.linspace(-4000, 4000, 400_001, dtype=torch.float64)
    density = head.log_prob(grid, tuple(p.flatten() for p in parameters)).exp()
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1, abs=1e-4)
    constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2)
    constant /= math.sqrt(freedom * math.pi) * deviation
    expected = constant * (1 + ((7 - center) / deviation) ** 2 / freedom) ** (-(freedom + 1) / 2)
    actual = head.log_prob(torch.tensor([[7.0]]).double(), parameters).exp()
    assert float(actual) == pytest.approx(expected)


def test_negative_binomial_has_the_scaled_mean_and_variance_of_the_paper():
    head, parameters = parameters_of(NegativeBinomialHead, 0.0, 9.0)
    mean, alpha = 9 * softplus(0.3), softplus(-0.7) / math.sqrt(9)  # nu and 1 / sqrt(nu)
    counts = torch.arange(2000, dtype=torch.float64)
    probabilities = head.log_prob(counts, tuple(p.flatten() for p in parameters)).exp()
    first = float((counts * probabilities).sum())
    second = float((counts**2 * probabilities).sum())
    assert float(probabilities.sum()) == pytest.approx(1)
    assert first == pytest.approx(mean, rel=1e-4)
    assert second - first**2 == pytest.approx(mean + alpha * mean**2, rel=1e-3)


def test_negative_binomial_approaches_poisson_without_dispersion():
    head = NegativeBinomialHead(2)
    parameters = torch.tensor([4.0]), torch.tensor([1e-6])
    actual = float(head.log_prob(torch.tensor([3.0]), parameters))
    assert actual == pytest.approx(3 * math.log(4) - 4 - math.log(6), abs=1e-4)


@pytest.mark.parametrize("head_class", [GaussianHead, StudentTHead, NegativeBinomialHead])
def test_samples_have_the_distribution_of_log_prob(head_class):
    head, parameters = parameters_of(head_class, 2.0, 30.0)
    many = tuple(p.flatten().float().expand(20_000) for p in parameters)
    samples = head.sample(many, torch.Generator().manual_seed(0)).double()
    one = tuple(p.flatten() for p in parameters)
    if head.is_count:
        grid = torch.arange(3000, dtype=torch.float64)
    else:
        grid = torch.linspace(-20_000, 20_000, 800_001, dtype=torch.float64)
    mass = head.log_prob(grid, one).exp() * (grid[1] - grid[0])
    for point in torch.quantile(samples, torch.tensor([0.1, 0.5, 0.9]).double()):
        expected, actual = mass[grid <= point].sum(), (samples <= point).double().mean()
        assert float(actual) == pytest.approx(float(expected), abs=0.015)

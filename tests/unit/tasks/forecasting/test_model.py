"""The forecaster: causality, scale, missing values; steps and batches change nothing."""

import math

import numpy as np
import pytest
import torch

from heedful.data.series.batching import series_key
from heedful.errors import ConfigError
from heedful.pytree import map_tensors
from heedful.tasks.forecasting.distributions import (
    GaussianHead,
    NegativeBinomialHead,
    SeriesScale,
    StudentTHead,
)
from heedful.tasks.forecasting.predictor import Forecaster
from tests.forecasting import BACKBONES, HEADS, collate, count_series, small_config, small_model

each_backbone = pytest.mark.parametrize("backbone", BACKBONES)
each_head = pytest.mark.parametrize("head", HEADS)


@each_backbone
def test_distributions_do_not_depend_on_later_values(backbone):
    config = small_config(backbone, scaling="none")
    model, batch = small_model(config), collate(config, count_series())
    changed = batch.values.clone()
    changed[:, -2] += 9  # z of the second-last step
    before, _ = model.predict_distributions(batch)
    after, _ = model.predict_distributions(batch._replace(values=changed))
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one[:, :-1], other[:, :-1])
        assert (one[:, -1] != other[:, -1]).all()


def test_scale_is_one_plus_the_mean_absolute_value_of_the_context():
    config = small_config()
    series = count_series(1)
    series[0].values[3] *= -1
    context = series[0].values[-9:-3]
    expected = 1 + np.abs(context[~np.isnan(context)]).mean()
    scale = small_model(config).compute_scale(collate(config, series))
    assert float(scale.scale) == pytest.approx(expected)
    assert float(scale.location) == 0


@pytest.mark.parametrize("head", ["gaussian", "student-t"])
def test_standard_scaling_makes_forecasts_equivariant(head):
    config = small_config(head=head, scaling="standard", covariates={"age": False})
    model, series = small_model(config), count_series(1)
    moved = [series[0]._replace(values=100 + 7 * series[0].values)]
    one, _ = model.predict_distributions(collate(config, series))
    other, _ = model.predict_distributions(collate(config, moved))
    torch.testing.assert_close(100 + 7 * one[0], other[0], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(7 * one[1], other[1], rtol=1e-4, atol=1e-3)


@each_backbone
@each_head
def test_log_probs_are_those_of_the_head_and_zero_for_missing_values(backbone, head):
    config = small_config(backbone, head=head)
    model, batch = small_model(config), collate(config, count_series())
    parameters, _ = model.predict_distributions(batch)
    log_probs = model(batch).log_probs
    is_observed = batch.is_observed[:, batch.num_lagged :]
    assert (log_probs[~is_observed] == 0).all()
    assert (~is_observed).any()
    targets = batch.values[:, batch.num_lagged :]
    expected = model.head.log_prob(targets, parameters)[is_observed]
    torch.testing.assert_close(log_probs[is_observed], expected)


@each_backbone
def test_values_written_for_missing_ones_have_no_influence(backbone):
    config = small_config(backbone)
    model, batch = small_model(config), collate(config, count_series())
    other = batch._replace(values=batch.values.masked_fill(~batch.is_observed, 77.0))
    torch.testing.assert_close(model(batch).log_probs, model(other).log_probs)


@each_backbone
def test_sampling_step_by_step_uses_the_distributions_of_the_whole_window(backbone, monkeypatch):
    config = small_config(backbone)
    model, batch = small_model(config), collate(config, count_series())
    means: list[torch.Tensor] = []

    def take_mean(parameters, generator):
        means.append(parameters[0])
        return parameters[0]

    monkeypatch.setattr(model.head, "sample", take_mean)
    paths = model.sample_paths(batch, 1, [None] * 3)[:, 0]
    filled = batch.values.clone()
    filled[:, -3:] = paths
    is_observed = batch.is_observed.clone()
    is_observed[:, -3:] = True
    whole, _ = model.predict_distributions(batch._replace(values=filled, is_observed=is_observed))
    torch.testing.assert_close(paths.float(), whole[0][:, -3:].float())


@each_backbone
@each_head
def test_forecast_of_a_series_does_not_depend_on_the_batch(backbone, head):
    config = small_config(backbone, head=head)
    forecaster = Forecaster(small_model(config).float(), config)
    series = count_series(4)
    together = forecaster.forecast(series, num_samples=5)
    alone = [forecaster.forecast(single, num_samples=5) for single in reversed(series)][::-1]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.samples, other.samples, rtol=1e-4, atol=1e-4)


def test_sampling_reads_no_value_of_the_prediction_range():
    config = small_config()
    model, batch = small_model(config), collate(config, count_series())

    def generators():
        return [torch.Generator().manual_seed(row) for row in range(3)]

    hidden = map_tensors(torch.clone, batch)
    hidden.values[:, -3:] = 1e6
    hidden.is_observed[:, -3:] = False
    first = model.sample_paths(batch, 4, generators())
    torch.testing.assert_close(first, model.sample_paths(hidden, 4, generators()))


def test_transformer_needs_an_input_layer_of_the_size():
    config = small_config("transformer", input_size=None, positional_encoding=None)
    with pytest.raises(Exception, match=r"model.input_size: must be 8, the size of the Transf"):
        config.build()


def embedded_model(series):
    config = small_config("lstm, series embedding")
    model = small_model(config)
    model.series_embedding.set_series([series_key(single) for single in series])
    return config, model


def test_series_embedding_tells_series_of_equal_values_apart():
    series = count_series(3)
    same = [series[0]._replace(id=single.id) for single in series]
    config, model = embedded_model(same)
    vectors = model.series_embedding(collate(config, same).series_keys)
    assert len({tuple(vector.tolist()) for vector in vectors}) == 3
    log_probs = model(collate(config, same)).log_probs
    assert not torch.equal(log_probs[0], log_probs[1])


def test_series_that_was_not_trained_on_has_the_zero_vector():
    series = count_series(3)
    config, model = embedded_model(series[:2])
    vectors = model.series_embedding(collate(config, series).series_keys)
    assert (vectors[:2] != 0).all()
    assert (vectors[2] == 0).all()


def test_vector_of_a_series_does_not_depend_on_the_order_of_the_file():
    series = count_series(3)
    config, model = embedded_model(series)
    vectors = model.series_embedding(collate(config, series).series_keys)
    reversed_vectors = model.series_embedding(collate(config, series[::-1]).series_keys)
    torch.testing.assert_close(reversed_vectors, vectors.flip(0))


def test_more_series_than_vectors_reported():
    message = "max_series: is 5, but there are 6 training series\n  set it to 6 or more"
    with pytest.raises(ConfigError, match=message):
        embedded_model(count_series(6))


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

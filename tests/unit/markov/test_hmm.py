"""Hidden Markov models: posteriors by Bayes' theorem, EM, sampling and messages."""

import itertools

import numpy as np
import pytest
import torch

from heedful.errors import ArgumentError
from heedful.markov import CategoricalEmission, GaussianEmission, HiddenMarkovModel, baum_welch
from tests.shape_checking import unchecked

NUM_STATES, NUM_SYMBOLS, LENGTH = 3, 4, 4
LENGTHS = torch.tensor([4, 1, 3])


def random_hmm(seed, num_states=NUM_STATES, num_symbols=NUM_SYMBOLS):
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    emission = CategoricalEmission(rand(num_states, num_symbols) ** 2)
    return HiddenMarkovModel(rand(num_states), rand(num_states, num_states) ** 2, emission)


def random_gaussian_hmm(seed, num_features=2):
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    means, variances = 3 * rand(NUM_STATES, num_features), rand(NUM_STATES, num_features) + 0.1
    emission = GaussianEmission(means, variances)
    return HiddenMarkovModel(rand(NUM_STATES), rand(NUM_STATES, NUM_STATES), emission)


MODELS = {"categorical": random_hmm, "gaussian": random_gaussian_hmm}
each_emission = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)


def tables(hmm):
    """Return the probabilities of a categorical model as arrays."""
    logits = (hmm.initial_logits, hmm.transition_logits, hmm.emission.logits)
    return [table.detach().softmax(dim=-1).numpy() for table in logits]


def density(hmm, state, observation):
    """p(o | q) by the formula."""
    if isinstance(hmm.emission, CategoricalEmission):
        return tables(hmm)[2][state, observation]
    mean = hmm.emission.means[state].detach().numpy()
    variance = hmm.emission.log_variances[state].detach().exp().numpy()
    exponent = -((observation.numpy() - mean) ** 2) / (2 * variance)
    return np.prod(np.exp(exponent) / np.sqrt(2 * np.pi * variance))


def joint(hmm, observations):
    """Return p(o, q) of all paths, by multiplication."""
    initial = hmm.initial_logits.detach().softmax(dim=-1).numpy()
    transitions = hmm.transition_logits.detach().softmax(dim=-1).numpy()
    probs = {}
    for path in itertools.product(range(NUM_STATES), repeat=len(observations)):
        prob = initial[path[0]]
        prob *= np.prod([transitions[i, j] for i, j in itertools.pairwise(path)])
        probs[path] = prob * np.prod(
            [density(hmm, q, o) for q, o in zip(path, observations, strict=True)]
        )
    return probs


def state_posterior(probs, t):
    """Return p(q_t | o) by Bayes' theorem."""
    posterior = np.zeros(NUM_STATES)
    for path, prob in probs.items():
        posterior[path[t]] += prob
    return posterior / posterior.sum()


@each_emission
def test_likelihood_and_posteriors_follow_bayes_theorem(build):
    hmm = build(0)
    observations = hmm.sample(3, LENGTH, torch.Generator().manual_seed(1)).observations
    log_likelihoods = hmm.log_likelihood(observations, LENGTHS)
    filtered = hmm.filtered_posteriors(observations, LENGTHS).detach()
    smoothed = hmm.smoothed_posteriors(observations, LENGTHS).detach()
    best = hmm.viterbi(observations, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        probs = joint(hmm, observations[row, :length])
        assert log_likelihoods[row].item() == pytest.approx(np.log(sum(probs.values())))
        path = max(probs, key=probs.get)
        assert tuple(best.states[row, :length].tolist()) == path
        assert best.scores[row].item() == pytest.approx(np.log(probs[path]))
        for t in range(length):
            prefix = joint(hmm, observations[row, : t + 1])
            np.testing.assert_allclose(filtered[row, t], state_posterior(prefix, t))
            np.testing.assert_allclose(smoothed[row, t], state_posterior(probs, t))
        assert (filtered[row, length:] == 0).all()
        assert (smoothed[row, length:] == 0).all()


@each_emission
def test_padding_may_contain_any_values(build):
    hmm = build(4)
    observations = hmm.sample(3, LENGTH, torch.Generator().manual_seed(2)).observations
    is_padding = torch.arange(LENGTH) >= LENGTHS.unsqueeze(1)
    garbage = observations.clone()
    garbage[is_padding] = torch.nan if observations.is_floating_point() else -7
    for method in ("log_likelihood", "filtered_posteriors", "smoothed_posteriors"):
        one, other = (getattr(hmm, method)(rows, LENGTHS) for rows in (observations, garbage))
        assert torch.equal(one, other)
    models = [build(4), build(4)]
    for model, rows in zip(models, (observations, garbage), strict=True):
        baum_welch(model, rows, LENGTHS, max_iterations=2)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


# --- gradients and EM ----------------------------------------------------------------------


def expected_counts(hmm, observations):
    """Return the expected counts of initial states, transitions and emissions, by enumeration."""
    initial, transitions = np.zeros(NUM_STATES), np.zeros((NUM_STATES, NUM_STATES))
    emissions = np.zeros((NUM_STATES, NUM_SYMBOLS))
    for row, length in enumerate(LENGTHS.tolist()):
        symbols = observations[row, :length].tolist()
        probs = joint(hmm, symbols)
        total = sum(probs.values())
        for path, prob in probs.items():
            initial[path[0]] += prob / total
            for i, j in itertools.pairwise(path):
                transitions[i, j] += prob / total
            for state, symbol in zip(path, symbols, strict=True):
                emissions[state, symbol] += prob / total
    return initial, transitions, emissions


def test_em_step_sets_parameters_to_normalized_counts():
    hmm = random_hmm(6)
    observations = hmm.sample(3, LENGTH, torch.Generator().manual_seed(4)).observations
    counts = expected_counts(hmm, observations)
    before = hmm.log_likelihood(observations, LENGTHS).sum().item()
    trace = baum_welch(hmm, observations, LENGTHS, max_iterations=1)
    assert trace[0] == pytest.approx(before)
    assert trace[1:] == [pytest.approx(hmm.log_likelihood(observations, LENGTHS).sum().item())]
    for table, count in zip(tables(hmm), counts, strict=True):
        np.testing.assert_allclose(table, count / count.sum(axis=-1, keepdims=True), atol=1e-12)


def test_gaussian_em_step_is_the_weighted_mean_and_variance():
    hmm = random_gaussian_hmm(1)
    observations = hmm.sample(3, LENGTH, torch.Generator().manual_seed(4)).observations
    weights = hmm.smoothed_posteriors(observations, LENGTHS).detach().numpy()
    vectors = observations.numpy()
    baum_welch(hmm, observations, LENGTHS, max_iterations=1)
    for state in range(NUM_STATES):
        for feature in range(2):
            share = weights[..., state] / weights[..., state].sum()
            mean = (share * vectors[..., feature]).sum()
            variance = (share * (vectors[..., feature] - mean) ** 2).sum()
            assert hmm.emission.means[state, feature].item() == pytest.approx(mean)
            assert hmm.emission.log_variances[state, feature].exp().item() == pytest.approx(
                max(variance, hmm.emission.min_variance)
            )


@each_emission
@pytest.mark.parametrize("seed", range(5))
def test_em_never_lowers_the_likelihood(build, seed):
    data, start = build(100), build(seed)
    observations = data.sample(20, 10, torch.Generator().manual_seed(seed)).observations
    lengths = torch.arange(20) % 10 + 1
    trace = baum_welch(start, observations, lengths, max_iterations=30, tolerance=-1.0)
    assert len(trace) == 31
    assert np.diff(trace).min() > -1e-8
    assert trace[-1] > trace[0] + 1


def test_em_stops_when_improvement_is_below_tolerance():
    observations = random_hmm(7).sample(10, 8, torch.Generator().manual_seed(0)).observations
    trace = baum_welch(random_hmm(8), observations, tolerance=1e-3)
    gains = np.diff(trace) / observations.numel()
    assert gains[-1] < 1e-3 <= gains[:-1].min()


def test_em_keeps_zeros_and_states_without_counts():
    transitions = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    emission = CategoricalEmission(torch.tensor([[0.5, 0.5], [0.1, 0.9], [0.3, 0.7]]))
    hmm = HiddenMarkovModel(torch.tensor([1.0, 0.0, 0.0]), transitions, emission).double()
    observations = hmm.sample(20, 6, torch.Generator().manual_seed(0)).observations
    baum_welch(hmm, observations, max_iterations=3)
    initial, fitted, emissions = tables(hmm)
    assert initial.tolist() == [1, 0, 0]
    assert (fitted[transitions.numpy() == 0] == 0).all()
    np.testing.assert_allclose(fitted[2], [0.2, 0.3, 0.5], rtol=1e-6)
    np.testing.assert_allclose(emissions[2], [0.3, 0.7], rtol=1e-6)


# --- sampling ------------------------------------------------------------------------------


def test_samples_have_the_probabilities_of_the_model():
    hmm, num_rows = random_hmm(9), 20_000
    states, symbols = hmm.sample(num_rows, 3, torch.Generator().manual_seed(0))
    initial, transitions, emissions = tables(hmm)
    shares = np.bincount(states[:, 0], minlength=NUM_STATES) / num_rows
    np.testing.assert_allclose(shares, initial, atol=0.015)
    for t in (1, 2):
        pairs = NUM_STATES * states[:, t - 1] + states[:, t]
        counts = np.bincount(pairs, minlength=NUM_STATES**2).reshape(NUM_STATES, NUM_STATES)
        np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), transitions, atol=0.03)
    pairs = (NUM_SYMBOLS * states + symbols).flatten()
    counts = np.bincount(pairs, minlength=NUM_STATES * NUM_SYMBOLS).reshape(NUM_STATES, -1)
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), emissions, atol=0.02)


def test_gaussian_samples_have_mean_and_variance_of_state():
    hmm = random_gaussian_hmm(2)
    states, vectors = hmm.sample(5000, 4, torch.Generator().manual_seed(0))
    for state in range(NUM_STATES):
        own = vectors[states == state]
        mean, variance = hmm.emission.means[state], hmm.emission.log_variances[state].exp()
        torch.testing.assert_close(own.mean(dim=0), mean.detach(), atol=0.06, rtol=0)
        torch.testing.assert_close(own.var(dim=0), variance.detach(), atol=0.06, rtol=0.05)


# --- messages ------------------------------------------------------------------------------


def fair(num_states=2, num_symbols=3):
    emission = CategoricalEmission(torch.ones(num_states, num_symbols))
    return HiddenMarkovModel(torch.ones(num_states), torch.ones(num_states, num_states), emission)


def gaussian():
    return HiddenMarkovModel(
        torch.ones(1), torch.ones(1, 1), GaussianEmission(torch.zeros(1, 2), torch.ones(1, 2))
    )


def left_to_right():
    emission = CategoricalEmission(torch.eye(2))
    transitions = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    return HiddenMarkovModel(torch.tensor([1.0, 0.0]), transitions, emission)


POSSIBLE = "the probabilities must be 0 or more, and not all 0 in a row\n  check the numbers"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fair().log_likelihood(torch.tensor([[0, 3]])),
            "observations: 3 is not one of 3 symbols\n"
            "  number them from 0 to 2; padding belongs behind `lengths`",
        ),
        (
            lambda: fair().log_likelihood(torch.zeros(1, 2)),
            "observations: have shape (1, 2) and dtype torch.float32, but categorical emissions "
            "need integers of shape (B, T)\n  give one symbol for each position",
        ),
        (
            lambda: gaussian().log_likelihood(torch.zeros(1, 2, 1)),
            "observations: have shape (1, 2, 1), but Gaussian emissions with 2 numbers need "
            "(1, 2, 2)\n  give one vector for each position; numbers need a last dimension of 1",
        ),
        (
            lambda: gaussian().log_likelihood(torch.full((1, 2, 2), torch.nan)),
            "observations: some are NaN or infinite\n  leave such positions out, or fill them in",
        ),
        (
            lambda: fair().log_likelihood(torch.zeros(2, 2).long(), torch.tensor([2, 0])),
            "lengths: must be from 1 to 2, but are [2, 0]\n  leave empty sequences out",
        ),
        (
            lambda: left_to_right().smoothed_posteriors(torch.tensor([[0, 1], [1, 0]])),
            "observations: row 1 has probability 0\n"
            "  leave it out, or give the model no probability of 0 that excludes it",
        ),
        (
            lambda: left_to_right().filtered_posteriors(torch.tensor([[1, 1]])),
            "observations: row 0 has probability 0\n"
            "  leave it out, or give the model no probability of 0 that excludes it",
        ),
        (
            lambda: baum_welch(left_to_right(), torch.tensor([[1, 1]])),
            "observations: row 0 has probability 0\n"
            "  leave it out, or give the model no probability of 0 that excludes it",
        ),
        (
            lambda: HiddenMarkovModel(torch.ones(3), torch.ones(2, 2), fair().emission),
            "hmm: (3,) initial and (2, 2) transition probabilities, but emissions of 2 states\n"
            "  give (2,) and (2, 2)",
        ),
        (
            lambda: HiddenMarkovModel(torch.zeros(2), torch.ones(2, 2), fair().emission),
            f"initial_probs: {POSSIBLE}",
        ),
        (lambda: CategoricalEmission(torch.tensor([[1.0, -1.0]])), f"emission: {POSSIBLE}"),
        (
            lambda: GaussianEmission(torch.zeros(2, 1), torch.zeros(2, 1)),
            "emission: shapes (2, 1) and (2, 1), smallest variance 0\n"
            "  give a mean and a variance of at least 0.0001 for each state and number",
        ),
    ],
)
def test_unusable_arguments_raise(call, message):
    with unchecked(), pytest.raises(ArgumentError) as error:
        call()
    assert str(error.value) == message


def test_impossible_sequence_has_log_likelihood_of_minus_infinity():
    assert left_to_right().log_likelihood(torch.tensor([[1, 0]])).item() == -torch.inf

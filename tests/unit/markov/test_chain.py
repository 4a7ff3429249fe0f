"""Inference in linear chains equals enumeration of all paths."""

import itertools
import math

import numpy as np
import pytest
import torch

from heedful.markov import LinearChain

NUM_STATES = 3
MAX_LENGTH = 4


def random_chain(seed, *, num_rows=3, share_excluded=0.0):
    """Scores that are no probabilities; some transitions and initial states are excluded."""
    generator = torch.Generator().manual_seed(seed)

    def scores(*shape):
        normal = torch.randn(*shape, generator=generator, dtype=torch.float64)
        is_excluded = torch.rand(*shape, generator=generator) < share_excluded
        return normal.masked_fill(is_excluded, -torch.inf)

    initial, transitions = scores(NUM_STATES), scores(num_rows, NUM_STATES, NUM_STATES)
    emissions = torch.randn(num_rows, MAX_LENGTH, NUM_STATES, generator=generator).double()
    lengths = torch.randint(1, MAX_LENGTH + 1, (num_rows,), generator=generator)
    lengths[0] = MAX_LENGTH
    initial[0], transitions[:, 0, 0] = 0.5, -0.3  # one path is always possible
    return LinearChain(initial, transitions, emissions, lengths)


def enumerate_paths(chain, row):
    """Return all paths of a row with their scores, by the definition."""
    initial, transitions = chain.initial.tolist(), chain.transitions[row].tolist()
    emissions = chain.emissions[row].tolist()
    paths = list(itertools.product(range(NUM_STATES), repeat=int(chain.lengths[row])))
    scores = [
        initial[path[0]]
        + sum(emissions[t][state] for t, state in enumerate(path))
        + sum(transitions[i][j] for i, j in itertools.pairwise(path))
        for path in paths
    ]
    return paths, np.array(scores)


def log_sum(scores):
    return np.logaddexp.reduce(scores)


each_seed = pytest.mark.parametrize(
    ("seed", "share_excluded"), [(0, 0.0), (1, 0.0), (2, 0.4), (3, 0.6)]
)


@each_seed
def test_posteriors_equal_enumeration(seed, share_excluded):
    chain = random_chain(seed, share_excluded=share_excluded)
    posteriors = chain.posteriors()
    marginals = np.zeros((3, MAX_LENGTH, NUM_STATES))
    counts = np.zeros((3, NUM_STATES, NUM_STATES))
    for row in range(3):
        paths, scores = enumerate_paths(chain, row)
        assert chain.log_partition()[row].item() == pytest.approx(log_sum(scores))
        assert posteriors.log_partition[row].item() == pytest.approx(log_sum(scores))
        for path, prob in zip(paths, np.exp(scores - log_sum(scores)), strict=True):
            for t, state in enumerate(path):
                marginals[row, t, state] += prob
            for i, j in itertools.pairwise(path):
                counts[row, i, j] += prob
    np.testing.assert_allclose(posteriors.marginals, marginals, atol=1e-12)
    np.testing.assert_allclose(posteriors.transition_counts, counts, atol=1e-12)


@each_seed
def test_viterbi_path_is_the_best_of_all(seed, share_excluded):
    chain = random_chain(seed, share_excluded=share_excluded)
    best = chain.viterbi()
    for row, length in enumerate(chain.lengths.tolist()):
        paths, scores = enumerate_paths(chain, row)
        assert tuple(best.states[row, :length].tolist()) == paths[scores.argmax()]
        assert best.scores[row].item() == pytest.approx(scores.max())
        assert (best.states[row, length:] == 0).all()


@each_seed
def test_gradients_of_log_partition_are_posteriors(seed, share_excluded):
    chain = random_chain(seed, share_excluded=share_excluded)
    leaves = [scores.clone().requires_grad_() for scores in chain[:3]]
    log_partition = LinearChain(*leaves, chain.lengths).log_partition()
    initial, transitions, emissions = torch.autograd.grad(log_partition.sum(), leaves)
    posteriors = chain.posteriors()
    torch.testing.assert_close(emissions, posteriors.marginals)
    torch.testing.assert_close(transitions, posteriors.transition_counts)
    torch.testing.assert_close(initial, posteriors.marginals[:, 0].sum(dim=0))


def test_gradients_equal_finite_differences():
    chain = random_chain(5)
    leaves = [scores.clone().requires_grad_() for scores in chain[:3]]
    assert torch.autograd.gradcheck(
        lambda *scores: LinearChain(*scores, chain.lengths).log_partition(), leaves
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 7.0])
def test_padding_has_no_influence(value):
    chain = random_chain(1)
    assert (chain.lengths < MAX_LENGTH).any()
    emissions = chain.emissions.masked_fill(~chain.mask.unsqueeze(-1), value).requires_grad_()
    padded = chain._replace(emissions=emissions)
    for one, other in zip(chain.posteriors(), padded.posteriors(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(chain.viterbi().states, padded.viterbi().states)
    (gradient,) = torch.autograd.grad(padded.log_partition().sum(), emissions)
    torch.testing.assert_close(gradient, chain.posteriors().marginals)


def test_impossible_row_does_not_change_other_rows():
    chain = random_chain(0)
    transitions = chain.transitions.clone()
    transitions[0] = -torch.inf
    transitions.requires_grad_()
    posteriors = chain._replace(transitions=transitions).posteriors()
    log_partition = posteriors.log_partition
    assert log_partition[0] == -torch.inf
    assert (posteriors.marginals[0] == 0).all()
    assert torch.equal(log_partition[1:], chain.log_partition()[1:])
    (gradient,) = torch.autograd.grad(log_partition[1:].sum(), transitions)
    torch.testing.assert_close(gradient[1:], chain.posteriors().transition_counts[1:])


def test_path_may_end_where_no_transition_leads_on():
    initial, emissions = torch.tensor([0.5, -1.0]), torch.randn(1, 3, 2)
    dead_end = torch.full((1, 2, 2), -torch.inf)
    chain = LinearChain(initial, dead_end, emissions, torch.tensor([1]))
    expected = (initial + emissions[0, 0]).logsumexp(dim=0)
    torch.testing.assert_close(chain.log_partition(), expected.unsqueeze(0))


def test_long_chain_does_not_underflow():
    """Transitions that do not depend on the last state: the sum over paths is a product of sums."""
    torch.manual_seed(0)
    length, probs = 500, torch.tensor([0.2, 0.5, 0.3])
    emissions = torch.randn(1, length, 3) - 40
    transitions = probs.log().expand(1, 3, 3)
    chain = LinearChain(probs.log(), transitions, emissions, torch.tensor([length]))
    columns = (emissions.double().exp() * probs).sum(dim=-1)
    log_partition = columns.log().sum().item()
    assert math.exp(log_partition) == 0
    assert chain.log_partition().item() == pytest.approx(log_partition, rel=1e-6)
    expected = emissions.double().exp() * probs / columns.unsqueeze(-1)
    assert (chain.posteriors().marginals - expected).abs().max() < 1e-4  # float32

"""Monotonic alignment against an enumeration of the process it is the expectation of."""

from itertools import product

import pytest
import torch

from heedful.attention.memory import AttentionState
from heedful.attention.monotonic_alignment import (
    MonotonicAlignment,
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
    MonotonicMarginalAlignmentConfig,
    linear_recurrence,
)

NAN = float("nan")


def expected_alignment(algorithm="recursive", bias=-0.5):
    return MonotonicAlignment(bias=bias, algorithm=algorithm, inference="expected").eval()


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def scan_stops(stops, start=0):
    """Return where the pointer stops for each row, or None after the end."""
    positions = []
    for row in stops:
        if start is not None:
            start = next((position for position in range(start, len(row)) if row[position]), None)
        positions.append(start)
    return positions


def by_enumeration(probabilities):
    """Return the probability of stopping at each position, over all outcomes."""
    queries, positions = probabilities.shape
    weights = torch.zeros_like(probabilities)
    for outcome in product([False, True], repeat=queries * positions):
        stops = torch.tensor(outcome).view(queries, positions)
        probability = torch.where(stops, probabilities, 1 - probabilities).prod()
        for query, position in enumerate(scan_stops(stops.tolist())):
            if position is not None:
                weights[query, position] += probability
    return weights


@pytest.mark.parametrize(
    ("algorithm", "masked"),
    [
        *product(["recursive", "parallel"], [[], [(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1)]]),
        ("recursive", [(0, 1), (1, 0)]),
    ],
    ids=str,
)
def test_weights_are_stop_probabilities_over_all_outcomes(algorithm, masked):
    scores = 2 * torch.randn(3, 3, dtype=torch.double)
    mask = all_visible(scores)
    for pair in masked:
        mask[pair] = False
    probabilities = (scores - 0.5).sigmoid() * mask
    weights = expected_alignment(algorithm)(scores, mask).weights
    torch.testing.assert_close(weights, by_enumeration(probabilities))


def test_linear_recurrence_same_as_loop():
    gains, decays = torch.rand(2, 3, 11, dtype=torch.double).unbind(0)
    total, expected = torch.zeros(3, dtype=torch.double), []
    for position in range(11):
        total = gains[:, position] + decays[:, position] * total
        expected.append(total)
    torch.testing.assert_close(linear_recurrence(gains, decays), torch.stack(expected, -1))


def test_only_recursive_algorithm_is_exact_in_long_sources():
    positions = 200
    scores = torch.zeros(1, positions, dtype=torch.double)  # the stop probability is 1/2
    mask, last = all_visible(scores), torch.zeros(positions, dtype=torch.double)
    last[150] = 1
    state = AttentionState(torch.tensor(1), last, last, torch.zeros(1), torch.ones(()))
    expected = torch.zeros(positions, dtype=torch.double)
    expected[150:] = 0.5 ** torch.arange(1, positions - 149, dtype=torch.double)
    exact = expected_alignment("recursive", bias=0.0)(scores, mask, None, state).weights[0]
    torch.testing.assert_close(exact, expected)
    assert expected_alignment("parallel", bias=0.0)(scores, mask, None, state).weights.sum() < 1e-9


@pytest.mark.parametrize("masked", [[], [0], [1, 2]], ids=str)
def test_hard_pointer_stops_at_first_allowed_position(masked):
    alignment = MonotonicAlignment(bias=-1.0).eval()
    scores = 2 * torch.randn(50, 4, 5)
    mask = all_visible(scores)
    mask[..., masked] = False
    weights = alignment(scores, mask).weights
    for row, output in zip((scores > 1) & mask, weights, strict=True):
        for position, row_weights in zip(scan_stops(row.tolist()), output, strict=True):
            assert row_weights.nonzero().flatten().tolist() == (
                [] if position is None else [position]
            )
            assert row_weights.sum() == (position is not None)


@pytest.mark.parametrize("algorithm", ["recursive", "parallel"])
def test_hard_pointer_is_limit_of_large_scores(algorithm):
    scores = torch.randn(20, 1, 5, dtype=torch.double)
    hard = MonotonicAlignment(bias=0.0).eval()(scores, all_visible(scores)).weights
    torch.testing.assert_close(
        expected_alignment(algorithm, bias=0.0)(1e7 * scores, all_visible(scores))[0], hard
    )


def test_noise_is_only_in_training_and_bias_is_learned():
    alignment = MonotonicAlignment(bias=-2.0, noise=3.0)
    scores = torch.zeros(20000, 1, 1)
    noise = alignment(scores, all_visible(scores)).weights.logit() + 2
    assert noise.mean().abs() < 0.1
    assert (noise.std() - 3).abs() < 0.1
    alignment(scores, all_visible(scores)).weights.sum().backward()
    assert alignment.bias.grad > 0
    alignment.eval()
    alignment.inference = "expected"
    torch.testing.assert_close(alignment(scores, all_visible(scores)).weights.logit(), scores - 2)


@pytest.mark.parametrize("gain", [0.1, 1.0, 10.0, -2.0])
def test_gain_multiplies_scores_before_bias(gain):
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    for inference in ("expected", "hard"):
        gained, plain = (
            MonotonicAlignment(gain=factor, bias=-2.0, inference=inference).double().eval()
            for factor in (gain, 1.0)
        )
        expected = plain(gain * scores, all_visible(scores)).weights
        torch.testing.assert_close(gained(scores, all_visible(scores)).weights, expected)


@pytest.mark.parametrize("gain", [0.1, 10.0, -2.0])
@pytest.mark.parametrize("masked", [NAN, float("inf"), 5.0])
def test_masked_positions_return_gain_no_gradient(gain, masked):
    alignment = MonotonicAlignment(gain=gain, inference="expected").eval()
    visible_scores = torch.tensor([[1.0, 2.0]])
    alignment(visible_scores, all_visible(visible_scores)).weights.square().sum().backward()
    expected, alignment.gain.grad = alignment.gain.grad, None
    scores = torch.tensor([[1.0, masked, 2.0]])
    weights = alignment(scores, torch.tensor([[True, False, True]])).weights
    weights.square().sum().backward()
    assert weights[0, 1] == 0
    assert expected != 0
    torch.testing.assert_close(alignment.gain.grad, expected)


def test_each_row_continues_from_own_state():
    last = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    state = AttentionState(torch.tensor([0, 4]), last, last, torch.zeros(2, 1), torch.ones(2))
    scores = torch.full((2, 1, 3), 9.0)
    weights = MonotonicAlignment().eval()(scores, all_visible(scores), None, state).weights
    assert weights.tolist() == [[[1, 0, 0]], [[0, 0, 1]]]


@pytest.mark.parametrize("algorithm", ["recursive", "parallel"])
def test_gradients_match_finite_differences(algorithm):
    alignment = expected_alignment(algorithm).double()
    mask = torch.tensor([[True, True, False, True], [True, True, True, True]])
    scores = torch.randn(2, 4, dtype=torch.double, requires_grad=True)

    def compute_weights(scores, *_):
        return alignment(scores, mask).weights

    assert torch.autograd.gradcheck(compute_weights, (scores, alignment.gain, alignment.bias))
    assert torch.autograd.gradgradcheck(compute_weights, (scores, alignment.gain, alignment.bias))


def test_config_passes_settings_to_alignment():
    config = MonotonicAlignmentConfig(
        gain=2, bias=-3, noise=0.5, algorithm="parallel", inference="expected"
    )
    built = config.build(query_size=4)
    assert (built.gain.item(), built.bias.item(), built.noise) == (2, -3, 0.5)
    assert (built.algorithm, built.inference) == ("parallel", "expected")
    chunked = MonotonicChunkwiseAlignmentConfig(chunk_size=3, boundaries=config).build(query_size=4)
    assert (chunked.chunk_size, chunked.boundaries.noise) == (3, 0.5)
    assert not MonotonicMarginalAlignmentConfig().build(query_size=4).is_unnormalized

"""Monotonic alignment against an enumeration of the process it is the expectation of."""

from itertools import product

import pytest
import torch

from heedful.attention.attention import SingleHeadAttention
from heedful.attention.dot_product_scores import DotScore
from heedful.attention.memory import AttentionState
from heedful.attention.monotonic_alignment import (
    MonotonicAlignment,
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
    MonotonicMarginalAlignmentConfig,
    linear_recurrence,
)
from heedful.attention.readouts import WeightedSumReadout

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


@pytest.mark.parametrize("algorithm", ["recursive", "parallel"])
@pytest.mark.parametrize("masked", [[], [0], [1]], ids=str)
def test_weights_are_stop_probabilities_over_all_outcomes(algorithm, masked):
    scores = 2 * torch.randn(3, 3, dtype=torch.double)
    mask = all_visible(scores)
    mask[:, masked] = False
    probabilities = (scores - 0.5).sigmoid() * mask
    weights = expected_alignment(algorithm)(scores, mask).weights
    torch.testing.assert_close(weights, by_enumeration(probabilities))
    assert (weights[:, masked] == 0).all()


def test_mask_may_differ_between_queries():
    scores = torch.randn(3, 3, dtype=torch.double)
    mask = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    probabilities = (scores - 0.5).sigmoid() * mask
    torch.testing.assert_close(
        expected_alignment()(scores, mask).weights, by_enumeration(probabilities)
    )


def test_row_sums_decrease_with_each_query():
    scores = torch.randn(5, 4, 6, dtype=torch.double)
    sums = expected_alignment()(scores, all_visible(scores)).weights.sum(-1)
    assert (sums < 1).all()
    assert (sums.diff(dim=-1) <= 1e-12).all()


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


def test_pointer_past_the_end_does_not_return():
    scores = torch.tensor([[-9.0, 9.0], [9.0, -9.0], [9.0, 9.0]])
    weights = MonotonicAlignment().eval()(scores, all_visible(scores)).weights
    assert weights.tolist() == [[0, 1], [0, 0], [0, 0]]


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
    alignment = MonotonicAlignment(gain=gain, bias=-2.0, inference="expected").double().eval()
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    expected = expected_alignment(bias=-2.0).double()(gain * scores, all_visible(scores)).weights
    torch.testing.assert_close(alignment(scores, all_visible(scores)).weights, expected)
    hard = (
        MonotonicAlignment(gain=gain, bias=-2.0)
        .double()
        .eval()(scores, all_visible(scores))
        .weights
    )
    scaled = (
        MonotonicAlignment(bias=-2.0).double().eval()(gain * scores, all_visible(scores)).weights
    )
    torch.testing.assert_close(hard, scaled)


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


@pytest.mark.parametrize("inference", ["hard", "expected"])
def test_batched_queries_match_one_query_at_a_time(inference):
    attention = SingleHeadAttention(
        DotScore(), MonotonicAlignment(bias=0.0, inference=inference), WeightedSumReadout()
    ).eval()
    values, queries = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 5, 4)
    memory = attention.build_memory(values, torch.rand(2, 3, 1, 6) < 0.8)
    whole = attention(queries, memory)
    state, weights = attention.initial_state(memory), []
    for query in queries.split(1, dim=-2):
        output = attention(query, memory, state)
        state = output.state
        weights.append(output.weights)
    torch.testing.assert_close(torch.cat(weights, dim=-2), whole.weights)


def test_each_row_continues_from_its_own_state():
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


@pytest.mark.parametrize(
    "alignment", [MonotonicAlignment().eval(), expected_alignment()], ids=["hard", "expected"]
)
def test_nan_is_propagated_unless_masked(alignment):
    scores = torch.tensor([[9.0, NAN, 9.0]], requires_grad=True)
    assert alignment(scores, all_visible(scores)).weights.isnan().any()
    weights = alignment(scores, torch.tensor([[True, False, True]])).weights
    weights.sum().backward()
    assert weights.isfinite().all()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 1] == 0


@pytest.mark.parametrize("algorithm", ["recursive", "parallel"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_to_double(algorithm, dtype):
    scores = torch.randn(2, 3, 100).to(dtype)
    weights = expected_alignment(algorithm)(scores, all_visible(scores)).weights
    wide = expected_alignment(algorithm)(scores.float(), all_visible(scores)).weights
    assert weights.dtype == dtype
    torch.testing.assert_close(weights, wide.to(dtype))


def test_config_passes_settings_to_alignment():
    config = MonotonicAlignmentConfig(
        gain=2, bias=-3, noise=0.5, algorithm="parallel", inference="expected"
    )
    built = config.build(query_size=4)
    learned = (built.gain.item(), built.bias.item())
    assert (*learned, built.noise, built.algorithm, built.inference) == (
        2,
        -3,
        0.5,
        "parallel",
        "expected",
    )
    chunked = MonotonicChunkwiseAlignmentConfig(chunk_size=3, boundaries=config).build(query_size=4)
    assert (chunked.chunk_size, chunked.boundaries.noise) == (3, 0.5)
    assert not MonotonicMarginalAlignmentConfig().build(query_size=4).is_unnormalized

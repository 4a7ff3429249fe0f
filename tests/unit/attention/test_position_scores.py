"""Each position score against its formula, one pair of positions at a time."""

import math

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.config import AttentionConfig
from heedful.attention.memory import AttentionState
from heedful.attention.relative_scores import (
    AlibiScore,
    AlibiScoreConfig,
    GaussianScore,
    GaussianScoreConfig,
    RelativeBiasScore,
    RelativeBiasScoreConfig,
    alibi_slopes,
    relative_position_buckets,
)
from heedful.attention.scores import DotScore, SumScore
from heedful.config import validate_settings
from heedful.errors import ConfigError

HALVES = [2**-head for head in range(1, 9)]  # the paper's eight slopes


def relative_bias(num_buckets=8, max_distance=16, *, num_heads=None, bidirectional=True):
    return RelativeBiasScore(
        num_buckets, max_distance, num_heads=num_heads, bidirectional=bidirectional
    )


def scores_of(score, length, size, *, leading=(), num_queries=None, dtype=torch.double):
    queries, keys = (torch.randn(*leading, count, 3, dtype=dtype) for count in (length, size))
    state = None
    if num_queries is not None:
        zeros = torch.zeros(*num_queries.shape, 1)
        state = AttentionState(num_queries, zeros, zeros, zeros, torch.ones(num_queries.shape))
    return score(queries, score.prepare_keys(keys), state).detach()


def by_hand(formula, length, size):
    rows = [[formula(query, position) for position in range(size)] for query in range(length)]
    return torch.tensor(rows, dtype=torch.double)


def slopes(num_heads):
    return alibi_slopes(num_heads, torch.double, torch.device("cpu")).tolist()


def bucket_by_logarithm(offset, num_buckets, max_distance, bidirectional):
    """The bucket rule of T5 in floating point, with edges rounded up."""
    size = num_buckets // 2 if bidirectional else num_buckets
    first = size if bidirectional and offset > 0 else 0
    distance = abs(offset) if bidirectional else max(0, -offset)
    num_exact = size // 2
    if distance < num_exact:
        return first + distance
    fraction = math.log(distance / num_exact) / math.log(max_distance / num_exact)
    return first + min(size - 1, num_exact + math.floor(fraction * (size - num_exact) + 1e-9))


def test_alibi_score_is_minus_slope_times_distance():
    expected = by_hand(lambda query_position, position: -abs(position - query_position) / 256, 4, 6)
    torch.testing.assert_close(scores_of(AlibiScore(), 4, 6), expected)


def test_alibi_slopes_are_powers_of_one_half_and_geometric_means():
    assert slopes(8) == HALVES
    sixteen = [2 ** (-head / 2) for head in range(1, 17)]
    assert slopes(16) == pytest.approx(sixteen)
    assert slopes(12) == pytest.approx(HALVES + sixteen[0:8:2])  # as the authors' code


def test_alibi_with_one_head_equals_no_heads():
    assert slopes(1) == [2**-8]
    assert torch.equal(
        scores_of(AlibiScore(1), 4, 6, leading=(1,))[0], scores_of(AlibiScore(), 4, 6)
    )


@pytest.mark.parametrize("num_queries", [None, torch.tensor([[5, 5], [0, 0], [3, 3]])], ids=str)
def test_alibi_heads_have_different_slopes(num_queries):
    scores = scores_of(AlibiScore(2), 4, 6, leading=(3, 2), num_queries=num_queries)
    before = torch.zeros(3, 2) if num_queries is None else num_queries
    query_positions, positions = torch.arange(4.0).view(4, 1), torch.arange(6.0)
    for head, slope in enumerate((2**-4, 2**-8)):
        expected = -slope * (positions - query_positions - before[:, head].view(3, 1, 1)).abs()
        torch.testing.assert_close(scores[:, head], expected.double())


def test_alibi_score_is_defined_for_any_length():
    scores = scores_of(AlibiScore(), 1, 100_001)
    assert scores[0, -1].item() == -100_000 / 256


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (8, 20), (4, 3), (12, 1000), (64, 64)]
)
def test_relative_buckets_match_t5_rule(num_buckets, max_distance, bidirectional):
    score = relative_bias(num_buckets, max_distance, bidirectional=bidirectional).double()
    torch.nn.init.normal_(score.bias)
    max_offset = 2 * max_distance
    scores = scores_of(score, 1, 2 * max_offset + 1, num_queries=torch.tensor(max_offset))[0]
    biases = score.bias[0].tolist()
    settings = (num_buckets, max_distance, bidirectional)
    expected = [
        biases[bucket_by_logarithm(s - max_offset, *settings)] for s in range(2 * max_offset + 1)
    ]
    assert scores.tolist() == expected


def test_distance_on_bucket_edge_starts_next_bucket():
    # Eight exact buckets and eight that grow by 16^(1/8) = 2^(1/2): every other edge is an integer.
    buckets = relative_position_buckets(16, 128)
    assert [buckets[edge] - buckets[edge - 1] for edge in (16, 32, 64)] == [1, 1, 1]
    assert [buckets[edge] for edge in (8, 16, 32, 64)] == [8, 10, 12, 14]


@pytest.mark.parametrize("size", range(2, 20))
def test_buckets_are_monotonic_and_reach_last(size):
    buckets = relative_position_buckets(size, 40)
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (0, size - 1)


@pytest.mark.parametrize("num_queries", [None, torch.tensor([[5, 5], [0, 0], [3, 3]])], ids=str)
def test_relative_bias_differs_by_head(num_queries):
    score = relative_bias(num_heads=2).double()
    scores = scores_of(score, 4, 6, leading=(3, 2), num_queries=num_queries)
    for head in range(2):
        single = relative_bias().double()
        single.bias.data.copy_(score.bias[head : head + 1])
        before = None if num_queries is None else num_queries[:, head]
        expected = scores_of(single, 4, 6, leading=(3,), num_queries=before)
        torch.testing.assert_close(scores[:, head], expected)


def test_relative_buckets_are_not_in_state_dict():
    assert set(relative_bias().state_dict()) == {"bias"}


def test_gaussian_score_same_as_formula():
    score = GaussianScore(2.0, keys_per_query=1.5)
    expected = by_hand(
        lambda query_position, position: -((position - 1.5 * query_position) ** 2) / (2 * 2.0**2),
        4,
        6,
    )
    torch.testing.assert_close(scores_of(score, 4, 6), expected)


@pytest.mark.parametrize("score", [AlibiScore(), GaussianScore(0.01), relative_bias(32, 128)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_far_positions_are_distinct_in_half_precision(score, dtype):
    num_queries = torch.tensor(2048)
    half = scores_of(score.to(dtype), 1, 2060, num_queries=num_queries, dtype=dtype)[0, 2040:]
    expected = scores_of(score.double(), 1, 2060, num_queries=num_queries)[0, 2040:]
    torch.testing.assert_close(
        half.double(), expected.clamp(min=torch.finfo(dtype).min / 4), rtol=0.01, atol=0
    )


@pytest.mark.parametrize("score", [AlibiScore(), GaussianScore(0.01)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_farthest_position_scores_above_masked_one(score, dtype):
    twice = SumScore([score, score])
    keys = torch.zeros(2, 3, dtype=dtype)
    zeros = torch.zeros(1)
    state = AttentionState(torch.tensor(10**9), zeros, zeros, zeros, torch.tensor(1.0))
    scores = twice(torch.zeros(1, 3, dtype=dtype), twice.prepare_keys(keys), state)
    weights = SoftmaxAlignment()(scores, torch.tensor([[True, False]])).weights
    assert scores.isfinite().all()
    assert weights.tolist() == [[1.0, 0.0]]


def test_position_score_adds_to_content_score():
    queries, keys = torch.randn(2, 4, 3), torch.randn(2, 6, 3)
    both = DotScore() + AlibiScore()
    expected = queries @ keys.mT + scores_of(AlibiScore(), 4, 6).float()
    torch.testing.assert_close(both(queries, both.prepare_keys(keys)), expected)


def test_config_passes_settings_to_scores():
    sizes = {"query_size": 3, "key_size": 5}
    assert AlibiScoreConfig().build(**sizes, num_heads=4).num_heads == 4
    gaussian = GaussianScoreConfig(sigma=2, keys_per_query=0.5).build(**sizes, num_heads=None)
    assert (gaussian.sigma, gaussian.keys_per_query) == (2, 0.5)
    config = RelativeBiasScoreConfig(num_buckets=6, max_distance=9, bidirectional=False)
    built = config.build(**sizes, num_heads=2)
    assert built.bias.shape == (2, 6)
    assert built.buckets.tolist() == [*reversed(relative_position_buckets(6, 9)), *[0] * 9]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_buckets": 7}, "num_buckets must be an even number from 4 up, but is 7"),
        ({"num_buckets": 2}, "num_buckets must be an even number from 4 up, but is 2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets must be at least 2, but is 1"),
        ({"max_distance": 8}, "max_distance must exceed 8, but is 8"),
        (
            {"max_distance": 9, "bidirectional": False},
            "max_distance must exceed 16, but is 9",
        ),
    ],
)
def test_invalid_bucket_settings_reported(settings, message):
    score = {"type": "relative-position-bias", **settings}
    with pytest.raises(ConfigError) as error:
        validate_settings(AttentionConfig, {"score": score}, location="recipe.yaml")
    assert error.value.message == message

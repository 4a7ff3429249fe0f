"""Each score of distance against its paper's rule, one pair of places at a time."""

import math

import pytest
import torch

from heedful.attention import AttentionState, DotScore, SoftmaxAlignment, SumScore
from heedful.attention.config import AttentionConfig
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
from heedful.config import validate_settings
from heedful.errors import ConfigError

HALVES = [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]  # the paper's eight, written out


def scores_of(score, count, size, *, leading=(), asked=None, dtype=torch.double):
    queries, keys = (torch.randn(*leading, many, 3, dtype=dtype) for many in (count, size))
    past = None
    if asked is not None:
        nothing = torch.zeros(*asked.shape, 1)
        past = AttentionState(asked, nothing, nothing, nothing, torch.ones(asked.shape))
    return score(queries, score.prepare_keys(keys), past).detach()


def by_hand(formula, count, size):
    rows = [[formula(own, place) for place in range(size)] for own in range(count)]
    return torch.tensor(rows, dtype=torch.double)


def steepness(num_heads):
    return alibi_slopes(num_heads, torch.double, torch.device("cpu")).tolist()


def bucket_by_logarithm(offset, num_buckets, max_distance, forward_bidirectional):
    """Exact near, logarithmic far, shared beyond: in floating point, edges rounded upwards."""
    size = num_buckets // 2 if forward_bidirectional else num_buckets
    first = size if forward_bidirectional and offset > 0 else 0
    distance = abs(offset) if forward_bidirectional else max(0, -offset)
    near = size // 2
    if distance < near:
        return first + distance
    part = math.log(distance / near) / math.log(max_distance / near)
    return first + min(size - 1, near + math.floor(part * (size - near) + 1e-9))


def test_alibi_falls_by_its_slope_with_each_place_on_both_sides():
    wanted = by_hand(lambda own, place: -abs(place - own) / 256, 4, 6)
    torch.testing.assert_close(scores_of(AlibiScore(), 4, 6), wanted)


def test_the_slopes_of_eight_heads_are_the_halves_of_the_paper():
    assert steepness(8) == HALVES


def test_the_slopes_of_sixteen_heads_put_a_geometric_mean_between_those_of_eight():
    steeper = [1.0, *HALVES[:-1]]
    means = [math.sqrt(one * next_one) for one, next_one in zip(steeper, HALVES, strict=True)]
    wanted = sorted(HALVES + means, reverse=True)
    assert steepness(16) == pytest.approx(wanted)


def test_the_slopes_of_twelve_heads_are_those_of_eight_and_every_other_of_sixteen():
    assert steepness(12) == pytest.approx(HALVES + steepness(16)[0:8:2])


def test_one_head_falls_like_none():
    assert steepness(1) == [2**-8]
    assert torch.equal(
        scores_of(AlibiScore(1), 4, 6, leading=(1,))[0], scores_of(AlibiScore(), 4, 6)
    )


@pytest.mark.parametrize("asked", [None, torch.tensor([[5, 5], [0, 0], [3, 3]])], ids=str)
def test_each_head_of_alibi_has_its_slope(asked):
    scores = scores_of(AlibiScore(2), 4, 6, leading=(3, 2), asked=asked)
    before = torch.zeros(3, 2) if asked is None else asked
    own, places = torch.arange(4.0).view(4, 1), torch.arange(6.0)
    for head, slope in enumerate((2**-4, 2**-8)):
        wanted = -slope * (places - own - before[:, head].view(3, 1, 1)).abs()
        torch.testing.assert_close(scores[:, head], wanted.double())


def test_alibi_goes_on_falling_past_any_length():
    scores = scores_of(AlibiScore(), 1, 100_001)
    assert scores[0, -1].item() == -100_000 / 256


@pytest.mark.parametrize("forward_bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (8, 20), (4, 3), (12, 1000), (64, 64)]
)
def test_buckets_are_exact_near_and_logarithmic_far(
    num_buckets, max_distance, forward_bidirectional
):
    score = RelativeBiasScore(
        num_buckets, max_distance, bidirectional=forward_bidirectional
    ).double()
    torch.nn.init.normal_(score.bias)
    reach = 2 * max_distance
    scores = scores_of(score, 1, 2 * reach + 1, asked=torch.tensor(reach))[0]
    numbers = score.bias[0].tolist()
    settings = (num_buckets, max_distance, forward_bidirectional)
    wanted = [numbers[bucket_by_logarithm(s - reach, *settings)] for s in range(2 * reach + 1)]
    assert scores.tolist() == wanted


def test_a_distance_exactly_on_an_edge_opens_the_next_bucket():
    # Eight near buckets and eight that widen by 16^(1/8) = 2^(1/2): every other edge is whole.
    buckets = relative_position_buckets(16, 128)
    assert [buckets[edge] - buckets[edge - 1] for edge in (16, 32, 64)] == [1, 1, 1]
    assert [buckets[edge] for edge in (8, 16, 32, 64)] == [8, 10, 12, 14]


@pytest.mark.parametrize("size", range(2, 20))
def test_buckets_never_go_back_and_reach_the_last(size):
    buckets = relative_position_buckets(size, 40)
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (0, size - 1)


def test_distances_never_seen_share_the_last_bucket():
    score = RelativeBiasScore(8, 16).double()
    scores = scores_of(score, 1, 2000, asked=torch.tensor(1000))[0]
    assert scores[:984].unique().tolist() == [score.bias[0, 3].item()]
    assert scores[1016:].unique().tolist() == [score.bias[0, 7].item()]


def test_keys_ahead_count_as_the_own_place_where_buckets_look_back_only():
    score = RelativeBiasScore(8, 16, bidirectional=False).double()
    scores = scores_of(score, 1, 9, asked=torch.tensor(4))[0]
    assert scores[4:].unique().tolist() == [score.bias[0, 0].item()]


@pytest.mark.parametrize("asked", [None, torch.tensor([[5, 5], [0, 0], [3, 3]])], ids=str)
def test_each_head_of_relative_buckets_has_numbers_of_its_own(asked):
    score = RelativeBiasScore(8, 16, num_heads=2).double()
    scores = scores_of(score, 4, 6, leading=(3, 2), asked=asked)
    for head in range(2):
        alone = RelativeBiasScore(8, 16).double()
        alone.bias.data.copy_(score.bias[head : head + 1])
        before = None if asked is None else asked[:, head]
        wanted = scores_of(alone, 4, 6, leading=(3,), asked=before)
        torch.testing.assert_close(scores[:, head], wanted)


def test_the_buckets_follow_from_the_settings_and_are_not_saved():
    assert set(RelativeBiasScore(8, 16).state_dict()) == {"bias"}


def test_gaussian_is_the_exponent_of_a_bell_round_the_expected_place():
    score = GaussianScore(2.0, keys_per_query=1.5)
    wanted = by_hand(lambda own, place: -((place - 1.5 * own) ** 2) / (2 * 2.0**2), 4, 6)
    torch.testing.assert_close(scores_of(score, 4, 6), wanted)


def test_under_a_softmax_a_gaussian_has_the_odds_of_a_normal_density():
    scores = scores_of(GaussianScore(1.7), 5, 9)
    weights = SoftmaxAlignment()(scores, torch.ones(5, 9, dtype=torch.bool)).weights
    density = torch.distributions.Normal(torch.arange(5.0).double()[:, None], 1.7)
    heights = density.log_prob(torch.arange(9.0).double()).exp()
    torch.testing.assert_close(weights, heights / heights.sum(dim=-1, keepdim=True))


def test_a_gaussian_is_the_same_in_every_head():
    scores = scores_of(GaussianScore(2.0), 4, 6, leading=(3, 2))
    assert torch.equal(scores, scores_of(GaussianScore(2.0), 4, 6).expand(3, 2, 4, 6))


@pytest.mark.parametrize("score", [AlibiScore(), GaussianScore(0.01), RelativeBiasScore()])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_places_that_half_precision_cannot_count_are_still_told_apart(score, dtype):
    asked = torch.tensor(2048)
    near = scores_of(score.to(dtype), 1, 2060, asked=asked, dtype=dtype)[0, 2040:]
    wanted = scores_of(score.double(), 1, 2060, asked=asked)[0, 2040:]
    torch.testing.assert_close(
        near.double(), wanted.clamp(min=torch.finfo(dtype).min / 4), rtol=0.01, atol=0
    )


@pytest.mark.parametrize("score", [AlibiScore(), GaussianScore(0.01)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_farthest_of_places_is_still_preferred_to_a_hidden_one(score, dtype):
    twice = SumScore([score, score])
    keys = torch.zeros(2, 3, dtype=dtype)
    nothing = torch.zeros(1)
    past = AttentionState(torch.tensor(10**9), nothing, nothing, nothing, torch.tensor(1.0))
    scores = twice(torch.zeros(1, 3, dtype=dtype), twice.prepare_keys(keys), past)
    weights = SoftmaxAlignment()(scores, torch.tensor([[True, False]])).weights
    assert scores.isfinite().all()
    assert weights.tolist() == [[1.0, 0.0]]


def test_a_distance_is_added_to_what_the_keys_hold():
    queries, keys = torch.randn(2, 4, 3), torch.randn(2, 6, 3)
    both = DotScore() + AlibiScore()
    wanted = queries @ keys.mT + scores_of(AlibiScore(), 4, 6).float()
    torch.testing.assert_close(both(queries, both.prepare_keys(keys)), wanted)


def test_the_settings_reach_the_scores():
    sizes = {"query_size": 3, "key_size": 5}
    assert AlibiScoreConfig().build(**sizes, num_heads=4).num_heads == 4
    gaussian = GaussianScoreConfig(sigma=2, keys_per_query=0.5).build(**sizes)
    assert (gaussian.sigma, gaussian.keys_per_query) == (2, 0.5)
    config = RelativeBiasScoreConfig(num_buckets=6, max_distance=9, bidirectional=False)
    built = config.build(**sizes, num_heads=2)
    assert built.bias.shape == (2, 6)
    assert built.buckets.tolist() == [*reversed(relative_position_buckets(6, 9)), *[0] * 9]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"num_buckets": 7}, "num_buckets must be an even number from 4 up, not 7"),
        ({"num_buckets": 2}, "num_buckets must be an even number from 4 up, not 2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets must be at least 2, not 1"),
        ({"max_distance": 8}, "max_distance must be above 8, not 8"),
        ({"max_distance": 9, "bidirectional": False}, "max_distance must be above 16, not 9"),
    ],
)
def test_buckets_that_cannot_be_spread_are_refused(settings, problem):
    score = {"type": "relative-position-bias", **settings}
    with pytest.raises(ConfigError) as refused:
        validate_settings(AttentionConfig, {"score": score}, location="recipe.yaml")
    assert refused.value.message == problem

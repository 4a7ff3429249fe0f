"""Scores that know how far apart query and key stand, against their papers' formulas."""

import math

import pytest
import torch

from heedful.attention import AdditiveScore, AttentionState, CosineScore, DotScore, ScaledDotScore
from heedful.attention.additive_scores import CoverageFeature
from heedful.attention.composite_scores import (
    RotaryScore,
    RotaryScoreConfig,
    SumScoreConfig,
    apply_rotary,
)
from heedful.attention.config import AttentionConfig
from heedful.attention.relative_scores import RelativeKeyScore, RelativeKeyScoreConfig
from heedful.config import validate_settings
from heedful.errors import ConfigError


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.double)


def scores_of(score, queries, keys, asked=None):
    past = None
    if asked is not None:
        nothing = torch.zeros(*asked.shape, 1)
        past = AttentionState(asked, nothing, nothing, nothing, torch.ones(asked.shape))
    return score(queries, score.prepare_keys(keys), past).detach()


def turned(vector, place, base):
    """The pairs of a vector as complex numbers, each multiplied by a number on the circle."""
    numbers, size = vector.tolist(), vector.numel()
    pairs = [complex(numbers[2 * i], numbers[2 * i + 1]) for i in range(size // 2)]
    circle = [complex(math.cos(angle), math.sin(angle)) for angle in _angles(place, size, base)]
    return [pair * number for pair, number in zip(pairs, circle, strict=True)]


def _angles(place, size, base):
    return [place * base ** (-2 * i / size) for i in range(size // 2)]


def test_relative_keys_and_a_scaled_dot_make_the_equation_of_the_paper():
    score = (ScaledDotScore() + RelativeKeyScore(4, 2)).double()
    queries, keys = vectors(5, 4), vectors(7, 4)
    table = score.terms[1].projection.weight.detach()
    wanted = torch.empty(5, 7, dtype=torch.double)
    for t in range(5):
        for s in range(7):
            clipped = max(-2, min(2, s - t))
            wanted[t, s] = queries[t] @ (keys[s] + table[clipped + 2]) / math.sqrt(4)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_unscaled_relative_keys_go_with_a_plain_dot():
    plain, scaled = RelativeKeyScore(4, 2, scaled=False).double(), RelativeKeyScore(4, 2).double()
    plain.load_state_dict(scaled.state_dict())
    queries, keys = vectors(5, 4), vectors(7, 4)
    wanted = 2 * scores_of(scaled, queries, keys)
    torch.testing.assert_close(scores_of(plain, queries, keys), wanted)


def test_keys_out_of_reach_share_the_vector_of_the_last_on_their_side():
    score = RelativeKeyScore(4, 2).double()
    scores = scores_of(score, vectors(1, 4), vectors(2000, 4), asked=torch.tensor(1000))[0]
    assert scores[:999].unique().numel() == 1
    assert scores[1002:].unique().numel() == 1
    assert scores[998:1003].unique().numel() == 5


def test_all_heads_share_the_vectors_of_distances():
    score = RelativeKeyScore(4, 2).double()
    queries, keys, asked = (
        vectors(3, 2, 5, 4),
        vectors(3, 2, 7, 4),
        torch.tensor([[4, 4], [0, 0], [1, 1]]),
    )
    together = scores_of(score, queries, keys, asked)
    for row, head in [(row, head) for row in range(3) for head in range(2)]:
        alone = scores_of(score, queries[row, head], keys[row, head], asked[row, head])
        torch.testing.assert_close(together[row, head], alone)


@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_turning_multiplies_pairs_by_complex_numbers(base):
    rows, places = vectors(4, 6), torch.tensor([0, 1, 5, 1000])
    found = apply_rotary(rows, places, base=base).unflatten(-1, (3, 2))
    for row, place, pairs in zip(rows, places.tolist(), found, strict=True):
        wanted = torch.tensor(turned(row, place, base), dtype=torch.cdouble)
        torch.testing.assert_close(torch.view_as_complex(pairs.contiguous()), wanted)


def test_a_rotary_dot_is_the_real_part_of_a_complex_product():
    queries, keys = vectors(3, 6), vectors(5, 6)
    scores = scores_of(RotaryScore(DotScore()), queries, keys)
    for t in range(3):
        for s in range(5):
            pairs = zip(turned(queries[t], t, 1e4), turned(keys[s], s, 1e4), strict=True)
            wanted = sum((query * key.conjugate()).real for query, key in pairs)
            assert scores[t, s].item() == pytest.approx(wanted)


def test_turning_changes_no_length_and_place_zero_changes_nothing():
    rows = vectors(4, 6)
    turned_rows = apply_rotary(rows, torch.tensor([0, 3, 70, 10**6]))
    assert torch.equal(turned_rows[0], rows[0])
    torch.testing.assert_close(turned_rows.norm(dim=-1), rows.norm(dim=-1))


@pytest.mark.parametrize("inner", [DotScore(), ScaledDotScore(), CosineScore(3.0)])
def test_a_rotary_score_of_one_place_is_the_inner_score(inner):
    queries, keys = vectors(2, 1, 6), vectors(2, 1, 6)
    rotary = scores_of(RotaryScore(inner), queries, keys)
    torch.testing.assert_close(rotary, scores_of(inner, queries, keys))


@pytest.mark.parametrize("inner", [DotScore(), ScaledDotScore(), CosineScore(3.0)])
@pytest.mark.parametrize("shift", [1, 500, 10**6])
def test_rotary_products_depend_on_places_by_their_difference_alone_past_any_length(inner, shift):
    query, key = vectors(1, 6), vectors(1, 6)

    def compared(own, place):
        turned_query, turned_key = (
            apply_rotary(vector, torch.tensor([where]))
            for vector, where in ((query, own), (key, place))
        )
        return scores_of(inner, turned_query, turned_key)

    torch.testing.assert_close(compared(shift + 7, shift + 3), compared(7, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_turns_a_far_place_to_the_right_angle(dtype):
    rows, places = torch.randn(2, 8).to(dtype), torch.tensor([2049, 100_003])
    found = apply_rotary(rows, places)
    assert found.dtype == dtype
    wanted = apply_rotary(rows.double(), places)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_a_rotary_score_tells_its_inner_score_where_was_looked_before():
    inner = AdditiveScore(4, 4, hidden_size=3, features=[CoverageFeature(3)]).double()
    rotary, query, keys = RotaryScore(inner), vectors(1, 4), vectors(5, 4)
    assert rotary.uses_history
    assert not RotaryScore(DotScore()).uses_history
    looked = torch.rand(5).double()
    past = AttentionState(torch.tensor(3), looked, looked, vectors(4), torch.tensor(1.0))
    turned_query = apply_rotary(query, torch.tensor([3]))
    turned_keys = inner.prepare_keys(apply_rotary(keys, torch.arange(5)))
    wanted = inner(turned_query, turned_keys, past)
    torch.testing.assert_close(rotary(query, rotary.prepare_keys(keys), past), wanted)
    assert not torch.equal(wanted, inner(turned_query, turned_keys))


def test_heads_with_parameters_of_their_own_are_turned_first():
    config = RotaryScoreConfig.model_validate({"score": {"type": "bilinear"}})
    score = config.build(query_size=4, key_size=4, num_heads=2).double()
    queries, keys = vectors(3, 2, 5, 4), vectors(3, 2, 7, 4)
    together = scores_of(score, queries, keys)
    for head in range(2):
        alone = RotaryScore(score.inner.heads[head])
        torch.testing.assert_close(
            together[:, head], scores_of(alone, queries[:, head], keys[:, head])
        )


@pytest.mark.parametrize(("query_size", "key_size"), [(3, 3), (4, 5), (5, 4)])
def test_a_rotary_score_refuses_odd_widths(query_size, key_size):
    with pytest.raises(ConfigError) as refused:
        RotaryScoreConfig().build(query_size=query_size, key_size=key_size)
    assert str(refused.value) == (
        f"score.type: a rotary score turns pairs of numbers, but queries have {query_size} and "
        f"keys {key_size}\n"
        "  make both sizes even, or choose 'alibi' or 'relative-buckets' in a 'sum'"
    )


def test_the_settings_reach_the_scores():
    built = RelativeKeyScoreConfig(max_relative_position=3, scaled=False).build(
        query_size=4, key_size=5
    )
    assert (built.max_relative_position, built.scale, built.projection.weight.shape) == (
        3,
        1.0,
        (7, 4),
    )
    rotary = RotaryScoreConfig(base=20).build(query_size=4, key_size=4)
    assert rotary.base == 20
    assert isinstance(rotary.inner, ScaledDotScore)


@pytest.mark.parametrize("num_heads", [None, 2])
@pytest.mark.parametrize(
    "kinds",
    [
        ["scaled-dot", "relative-key"],
        ["rotary", "alibi"],
        ["alibi", "gaussian", "relative-position-bias"],
    ],
    ids=str,
)
def test_a_sum_adds_scores_of_every_family(kinds, num_heads):
    config = SumScoreConfig.model_validate({"scores": [{"type": kind} for kind in kinds]})
    score = config.build(query_size=4, key_size=4, num_heads=num_heads).double()
    leading = (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 5, 4), vectors(*leading, 7, 4)
    wanted = sum(scores_of(summand, queries, keys) for summand in score.terms)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_a_mistake_inside_a_rotary_score_in_a_sum_is_found_where_it_stands():
    summand = {"type": "rotary", "score": {"type": "cosine", "scale": -1}}
    settings = {"score": {"type": "sum", "scores": [{"type": "alibi"}, summand]}}
    with pytest.raises(ConfigError) as refused:
        validate_settings(AttentionConfig, settings, location="recipe.yaml")
    assert "score.scores.1.score.scale" in refused.value.location

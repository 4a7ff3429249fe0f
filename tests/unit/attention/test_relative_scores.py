"""Relative key and rotary scores against their formulas."""

import math

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.config import AttentionConfig, RotaryScoreConfig, SumScoreConfig
from heedful.attention.memory import AttentionState
from heedful.attention.relative_scores import (
    RelativeKeyScore,
    RelativeKeyScoreConfig,
    RotaryScore,
    apply_rotary,
)
from heedful.attention.scores import CosineScore, DotScore, ScaledDotScore
from heedful.config import validate_settings
from heedful.errors import ConfigError


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.double)


def scores_of(score, queries, keys, num_queries=None):
    state = None
    if num_queries is not None:
        zeros = torch.zeros(*num_queries.shape, 1)
        state = AttentionState(num_queries, zeros, zeros, zeros, torch.ones(num_queries.shape))
    return score(queries, score.prepare_keys(keys), state).detach()


def rotate(vector, position, base):
    """Return the pairs of a vector as rotated complex numbers."""
    pairs = torch.view_as_complex(vector.unflatten(-1, (-1, 2)))
    angles = position * base ** (-2 * torch.arange(len(pairs)).double() / len(vector))
    return pairs * torch.polar(torch.ones_like(angles), angles)


def test_relative_key_plus_scaled_dot_same_as_shaw_2018():
    score = (ScaledDotScore() + RelativeKeyScore(4, 2)).double()
    queries, keys = vectors(5, 4), vectors(7, 4)
    table = score.terms[1].projection.weight.detach()
    expected = torch.empty(5, 7, dtype=torch.double)
    for t in range(5):
        for s in range(7):
            clipped = max(-2, min(2, s - t))
            expected[t, s] = queries[t] @ (keys[s] + table[clipped + 2]) / math.sqrt(4)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_unscaled_relative_key_is_sqrt_size_times_scaled():
    plain, scaled = RelativeKeyScore(4, 2, scaled=False).double(), RelativeKeyScore(4, 2).double()
    plain.load_state_dict(scaled.state_dict())
    queries, keys = vectors(5, 4), vectors(7, 4)
    expected = 2 * scores_of(scaled, queries, keys)
    torch.testing.assert_close(scores_of(plain, queries, keys), expected)


def test_distant_keys_share_clipped_vector():
    score = RelativeKeyScore(4, 2).double()
    scores = scores_of(score, vectors(1, 4), vectors(2000, 4), num_queries=torch.tensor(1000))[0]
    assert scores[:999].unique().numel() == 1
    assert scores[1002:].unique().numel() == 1
    assert scores[998:1003].unique().numel() == 5


@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_rotary_multiplies_pairs_by_complex_exponentials(base):
    rows, positions = vectors(4, 6), torch.tensor([0, 1, 5, 1000])
    actual = apply_rotary(rows, positions, base=base).unflatten(-1, (3, 2))
    for row, position, pairs in zip(rows, positions.tolist(), actual, strict=True):
        expected = rotate(row, position, base)
        torch.testing.assert_close(torch.view_as_complex(pairs.contiguous()), expected)


def test_rotary_preserves_norm_and_position_zero_is_identity():
    rows = vectors(4, 6)
    rotated = apply_rotary(rows, torch.tensor([0, 3, 70, 10**6]))
    assert torch.equal(rotated[0], rows[0])
    torch.testing.assert_close(rotated.norm(dim=-1), rows.norm(dim=-1))


@pytest.mark.parametrize("inner", [DotScore(), ScaledDotScore(), CosineScore(3.0)])
@pytest.mark.parametrize("shift", [1, 500, 10**6])
def test_rotary_scores_depend_only_on_relative_position(inner, shift):
    query, key = vectors(1, 6), vectors(1, 6)

    def score_at(query_position, position):
        rotated_query, rotated_key = (
            apply_rotary(vector, torch.tensor([own_position]))
            for vector, own_position in ((query, query_position), (key, position))
        )
        return scores_of(inner, rotated_query, rotated_key)

    torch.testing.assert_close(score_at(shift + 7, shift + 3), score_at(7, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rotary_in_half_precision_is_accurate_at_far_positions(dtype):
    rows, positions = torch.randn(2, 8).to(dtype), torch.tensor([2049, 100_003])
    actual = apply_rotary(rows, positions)
    assert actual.dtype == dtype
    expected = apply_rotary(rows.double(), positions)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_rotary_score_passes_state_to_inner_score():
    inner = AdditiveScore(4, 4, hidden_size=3, features=[CoverageFeature(3)]).double()
    rotary, query, keys = RotaryScore(inner), vectors(1, 4), vectors(5, 4)
    assert rotary.uses_history
    assert not RotaryScore(DotScore()).uses_history
    weights = torch.rand(5).double()
    state = AttentionState(torch.tensor(3), weights, weights, vectors(4), torch.tensor(1.0))
    rotated_query = apply_rotary(query, torch.tensor([3]))
    rotated_keys = inner.prepare_keys(apply_rotary(keys, torch.arange(5)))
    expected = inner(rotated_query, rotated_keys, state)
    torch.testing.assert_close(rotary(query, rotary.prepare_keys(keys), state), expected)
    assert not torch.equal(expected, inner(rotated_query, rotated_keys))


def test_rotary_score_wraps_per_head_scores():
    config = RotaryScoreConfig.model_validate({"score": {"type": "bilinear"}})
    score = config.build(query_size=4, key_size=4, num_heads=2).double()
    queries, keys = vectors(3, 2, 5, 4), vectors(3, 2, 7, 4)
    batched = scores_of(score, queries, keys)
    for head in range(2):
        single = RotaryScore(score.inner.heads[head])
        torch.testing.assert_close(
            batched[:, head], scores_of(single, queries[:, head], keys[:, head])
        )


@pytest.mark.parametrize(("query_size", "key_size"), [(3, 3), (4, 5), (5, 4)])
def test_odd_size_for_rotary_raises(query_size, key_size):
    with pytest.raises(ConfigError) as error:
        RotaryScoreConfig().build(query_size=query_size, key_size=key_size, num_heads=None)
    assert str(error.value) == (
        f"score.type: 'rotary' needs even sizes, but queries have {query_size} and "
        f"keys {key_size}\n"
        "  make both sizes even, or choose 'alibi' or 'relative-position-bias' in a 'sum'"
    )


def test_config_passes_settings_to_scores():
    built = RelativeKeyScoreConfig(max_relative_position=3, scaled=False).build(
        query_size=4, key_size=5, num_heads=None
    )
    assert (built.max_relative_position, built.scale, built.projection.weight.shape) == (
        3,
        1.0,
        (7, 4),
    )
    rotary = RotaryScoreConfig(base=20).build(query_size=4, key_size=4, num_heads=None)
    assert rotary.base == 20
    assert isinstance(rotary.inner, ScaledDotScore)


@pytest.mark.parametrize("num_heads", [None, 2])
@pytest.mark.parametrize(
    "type_names",
    [
        ["scaled-dot", "relative-key"],
        ["rotary", "alibi"],
        ["alibi", "gaussian", "relative-position-bias"],
    ],
    ids=str,
)
def test_sum_score_adds_scores_of_every_type(type_names, num_heads):
    config = SumScoreConfig.model_validate(
        {"scores": [{"type": type_name} for type_name in type_names]}
    )
    score = config.build(query_size=4, key_size=4, num_heads=num_heads).double()
    leading = (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 5, 4), vectors(*leading, 7, 4)
    expected = sum(scores_of(term, queries, keys) for term in score.terms)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_error_inside_nested_score_names_the_path():
    term = {"type": "rotary", "score": {"type": "cosine", "scale": -1}}
    settings = {"score": {"type": "sum", "scores": [{"type": "alibi"}, term]}}
    with pytest.raises(ConfigError) as error:
        validate_settings(AttentionConfig, settings, location="recipe.yaml")
    assert "score.scores.1.score.scale" in error.value.location

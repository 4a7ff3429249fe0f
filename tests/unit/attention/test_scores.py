"""Each score against its paper's formula, one pair of vectors at a time."""

import math

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, ConcatScore, LinearScore, LocationScore
from heedful.attention.scores import (
    BilinearScore,
    CosineScore,
    CosineScoreConfig,
    DotScore,
    ProjectedDotScore,
    ScaledDotScore,
    TanhDotScore,
    TrilinearScore,
)
from heedful.errors import ConfigError
from tests.catalogue import SCORES


def scores_of(score, queries, keys):
    return score(queries, score.prepare_keys(keys)).detach()


def weight(layer):
    return layer.weight.detach()


def projected(score, query, key):
    return weight(score.query_projection) @ query, weight(score.key_projection) @ key


def tanh_dot(score, query, key):
    """sum_d V_d tanh((x U)_d) tanh((y W)_d), Shazeer et al. 2017, equation 22."""
    query, key = projected(score, query, key)
    return (weight(score.score_vector)[0] * query.tanh() * key.tanh()).sum()


FORMULAS = {
    "dot": (DotScore(), lambda _, q, k: q @ k),
    "scaled dot": (ScaledDotScore(), lambda _, q, k: q @ k / math.sqrt(4)),
    "cosine": (CosineScore(3.0), lambda _, q, k: 3 * q @ k / (q.norm() * k.norm())),
    "trilinear": (
        TrilinearScore(4),
        lambda score, q, k: weight(score.reduction)[0] @ torch.cat([q, k, q * k]),
    ),
    "bilinear": (BilinearScore(3, 4), lambda score, q, k: q @ weight(score.projection) @ k),
    "projected dot": (
        ProjectedDotScore(3, 4, hidden_size=2),
        lambda score, q, k: torch.dot(*projected(score, q, k)),
    ),
    "tanh dot": (TanhDotScore(3, 4, hidden_size=2), tanh_dot),
    "linear": (LinearScore(3, 4), lambda score, q, k: sum(projected(score, q, k))[0]),
    "additive": (
        AdditiveScore(3, 4, hidden_size=2),
        lambda score, q, k: weight(score.score_vector)[0] @ sum(projected(score, q, k)).tanh(),
    ),
    "concat": (
        ConcatScore(3, 4, hidden_size=2),
        lambda score, q, k: (
            weight(score.score_vector)[0] @ (weight(score.projection) @ torch.cat([q, k])).tanh()
        ),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_score_same_as_formula(name):
    score, formula = FORMULAS[name]
    query_size = 4 if name in ("dot", "scaled dot", "cosine", "trilinear") else 3
    queries, keys = torch.randn(2, query_size), torch.randn(5, 4)
    expected = [[formula(score, query, key) for key in keys] for query in queries]
    torch.testing.assert_close(scores_of(score, queries, keys), torch.tensor(expected))


def test_cosine_with_zero_vector_is_zero():
    vectors, zeros = torch.randn(3, 4), torch.zeros(2, 4)
    assert (scores_of(CosineScore(5.0), vectors, zeros) == 0).all()
    assert (scores_of(CosineScore(5.0), zeros, vectors) == 0).all()


def test_learned_cosine_scale_starts_from_given_scale_and_stays_positive():
    queries, keys = torch.randn(3, 4, dtype=torch.double), torch.randn(5, 4, dtype=torch.double)
    config = CosineScoreConfig(scale=7, learned=True)
    fixed, learned = (
        CosineScore(7.0),
        config.build(query_size=4, key_size=4, num_heads=None).double(),
    )
    assert list(fixed.parameters()) == []
    torch.testing.assert_close(scores_of(fixed, queries, keys), scores_of(learned, queries, keys))
    for log_scale in (-20.0, 20.0):
        learned.log_scale.data.fill_(log_scale)
        assert learned.scale.item() == pytest.approx(math.exp(log_scale))


def test_location_score_ignores_keys_and_clamps_positions():
    score, queries = LocationScore(3, max_positions=4), torch.randn(2, 3)
    scores = queries @ weight(score.projection).T
    expected = scores[:, [0, 1, 2, 3, 3, 3]]
    torch.testing.assert_close(scores_of(score, queries, torch.randn(6, 4)), expected)


@pytest.mark.parametrize("type_name", ["dot", "scaled-dot", "cosine", "trilinear"])
def test_elementwise_score_with_unequal_sizes_raises(type_name):
    with pytest.raises(ConfigError) as error:
        SCORES[type_name].build(query_size=3, key_size=4, num_heads=None)
    assert str(error.value) == (
        f"score.type: {type_name!r} needs equal sizes, but queries have 3 and keys 4\n"
        "  make the sizes equal, or choose 'bilinear' or 'additive'"
    )


@pytest.mark.parametrize(
    "type_name",
    ["bilinear", "projected-dot", "tanh-dot", "linear", "additive", "concat", "location"],
)
def test_other_scores_accept_unequal_sizes(type_name):
    score = SCORES[type_name].build(query_size=3, key_size=4, num_heads=None)
    assert scores_of(score, torch.randn(2, 3), torch.randn(5, 4)).shape == (2, 5)

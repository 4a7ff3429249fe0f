"""Each score against its paper's formula, one pair of vectors at a time."""

import math

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, ConcatScore, LinearScore, LocationScore
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.dot_product_scores import (
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


def by_hand(formula, queries, keys):
    return torch.tensor([[formula(query, key) for key in keys] for query in queries])


def dot(left, right):
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))


def scores_of(score, queries, keys):
    return score(queries, score.prepare_keys(keys)).detach()


def weight(layer):
    return layer.weight.detach()


def test_dot_score_same_as_formula():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    torch.testing.assert_close(scores_of(DotScore(), queries, keys), by_hand(dot, queries, keys))


def test_scaled_dot_score_same_as_formula():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    expected = by_hand(lambda q, k: dot(q, k) / 2, queries, keys)
    torch.testing.assert_close(scores_of(ScaledDotScore(), queries, keys), expected)


def test_scaled_dot_of_normal_vectors_has_unit_variance():
    queries, keys = torch.randn(300, 256), torch.randn(300, 256)
    assert 0.9 < scores_of(ScaledDotScore(), queries, keys).var().item() < 1.1


def test_bilinear_score_same_as_formula():
    score = BilinearScore(3, 4)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    matrix = weight(score.projection)
    expected = by_hand(lambda q, k: dot(q, matrix @ k), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_projected_dot_score_same_as_formula():
    score = ProjectedDotScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    query_matrix, key_matrix = weight(score.query_projection), weight(score.key_projection)
    expected = by_hand(lambda q, k: dot(query_matrix @ q, key_matrix @ k), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_projected_dot_equals_bilinear_with_product_matrix():
    projected, bilinear = ProjectedDotScore(3, 4, hidden_size=2), BilinearScore(3, 4)
    matrix = weight(projected.query_projection).T @ weight(projected.key_projection)
    bilinear.projection.weight.data.copy_(matrix)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    torch.testing.assert_close(
        scores_of(projected, queries, keys), scores_of(bilinear, queries, keys)
    )


def test_tanh_dot_score_same_as_formula():
    score = TanhDotScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    vector = weight(score.score_vector)[0]
    query_matrix, key_matrix = weight(score.query_projection), weight(score.key_projection)

    def formula(q, k):  # sum_d V_d tanh((x U)_d) tanh((y W)_d), Shazeer et al. 2017, equation 22
        terms = zip(vector.tolist(), query_matrix.tolist(), key_matrix.tolist(), strict=True)
        return sum(
            v
            * math.tanh(sum(w * x for w, x in zip(row, q.tolist(), strict=True)))
            * math.tanh(sum(u * y for u, y in zip(column, k.tolist(), strict=True)))
            for v, row, column in terms
        )

    torch.testing.assert_close(scores_of(score, queries, keys), by_hand(formula, queries, keys))


def test_cosine_score_same_as_formula():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)

    def formula(q, k):
        return 3 * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))

    expected = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(CosineScore(3.0), queries, keys), expected)


def test_cosine_score_ignores_vector_norms():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    longer = scores_of(CosineScore(), 1000 * queries, keys / 1000)
    torch.testing.assert_close(longer, scores_of(CosineScore(), queries, keys))


def test_cosine_with_zero_vector_is_zero():
    vectors, zeros = torch.randn(3, 4), torch.zeros(2, 4)
    assert (scores_of(CosineScore(5.0), vectors, zeros) == 0).all()
    assert (scores_of(CosineScore(5.0), zeros, vectors) == 0).all()


def test_learned_cosine_scale_starts_from_given_scale():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    fixed, learned = CosineScore(7.0), CosineScore(7.0, learned=True)
    assert list(fixed.parameters()) == []
    torch.testing.assert_close(scores_of(fixed, queries, keys), scores_of(learned, queries, keys))


def test_learned_cosine_scale_stays_positive():
    score = CosineScore(2.0, learned=True).double()
    queries, keys = torch.randn(2, 4).double(), torch.randn(3, 4).double()
    assert torch.autograd.gradcheck(
        lambda _: score(queries, score.prepare_keys(keys)), score.log_scale
    )
    for step in (-20.0, 20.0):
        score.log_scale.data.fill_(step)
        assert score.scale.item() == pytest.approx(math.exp(step))


def test_trilinear_score_same_as_formula():
    score = TrilinearScore(4)
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    vector = weight(score.reduction)[0]
    expected = by_hand(lambda q, k: dot(vector, torch.cat([q, k, q * k])), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_linear_score_same_as_formula():
    score = LinearScore(3, 4)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    vector = torch.cat([weight(score.query_projection)[0], weight(score.key_projection)[0]])
    expected = by_hand(lambda q, k: dot(vector, torch.cat([q, k])), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_softmax_of_linear_score_ignores_query():
    score, keys, mask = LinearScore(3, 4), torch.randn(5, 4), torch.ones(2, 5, dtype=torch.bool)
    one, other = (
        SoftmaxAlignment().normalize(scores_of(score, torch.randn(2, 3), keys), mask)
        for _ in range(2)
    )
    torch.testing.assert_close(one, other)


def test_additive_score_same_as_formula():
    score = AdditiveScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    query_matrix, key_matrix = weight(score.query_projection), weight(score.key_projection)
    vector = weight(score.score_vector)[0]

    def formula(q, k):
        hidden = query_matrix @ q + key_matrix @ k
        return sum(v * math.tanh(h) for v, h in zip(vector.tolist(), hidden.tolist(), strict=True))

    expected = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


@pytest.mark.parametrize("name", ["query_projection", "key_projection", "score_vector"])
def test_additive_score_has_no_bias_by_default(name):
    assert getattr(AdditiveScore(3, 4, hidden_size=2), name).bias is None


def test_concat_score_same_as_formula():
    score = ConcatScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    matrix, vector = weight(score.projection), weight(score.score_vector)[0]

    def formula(q, k):
        return dot(vector, (matrix @ torch.cat([q, k])).tanh())

    expected = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


def test_concat_score_equals_additive_with_joined_matrices():
    concat, additive = ConcatScore(3, 4, hidden_size=2), AdditiveScore(3, 4, hidden_size=2)
    halves = [weight(additive.query_projection), weight(additive.key_projection)]
    concat.projection.weight.data.copy_(torch.cat(halves, dim=1))
    concat.score_vector.weight.data.copy_(weight(additive.score_vector))
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    torch.testing.assert_close(scores_of(concat, queries, keys), scores_of(additive, queries, keys))


def test_location_score_same_as_formula():
    score = LocationScore(3, max_positions=8)
    queries, positions = torch.randn(2, 3), range(5)
    rows = weight(score.projection)
    expected = by_hand(lambda q, position: dot(rows[position], q), queries, positions)
    torch.testing.assert_close(scores_of(score, queries, torch.randn(5, 4)), expected)


def test_location_score_ignores_key_content():
    score, queries = LocationScore(3, max_positions=8), torch.randn(2, 3)
    one, other = (scores_of(score, queries, torch.randn(5, 4)) for _ in range(2))
    assert torch.equal(one, other)


def test_positions_beyond_maximum_share_last_location_score():
    score, queries, keys = LocationScore(3, max_positions=4), torch.randn(2, 3), torch.randn(6, 4)
    rows = weight(score.projection)
    expected = by_hand(lambda q, position: dot(rows[min(position, 3)], q), queries, range(6))
    torch.testing.assert_close(scores_of(score, queries, keys), expected)


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


def test_config_passes_settings_to_cosine_score():
    score = CosineScoreConfig(scale=4, learned=True).build(query_size=3, key_size=3, num_heads=None)
    assert score.scale.item() == pytest.approx(4)

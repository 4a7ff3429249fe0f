"""Each score against its paper's formula, one pair of vectors at a time."""

import math

import pytest
import torch

from heedful.attention import (
    AdditiveScore,
    BilinearScore,
    ConcatScore,
    CosineScore,
    DotScore,
    LinearScore,
    LocationScore,
    ProjectedDotScore,
    ScaledDotScore,
    SoftmaxAlignment,
    TrilinearScore,
)
from heedful.attention.dot_product_scores import CosineScoreConfig
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


def test_dot_is_the_sum_of_products():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    torch.testing.assert_close(scores_of(DotScore(), queries, keys), by_hand(dot, queries, keys))


def test_scaled_dot_is_the_dot_over_the_root_of_the_width():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    wanted = by_hand(lambda q, k: dot(q, k) / 2, queries, keys)
    torch.testing.assert_close(scores_of(ScaledDotScore(), queries, keys), wanted)


def test_scaled_dot_of_independent_normal_vectors_has_variance_one():
    queries, keys = torch.randn(300, 256), torch.randn(300, 256)
    assert 0.9 < scores_of(ScaledDotScore(), queries, keys).var().item() < 1.1


def test_bilinear_is_a_product_through_one_matrix():
    score = BilinearScore(3, 4)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    matrix = weight(score.projection)
    wanted = by_hand(lambda q, k: dot(q, matrix @ k), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_projected_dot_is_the_dot_of_two_projections():
    score = ProjectedDotScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    of_query, of_key = weight(score.query_projection), weight(score.key_projection)
    wanted = by_hand(lambda q, k: dot(of_query @ q, of_key @ k), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_projected_dot_is_bilinear_through_the_product_of_its_matrices():
    projected, bilinear = ProjectedDotScore(3, 4, hidden_size=2), BilinearScore(3, 4)
    matrix = weight(projected.query_projection).T @ weight(projected.key_projection)
    bilinear.projection.weight.data.copy_(matrix)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    torch.testing.assert_close(
        scores_of(projected, queries, keys), scores_of(bilinear, queries, keys)
    )


def test_cosine_is_the_dot_over_both_lengths_times_the_sharpness():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)

    def formula(q, k):
        return 3 * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))

    wanted = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(CosineScore(3.0), queries, keys), wanted)


def test_cosine_does_not_see_lengths():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    longer = scores_of(CosineScore(), 1000 * queries, keys / 1000)
    torch.testing.assert_close(longer, scores_of(CosineScore(), queries, keys))


def test_the_cosine_with_a_vector_of_zeros_is_zero():
    vectors, zeros = torch.randn(3, 4), torch.zeros(2, 4)
    assert (scores_of(CosineScore(5.0), vectors, zeros) == 0).all()
    assert (scores_of(CosineScore(5.0), zeros, vectors) == 0).all()


def test_a_sharpness_is_learned_only_where_asked_and_starts_from_the_one_given():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    fixed, learned = CosineScore(7.0), CosineScore(7.0, learned=True)
    assert list(fixed.parameters()) == []
    torch.testing.assert_close(scores_of(fixed, queries, keys), scores_of(learned, queries, keys))


def test_a_learned_sharpness_stays_positive_under_any_step_and_has_the_right_gradient():
    score = CosineScore(2.0, learned=True).double()
    queries, keys = torch.randn(2, 4).double(), torch.randn(3, 4).double()
    assert torch.autograd.gradcheck(
        lambda _: score(queries, score.prepare_keys(keys)), score.log_scale
    )
    for step in (-20.0, 20.0):
        score.log_scale.data.fill_(step)
        assert score.scale.item() == pytest.approx(math.exp(step))


def test_trilinear_is_one_vector_on_query_key_and_their_product():
    score = TrilinearScore(4)
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    vector = weight(score.reduction)[0]
    wanted = by_hand(lambda q, k: dot(vector, torch.cat([q, k, q * k])), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_linear_is_one_vector_on_query_and_key():
    score = LinearScore(3, 4)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    vector = torch.cat([weight(score.query_projection)[0], weight(score.key_projection)[0]])
    wanted = by_hand(lambda q, k: dot(vector, torch.cat([q, k])), queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_under_a_softmax_linear_follows_the_keys_alone():
    score, keys, mask = LinearScore(3, 4), torch.randn(5, 4), torch.ones(2, 5, dtype=torch.bool)
    one, other = (
        SoftmaxAlignment().normalize(scores_of(score, torch.randn(2, 3), keys), mask)
        for _ in range(2)
    )
    torch.testing.assert_close(one, other)


def test_additive_is_a_small_tanh_layer_of_the_sum_of_two_projections():
    score = AdditiveScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    of_query, of_key = weight(score.query_projection), weight(score.key_projection)
    vector = weight(score.score_vector)[0]

    def formula(q, k):
        hidden = of_query @ q + of_key @ k
        return sum(v * math.tanh(h) for v, h in zip(vector.tolist(), hidden.tolist(), strict=True))

    wanted = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


@pytest.mark.parametrize("name", ["query_projection", "key_projection", "reduction"])
def test_additive_has_the_three_matrices_of_the_paper_and_no_bias(name):
    assert getattr(AdditiveScore(3, 4, hidden_size=2), name).bias is None


def test_concat_is_a_small_tanh_layer_of_query_and_key_in_one_vector():
    score = ConcatScore(3, 4, hidden_size=2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    matrix, vector = weight(score.projection), weight(score.score_vector)[0]

    def formula(q, k):
        return dot(vector, (matrix @ torch.cat([q, k])).tanh())

    wanted = by_hand(formula, queries, keys)
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


def test_concat_is_additive_with_its_two_matrices_side_by_side():
    concat, additive = ConcatScore(3, 4, hidden_size=2), AdditiveScore(3, 4, hidden_size=2)
    halves = [weight(additive.query_projection), weight(additive.key_projection)]
    concat.projection.weight.data.copy_(torch.cat(halves, dim=1))
    concat.score_vector.weight.data.copy_(weight(additive.score_vector))
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    torch.testing.assert_close(scores_of(concat, queries, keys), scores_of(additive, queries, keys))


def test_location_is_one_row_of_a_matrix_for_each_place():
    score = LocationScore(3, max_positions=8)
    queries, places = torch.randn(2, 3), range(5)
    rows = weight(score.projection)
    wanted = by_hand(lambda q, place: dot(rows[place], q), queries, places)
    torch.testing.assert_close(scores_of(score, queries, torch.randn(5, 4)), wanted)


def test_location_does_not_see_what_the_keys_hold():
    score, queries = LocationScore(3, max_positions=8), torch.randn(2, 3)
    one, other = (scores_of(score, queries, torch.randn(5, 4)) for _ in range(2))
    assert torch.equal(one, other)


def test_places_beyond_the_last_row_share_its_score():
    score, queries, keys = LocationScore(3, max_positions=4), torch.randn(2, 3), torch.randn(6, 4)
    rows = weight(score.projection)
    wanted = by_hand(lambda q, place: dot(rows[min(place, 3)], q), queries, range(6))
    torch.testing.assert_close(scores_of(score, queries, keys), wanted)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("dot", "a dot product"),
        ("scaled-dot", "a scaled dot product"),
        ("cosine", "a cosine"),
        ("trilinear", "a trilinear score"),
    ],
)
def test_scores_that_compare_entry_by_entry_refuse_unequal_sizes(kind, name):
    with pytest.raises(ConfigError) as refused:
        SCORES[kind].build(query_size=3, key_size=4)
    assert str(refused.value) == (
        f"score.type: {name} needs equal sizes, but queries have 3 and keys 4\n"
        "  make the sizes equal, or choose 'bilinear' or 'additive'"
    )


@pytest.mark.parametrize(
    "kind", ["bilinear", "projected-dot", "linear", "additive", "concat", "location"]
)
def test_the_other_scores_serve_unequal_sizes(kind):
    score = SCORES[kind].build(query_size=3, key_size=4)
    assert scores_of(score, torch.randn(2, 3), torch.randn(5, 4)).shape == (2, 5)


def test_the_settings_of_a_cosine_reach_it():
    score = CosineScoreConfig(scale=4, learned=True).build(query_size=3, key_size=3)
    assert score.scale.item() == pytest.approx(4)

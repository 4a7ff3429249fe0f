"""AllenNLP: which of its similarity functions are scores of ours.

What it computes is written out here, pair by pair, for it wants an older torch than heedful
(2.10.1: below 1.13). Its softmax is in `test_masks_after_softmax.py`.
"""

import torch
from torch.nn.functional import cosine_similarity

from heedful.attention import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    LinearScore,
    ScaledDotScore,
    TrilinearScore,
)
from tests.conformance.asking import sentences

WIDTH = 4


def pairs(similarity, queries, keys):
    """Every query beside every key, one pair at a time."""
    rows = [
        [[similarity(query, key).item() for key in held] for query in asked]
        for asked, held in zip(queries, keys, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.double)


def agree(score, similarity):
    queries, keys, _ = sentences()
    score = score.double()
    found = score(queries, score.prepare_keys(keys)).detach()
    torch.testing.assert_close(found, pairs(similarity, queries, keys))


def test_dot_product_and_its_scaled_form_are_ours():
    agree(DotScore(), lambda query, key: query @ key)
    agree(ScaledDotScore(), lambda query, key: query @ key / WIDTH**0.5)


def test_cosine_is_ours_with_a_sharpness_of_one():
    agree(CosineScore(), lambda query, key: cosine_similarity(query, key, dim=0))


def test_bilinear_is_ours_but_for_a_bias_that_softmax_does_not_see():
    score = BilinearScore(WIDTH, WIDTH)
    agree(score, lambda query, key: query @ score.projection.weight @ key)
    scores, bias = torch.randn(2, 3, 5), 1.7
    torch.testing.assert_close((scores + bias).softmax(dim=-1), scores.softmax(dim=-1))


def test_additive_is_ours():
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=WIDTH)

    def similarity(query, key):
        asked, held = score.query_projection.weight @ query, score.key_projection.weight @ key
        return score.score_vector.weight[0] @ (asked + held).tanh()

    agree(score, similarity)


def test_linear_of_both_is_ours():
    score = LinearScore(WIDTH, WIDTH)

    def similarity(query, key):
        weights = torch.cat([score.query_projection.weight[0], score.key_projection.weight[0]])
        return weights @ torch.cat([query, key])

    agree(score, similarity)


def test_linear_of_both_and_their_product_is_the_trilinear_score():
    score = TrilinearScore(WIDTH)
    agree(
        score,
        lambda query, key: score.reduction.weight[0] @ torch.cat([query, key, query * key]),
    )

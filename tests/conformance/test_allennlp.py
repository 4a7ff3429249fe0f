"""AllenNLP: its similarity functions and the scores of heedful.

Its computation is reimplemented here, because 2.10.1 needs torch below 1.13. Its softmax is in
`test_masks_after_softmax.py`.
"""

import torch
from torch.nn.functional import cosine_similarity

from heedful.attention.additive_scores import AdditiveScore, LinearScore
from heedful.attention.dot_product_scores import (
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    TrilinearScore,
)
from tests.conformance.inputs import sentences

WIDTH = 4


def similarities(similarity, queries, keys):
    """Return the similarity of every query and key, one pair at a time."""
    rows = [
        [[similarity(query, key).item() for key in row_keys] for query in row_queries]
        for row_queries, row_keys in zip(queries, keys, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.double)


def check_agreement(score, similarity):
    queries, keys, _ = sentences()
    score = score.double()
    actual = score(queries, score.prepare_keys(keys)).detach()
    torch.testing.assert_close(actual, similarities(similarity, queries, keys))


def test_allennlp_dot_product_matches():
    check_agreement(DotScore(), lambda query, key: query @ key)
    check_agreement(ScaledDotScore(), lambda query, key: query @ key / WIDTH**0.5)


def test_allennlp_cosine_matches_with_scale_one():
    check_agreement(CosineScore(), lambda query, key: cosine_similarity(query, key, dim=0))


def test_allennlp_bilinear_matches_up_to_bias():
    score = BilinearScore(WIDTH, WIDTH)
    check_agreement(score, lambda query, key: query @ score.projection.weight @ key)
    scores, bias = torch.randn(2, 3, 5), 1.7
    torch.testing.assert_close((scores + bias).softmax(dim=-1), scores.softmax(dim=-1))


def test_allennlp_additive_matches():
    score = AdditiveScore(WIDTH, WIDTH, hidden_size=WIDTH)

    def similarity(query, key):
        projected_query = score.query_projection.weight @ query
        projected_key = score.key_projection.weight @ key
        return score.score_vector.weight[0] @ (projected_query + projected_key).tanh()

    check_agreement(score, similarity)


def test_allennlp_linear_matches():
    score = LinearScore(WIDTH, WIDTH)

    def similarity(query, key):
        weights = torch.cat([score.query_projection.weight[0], score.key_projection.weight[0]])
        return weights @ torch.cat([query, key])

    check_agreement(score, similarity)


def test_allennlp_linear_with_product_is_trilinear():
    score = TrilinearScore(WIDTH)
    check_agreement(
        score,
        lambda query, key: score.reduction.weight[0] @ torch.cat([query, key, query * key]),
    )

"""AllenNLP: its similarity functions, by the values that its own tests expect.

The numbers are those of `tests/modules/attention` and `tests/modules/matrix_attention` of AllenNLP,
which cannot run itself: 2.10.1 needs torch below 1.13. Its softmax is in
`test_masks_after_softmax.py`.
"""

import torch

from heedful.attention.additive_scores import AdditiveScore, LinearScore
from heedful.attention.scores import (
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    TrilinearScore,
)

QUERIES = [[[0, 0, 0]], [[1, 1, 1]]]
KEYS = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]
WEIGHTS = [-0.3, 0.5, 2.0, -1.0, 1.0, 1.0]


def tensor(values):
    return torch.tensor(values, dtype=torch.double)


def scores_of(score, queries, keys, **parameters):
    """Return the scores of (B, T, Q) queries and (B, S, K) keys with these parameters."""
    score = score.double()
    named = {name.replace("__", "."): tensor(value) for name, value in parameters.items()}
    score.load_state_dict(named, strict=bool(named))
    return score(tensor(queries), score.prepare_keys(tensor(keys))).detach()


def check_scores(actual, expected, *, tolerance=1e-6):
    torch.testing.assert_close(actual, tensor(expected), atol=tolerance, rtol=0)


def test_dot_product_returns_allennlp_values():
    check_scores(scores_of(DotScore(), QUERIES, KEYS), [[[0, 0]], [[24, 33]]])


def test_scaled_dot_product_returns_allennlp_values():
    # Its test divides by sqrt(9); zeros up to nine dimensions leave the products as they are.
    queries, keys = (torch.nn.functional.pad(tensor(item), (0, 6)) for item in (QUERIES, KEYS))
    actual = scores_of(ScaledDotScore(), queries.tolist(), keys.tolist())
    check_scores(actual, [[[0, 0]], [[8, 11]]])
    actual = scores_of(ScaledDotScore(), queries.flip(0).tolist(), keys.tolist())
    check_scores(actual, [[[2, 5]], [[0, 0]]])


def test_cosine_returns_allennlp_values():
    # Four digits are given.
    actual = scores_of(CosineScore(), QUERIES, KEYS)
    check_scores(actual, [[[0, 0]], [[0.9948, 0.9973]]], tolerance=1e-4)


def test_bilinear_returns_allennlp_values_without_the_bias():
    queries, keys = [[[1, 1], [2, 2]]], [[[1, 0], [0, 1]]]
    matrix = [[-0.3, 0.5], [2.0, -1.0]]
    actual = scores_of(BilinearScore(2, 2), queries, keys, projection__weight=matrix)
    check_scores(actual + 0.1, [[[1.8, -0.4], [3.5, -0.9]]])


def test_additive_returns_allennlp_values():
    """Its matrices are those of heedful, transposed."""
    queries = [[[0.7, -0.8]], [[0.4, 0.9]]]
    keys = [
        [[1.0, -1.0, 3.0], [0.5, -0.3, 0.0], [0.2, -1.0, 1.0], [0.7, 0.8, -1.0]],
        [[-2.0, 3.0, -3.0], [0.6, 0.2, 2.0], [0.5, -0.4, -1.0], [0.2, 0.2, 0.0]],
    ]
    actual = scores_of(
        AdditiveScore(2, 3, hidden_size=2),
        queries,
        keys,
        query_projection__weight=[[-0.2, -0.5], [0.3, 0.5]],
        key_projection__weight=[[0.0, 1.0, 1.0], [1.0, 1.0, -1.0]],
        score_vector__weight=[[1.0, -1.0]],
    )
    expected = [
        [[1.975072, -0.04997836, 1.2176098, -0.9205586]],
        [[-1.4851665, 1.489604, -1.890285, -1.0672251]],
    ]
    check_scores(actual, expected)


def test_linear_returns_allennlp_values_without_the_bias():
    queries = [[[0, 0, 0], [4, 5, 6]], [[-7, -8, -9], [10, 11, 12]]]
    actual = scores_of(
        LinearScore(3, 3),
        queries,
        KEYS,
        query_projection__weight=[WEIGHTS[:3]],
        key_projection__weight=[WEIGHTS[3:]],
    )
    expected = [[[4.1, 7.1], [17.4, 20.4]], [[-9.8, -6.8], [36.6, 39.6]]]
    check_scores(actual + 0.1, expected)
    # The same weights and a softmax, for the query (-7, -8, -9); four digits are given.
    weights = actual[1, 0].softmax(dim=-1)
    check_scores(weights, [0.0474, 0.9526], tolerance=1e-4)


def test_trilinear_returns_the_values_of_allennlp_linear_with_product():
    queries, keys = [[[0, 0], [4, 5]], [[-7, -8], [10, 11]]], [[[1, 2], [4, 5]], [[7, 8], [10, 11]]]
    actual = scores_of(TrilinearScore(2), queries, keys, reduction__weight=[WEIGHTS])
    expected = [
        [[2 - 2, 8 - 5], [-1.2 + 2.5 + 2 - 2 + 4 + 10, -1.2 + 2.5 + 8 - 5 + 16 + 25]],
        [
            [2.1 - 4 + 14 - 8 - 49 - 64, 2.1 - 4 + 20 - 11 - 70 - 88],
            [-3 + 5.5 + 14 - 8 + 70 + 88, -3 + 5.5 + 20 - 11 + 100 + 121],
        ],
    ]
    check_scores(actual, expected)

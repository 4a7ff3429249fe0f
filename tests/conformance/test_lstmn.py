"""LSTMN: the paper's score has a term that its authors' encoder (cheng6076/SNLI-attention) lacks.

Its computation is reimplemented here.
"""

import math

import torch

from heedful.attention.additive_scores import AdditiveScore, ContextFeature
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from tests.conformance.inputs import column, row, softmax, visible


def attention_with_context_feature(weight):
    """v tanh(W_h h + W_x x + weight * h~) in one dimension, with the other parameters 1."""
    score = AdditiveScore(1, 1, hidden_size=1, features=[ContextFeature(1, value_size=1)]).double()
    score.load_state_dict(
        {
            "query_projection.weight": row(1),
            "key_projection.weight": row(1),
            "score_vector.weight": row(1),
            "features.0.projection.weight": row(weight),
        }
    )
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def attention_weights(weight, inputs, memory):
    attention = attention_with_context_feature(weight)
    return attention(inputs, attention.build_memory(memory, visible(memory))).weights[0]


def test_last_context_enters_score_as_in_paper():
    # Two queries, 0.5 and -0.5, over a memory of 1 and 0.
    inputs, memory = column(0.5, -0.5), column(1.0, 0.0)
    first = softmax(math.tanh(1.5), math.tanh(0.5))
    last_context = first[0].item()
    second = softmax(math.tanh(0.5 + 2 * last_context), math.tanh(-0.5 + 2 * last_context))
    code = softmax(math.tanh(0.5), math.tanh(-0.5))
    weights = attention_weights(2.0, inputs, memory)
    torch.testing.assert_close(weights, torch.stack([first, second]))
    assert (weights[1] - code).abs().max() > 0.1


def test_score_without_last_context_same_as_authors_code():
    inputs, memory = column(0.5, -0.5), column(1.0, 0.0)
    code = [softmax(math.tanh(x + 1), math.tanh(x)) for x in (0.5, -0.5)]
    torch.testing.assert_close(attention_weights(0.0, inputs, memory), torch.stack(code))

"""LSTMN: the paper's score has a term that its authors' encoder (cheng6076/SNLI-attention) lacks.

What the code computes is written out here.
"""

import math

import torch

from heedful.attention import (
    AdditiveScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
)
from heedful.attention.additive_scores import ContextFeature
from tests.conformance.asking import column, row, softmax, visible


def looking_back(penalty):
    """v tanh(W_h h + W_x x + strength * h~), with the other matrices one, in one dimension."""
    score = AdditiveScore(1, 1, hidden_size=1, features=[ContextFeature(1, value_size=1)]).double()
    score.load_state_dict(
        {
            "query_projection.weight": row(1),
            "key_projection.weight": row(1),
            "reduction.weight": row(1),
            "features.0.projection.weight": row(penalty),
        }
    )
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def asked(penalty, inputs, tape):
    attention = looking_back(penalty)
    return attention(inputs, attention.build_memory(tape, visible(tape))).weights[0]


def test_what_was_taken_last_enters_the_score_as_in_the_paper():
    # Two words, 0.5 and -0.5, look at a tape that holds 1 and 0.
    inputs, tape = column(0.5, -0.5), column(1.0, 0.0)
    first = softmax(math.tanh(1.5), math.tanh(0.5))
    taken = first[0].item()
    second = softmax(math.tanh(0.5 + 2 * taken), math.tanh(-0.5 + 2 * taken))
    code = softmax(math.tanh(0.5), math.tanh(-0.5))
    weights = asked(2.0, inputs, tape)
    torch.testing.assert_close(weights, torch.stack([first, second]))
    assert (weights[1] - code).abs().max() > 0.1


def test_without_that_term_the_score_is_the_codes():
    inputs, tape = column(0.5, -0.5), column(1.0, 0.0)
    code = [softmax(math.tanh(x + 1), math.tanh(x)) for x in (0.5, -0.5)]
    torch.testing.assert_close(asked(0.0, inputs, tape), torch.stack(code))

"""Masking after the softmax: neural-transducer, pointer-generator and AllenNLP.

Their computation is reimplemented here. All agree with heedful for small scores; large scores in
padding must have no effect.
"""

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment

TINY = 1e-13  # AllenNLP's, for single and double precision alike
LEAST = 1e-7  # neural-transducer's


def neural_transducer(scores, mask):
    weights = scores.softmax(dim=-1) * mask + LEAST
    return weights / weights.sum(dim=-1, keepdim=True)


def pointer_generator(scores, mask):
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


def allennlp(scores, mask):
    weights = (scores * mask).softmax(dim=-1) * mask
    return weights / (weights.sum(dim=-1, keepdim=True) + TINY)


REFERENCES = [neural_transducer, pointer_generator, allennlp]
all_references = pytest.mark.parametrize("reference", REFERENCES, ids=lambda item: item.__name__)
MASK = torch.tensor([[True, True, False, False]])


def ours(*scores):
    return SoftmaxAlignment().normalize(torch.tensor([scores]), MASK)


@all_references
def test_masking_after_softmax_agrees_for_small_scores(reference):
    scores = torch.tensor([[0.3, -0.2, 1.0, -1.0]])
    weights = SoftmaxAlignment().normalize(scores, MASK)
    torch.testing.assert_close(weights, reference(scores, MASK), atol=1e-6, rtol=0)
    single = scores[:, :2].softmax(dim=-1)
    torch.testing.assert_close(weights[:, :2], single)


def test_neural_transducer_returns_padding_weight():
    scores = torch.zeros(1, 4)
    # 1/4 each, and half of the sum is kept: 1e-7 / (1/2 + 4e-7) for a position of padding.
    expected = torch.tensor(LEAST / (0.5 + 4 * LEAST))
    torch.testing.assert_close(neural_transducer(scores, MASK)[0, 2], expected)
    torch.testing.assert_close(ours(0.0, 0.0, 0.0, 0.0), torch.tensor([[0.5, 0.5, 0, 0]]))
    assert (ours(0.0, 0.0, 0.0, 0.0)[0, 2:] == 0).all()


def test_large_padding_scores_flatten_neural_transducer_weights():
    # exp(-100) is left for the words, less than 1e-7: all weights are equal.
    scores = (1.0, 0.0, 100.0, 100.0)
    flat = torch.full((1, 4), 0.25)
    torch.testing.assert_close(neural_transducer(torch.tensor([scores]), MASK), flat)
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_large_padding_scores_make_pointer_generator_weights_nan():
    # exp(-200) is zero in single precision, and so is the divisor.
    scores = (1.0, 0.0, 200.0, 200.0)
    assert pointer_generator(torch.tensor([scores]), MASK).isnan().any()
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_low_scores_lose_allennlp_attention_to_padding():
    # Padding counts as 0, so scores of -40 keep exp(-40) = 4e-18, less than the constant.
    scores = (-40.0, -41.0, 0.0, 0.0)
    assert allennlp(torch.tensor([scores]), MASK).sum() < 1e-3
    torch.testing.assert_close(ours(*scores).sum(), torch.tensor(1.0))
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


@all_references
def test_nan_in_padding_reaches_other_implementations_only(reference):
    scores = (1.0, 0.0, torch.nan, 0.0)
    assert reference(torch.tensor([scores]), MASK).isnan().all()
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_fully_masked_row_is_zero_in_allennlp_and_here():
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    scores = torch.randn(1, 4)
    assert (allennlp(scores, nothing) == 0).all()
    assert (SoftmaxAlignment().normalize(scores, nothing) == 0).all()
    assert pointer_generator(scores, nothing).isnan().all()
    torch.testing.assert_close(neural_transducer(scores, nothing), torch.full((1, 4), 0.25))

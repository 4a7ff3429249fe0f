"""Masking after the softmax: neural-transducer, pointer-generator and AllenNLP beside ours.

What they compute is written out here. All agree with ours while scores are small; what stands in
padding must not matter however large it is.
"""

import pytest
import torch

from heedful.attention import SoftmaxAlignment

TINY = 1e-13  # AllenNLP's, for single and double precision alike
LEAST = 1e-7  # neural-transducer's


def neural_transducer(scores, mask):
    shares = scores.softmax(dim=-1) * mask + LEAST
    return shares / shares.sum(dim=-1, keepdim=True)


def pointer_generator(scores, mask):
    shares = scores.softmax(dim=-1) * mask
    return shares / shares.sum(dim=-1, keepdim=True)


def allennlp(scores, mask):
    shares = (scores * mask).softmax(dim=-1) * mask
    return shares / (shares.sum(dim=-1, keepdim=True) + TINY)


PEERS = [neural_transducer, pointer_generator, allennlp]
each_peer = pytest.mark.parametrize("peer", PEERS, ids=lambda each: each.__name__)
MASK = torch.tensor([[True, True, False, False]])


def ours(*scores):
    return SoftmaxAlignment().normalize(torch.tensor([scores]), MASK)


@each_peer
def test_with_small_scores_masking_late_comes_to_the_same(peer):
    scores = torch.tensor([[0.3, -0.2, 1.0, -1.0]])
    weights = SoftmaxAlignment().normalize(scores, MASK)
    torch.testing.assert_close(weights, peer(scores, MASK), atol=1e-6, rtol=0)
    alone = scores[:, :2].softmax(dim=-1)
    torch.testing.assert_close(weights[:, :2], alone)


def test_neural_transducer_always_leaves_padding_some_weight_and_ours_never():
    scores = torch.zeros(1, 4)
    # 1/4 each, of which half is kept: 1e-7 / (1/2 + 4e-7) for a place of padding.
    wanted = torch.tensor(LEAST / (0.5 + 4 * LEAST))
    torch.testing.assert_close(neural_transducer(scores, MASK)[0, 2], wanted)
    torch.testing.assert_close(ours(0.0, 0.0, 0.0, 0.0), torch.tensor([[0.5, 0.5, 0, 0]]))
    assert (ours(0.0, 0.0, 0.0, 0.0)[0, 2:] == 0).all()


def test_large_scores_in_padding_flatten_neural_transducers_weights_and_not_ours():
    # exp(-100) of the one unit is left for the words, less than 1e-7: all places look equal.
    scores = (1.0, 0.0, 100.0, 100.0)
    flat = torch.full((1, 4), 0.25)
    torch.testing.assert_close(neural_transducer(torch.tensor([scores]), MASK), flat)
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_large_scores_in_padding_make_pointer_generators_weights_nan_and_not_ours():
    # exp(-200) is zero in single precision, and so is what is divided by.
    scores = (1.0, 0.0, 200.0, 200.0)
    assert pointer_generator(torch.tensor([scores]), MASK).isnan().any()
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_low_scores_beside_padding_lose_allennlps_attention_and_not_ours():
    # Padding counts as 0, so of scores -40 exp(-40) = 4e-18 is left, less than what is added.
    scores = (-40.0, -41.0, 0.0, 0.0)
    assert allennlp(torch.tensor([scores]), MASK).sum() < 1e-3
    torch.testing.assert_close(ours(*scores).sum(), torch.tensor(1.0))
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


@each_peer
def test_nan_in_padding_reaches_every_peer_and_not_ours(peer):
    scores = (1.0, 0.0, torch.nan, 0.0)
    assert peer(torch.tensor([scores]), MASK).isnan().all()
    torch.testing.assert_close(ours(*scores), ours(1.0, 0.0, 0.0, 0.0))


def test_a_row_that_sees_nothing_is_zeros_in_allennlp_as_in_ours():
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    scores = torch.randn(1, 4)
    assert (allennlp(scores, nothing) == 0).all()
    assert (SoftmaxAlignment().normalize(scores, nothing) == 0).all()
    assert pointer_generator(scores, nothing).isnan().all()
    torch.testing.assert_close(neural_transducer(scores, nothing), torch.full((1, 4), 0.25))

"""Each emission against its formula."""

import pytest
import torch

from heedful.models.output_heads import MarginalHead, SoftmaxHead


def marginal():
    """An emission, features for every place, and weights of which some are nothing."""
    features = torch.randn(2, 3, 5, 4, dtype=torch.double)
    weights = torch.rand(2, 3, 5, dtype=torch.double)
    weights[..., 1] = 0
    weights[1, :, 3:] = 0
    return MarginalHead(4, 9).double(), features, weights / weights.sum(-1, keepdim=True)


def test_softmax_head_has_the_weights_as_posterior():
    output_head, weights = SoftmaxHead(4, 9), torch.rand(2, 3, 5)
    tokens = torch.zeros(2, 3, dtype=torch.long)
    assert output_head.alignment_posterior(torch.randn(2, 3, 4), weights, tokens) is weights
    assert not output_head.has_alignment_posterior


def test_marginal_head_mixes_the_softmaxes_of_all_positions():
    output_head, features, weights = marginal()
    expected = torch.zeros(2, 3, 9, dtype=torch.double)
    for place in range(5):
        said = output_head.projection(features[:, :, place]).softmax(dim=-1)
        expected += weights[:, :, place, None] * said
    log_probs = output_head(features, weights)
    torch.testing.assert_close(log_probs.exp(), expected)
    torch.testing.assert_close(expected.sum(-1), torch.ones(2, 3, dtype=torch.double))


def test_marginal_head_keeps_precision_for_unlikely_tokens():
    output_head, features, weights = marginal()
    with torch.no_grad():
        output_head.projection.weight.zero_()
        output_head.projection.bias.zero_()
        output_head.projection.bias[0] = 2000.0
    log_probs = output_head(features, weights)
    torch.testing.assert_close(log_probs[..., 1], torch.full((2, 3), -2000.0, dtype=torch.double))


def test_alignment_posterior_is_bayes_rule():
    output_head, features, weights = marginal()
    tokens = torch.randint(9, (2, 3))
    actual = output_head.alignment_posterior(features, weights, tokens)
    for row in range(2):
        for time in range(3):
            said = output_head.projection(features[row, time]).softmax(dim=-1)[:, tokens[row, time]]
            joint = weights[row, time] * said
            torch.testing.assert_close(actual[row, time], joint / joint.sum())
    assert (actual[weights == 0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float, torch.float16], ids=str)
def test_row_without_weight_returns_zeros_not_nan(dtype):
    output_head = MarginalHead(4, 9).to(dtype)
    features = torch.randn(2, 3, 5, 4, dtype=dtype)
    nothing = torch.zeros(2, 3, 5, dtype=dtype, requires_grad=True)
    actual = output_head.alignment_posterior(features, nothing, torch.zeros(2, 3, dtype=torch.long))
    log_probs = output_head(features, nothing)
    (actual.sum() + log_probs.sum()).backward()
    assert (actual == 0).all()
    assert not log_probs.isnan().any()
    assert (nothing.grad == 0).all()


def test_marginal_head_gradients_match_finite_differences():
    output_head, features, weights = marginal()
    tokens = torch.randint(9, (2, 3))
    seen = weights > 0
    inputs = (features.requires_grad_(), weights.requires_grad_(), *output_head.parameters())

    def say(features, weights, *_):
        # Nothing is kept at nothing: a finite difference would give it some weight.
        held = weights.masked_fill(~seen, 0)
        return output_head(features, held), output_head.alignment_posterior(features, held, tokens)

    assert torch.autograd.gradcheck(say, inputs)
    output_head(features, weights).sum().backward()
    assert weights.grad.isfinite().all()
    assert (weights.grad[~seen] == 0).all()


def test_nan_weights_return_nan():
    output_head, features, weights = marginal()
    weights[0, 0, 0] = float("nan")
    assert output_head(features, weights)[0, 0].isnan().all()
    actual = output_head.alignment_posterior(features, weights, torch.zeros(2, 3, dtype=torch.long))
    assert actual[0, 0].isnan().all()
    assert actual[0, 1:].isfinite().all()

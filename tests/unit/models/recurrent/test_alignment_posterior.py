"""The alignment posterior replaces the last weights once a token is known."""

import pytest
import torch

from heedful.attention.monotonic_alignment import MonotonicMarginalAlignmentConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig

PER_POSITION = {"readout": {"type": "per-position"}}
NO_FEEDING = {"type": "step-then-attend", "input_feeding": False}
MARGINAL = {"attention": PER_POSITION, "output_head": {"type": "marginal"}, "wiring": NO_FEEDING}


def decoder(alignment=None, settings=MARGINAL):
    """A small decoder; an alignment can replace softmax."""
    sizes = {"embedding_size": 3, "hidden_size": 4}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    if alignment is not None:
        attention = config.attention.model_copy(update={"alignment": alignment})
        config = config.model_copy(update={"attention": attention})
    return config.build(vocab_size=7, memory_size=5)


def source():
    return EncoderOutput(torch.randn(2, 3, 5), torch.tensor([3, 2]), torch.randn(2, 5))


def test_posterior_replaces_weights_once_token_is_known():
    model, tokens = decoder(MonotonicMarginalAlignmentConfig()), torch.tensor([4, 6])
    first = model.step(torch.tensor([1, 1]), model.initial_state(source()))
    features, weights = first.state.pending
    torch.testing.assert_close(
        weights, first.state.wiring.attention_state.last_weights.unsqueeze(1)
    )
    logits = model.output_head.projection(features.squeeze(1))
    token_probs = logits.softmax(dim=-1)[[0, 1], :, tokens]
    posterior = token_probs * weights[:, 0] / (token_probs * weights[:, 0]).sum(-1, keepdim=True)
    settled = first.state.wiring._replace(
        attention_state=first.state.wiring.attention_state._replace(last_weights=posterior)
    )
    expected = model.wiring(model.embedding(tokens), settled, first.state.memory)
    torch.testing.assert_close(model.step(tokens, first.state).weights, expected.weights[:, 0])


@pytest.mark.parametrize("settings", [{}, MARGINAL], ids=["vocabulary", "softmax"])
def test_no_pending_token_without_history(settings):
    model = decoder(settings=settings)
    state = model.step(torch.tensor([1, 1]), model.initial_state(source())).state
    assert state.pending is None


def test_posterior_uses_dropout_mask_of_prediction():
    model, tokens = (
        decoder(MonotonicMarginalAlignmentConfig(), {**MARGINAL, "dropout": 0.5}),
        [4, 6],
    )
    model.train()
    torch.manual_seed(5)
    first = model.step(torch.tensor([1, 1]), model.initial_state(source()))
    features, weights = first.state.pending
    logits = model.output_head.projection(features.squeeze(1))
    token_probs = (logits.softmax(dim=-1) * weights.mT).sum(dim=1)
    torch.testing.assert_close(first.log_probs.exp(), token_probs)
    settled = model.output_head.alignment_posterior(
        features, weights, torch.tensor(tokens)[:, None]
    )
    torch.manual_seed(6)
    second = model.step(torch.tensor(tokens), first.state)
    torch.manual_seed(6)
    past = first.state.wiring.attention_state._replace(last_weights=settled[:, 0])
    known = first.state._replace(
        wiring=first.state.wiring._replace(attention_state=past), pending=None
    )
    torch.testing.assert_close(second.weights, model.step(torch.tensor(tokens), known).weights)

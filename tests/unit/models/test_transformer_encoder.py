"""Transformer encoders: sets without places, sequences with them; padding is not there."""

from typing import Any

import pytest
import torch

from heedful.models.transformer import TransformerEncoderConfig

SIZE, VOCABULARY = 8, 11
PLACED: dict[str, dict[str, Any]] = {
    "sinusoidal": {"positional_encoding": {"type": "sinusoidal"}},
    "learned": {"positional_encoding": {"type": "learned"}},
    "rotary": {"score": "rotary"},
    "relative keys": {"score": "relative-key"},
    "relative buckets": {"score": "relative-position-bias"},
    "alibi": {"score": "alibi"},
}
FORMS = {
    "norms after": {},
    "norms before": {"norm_order": "pre"},
    "rms norms": {"norm": "rms", "embedding_norm": True},
    "gated": {"feed_forward": [{"intermediate_size": 12, "gated": True, "activation": "swish"}]},
    "experts": {"feed_forward": [{"type": "moe", "num_experts": 4, "intermediate_size": 6}]},
    **{score: {"score": score} for score in ("dot", "bilinear", "additive", "cosine")},
}
LENGTHS = torch.tensor([5, 1, 3])
SEEN = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, VOCABULARY, (3, 5), generator=torch.Generator().manual_seed(1)) * SEEN


def build(*, score="scaled-dot", **settings):
    torch.manual_seed(2)
    config = TransformerEncoderConfig.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": 2,
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": score}},
            "feed_forward": [{"intermediate_size": 12}],
            "positional_encoding": None,
            **settings,
        }
    )
    encoder = config.build(vocab_size=VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return encoder


WORDS = torch.tensor([[4, 9, 6, 7, 10, 6]])
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


def both_orders(encoder):
    """States of words, put into another order; and those of the words in that order."""
    lengths = torch.tensor([WORDS.size(1)])
    return encoder(WORDS, lengths).states[:, ORDER], encoder(WORDS[:, ORDER], lengths).states


@pytest.mark.parametrize("form", FORMS)
def test_states_are_permutation_equivariant_without_positions(form):
    torch.testing.assert_close(*both_orders(build(**FORMS[form])))


@pytest.mark.parametrize("how", PLACED)
def test_states_depend_on_positions(how):
    one, other = both_orders(build(**PLACED[how]))
    assert ((one - other).abs().amax(dim=-1) > 1e-3).all()


def test_summary_is_the_mean_of_the_states():
    encoded = build()(TOKENS, LENGTHS)
    expected = encoded.states.sum(dim=1) / LENGTHS.unsqueeze(1)
    torch.testing.assert_close(encoded.summary, expected)


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_has_a_finite_gradient(form):
    encoder = build(**FORMS[form], positional_encoding={"type": "learned"}, drop_path=0.2).train()
    encoded = encoder(TOKENS, LENGTHS)
    (encoded.states.sin().sum() + sum(encoded.auxiliary_losses.values())).backward()
    for name, weight in encoder.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name

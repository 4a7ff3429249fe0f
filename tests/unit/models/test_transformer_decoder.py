"""Transformer decoders: a source whose words change places, and what is refused."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.base import EncoderOutput
from heedful.models.transformer import TransformerDecoderConfig

SIZE, MEMORY, VOCABULARY = 8, 6, 11
TOKENS = torch.tensor([[2, 5, 9, 4], [2, 7, 7, 10]])
LENGTHS = torch.tensor([5, 3])


def build(memory_size=MEMORY, **settings):
    torch.manual_seed(2)
    config = TransformerDecoderConfig.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": 2,
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": 12}],
            **settings,
        }
    )
    decoder = config.build(vocab_size=VOCABULARY, memory_size=memory_size)
    return decoder.double().eval()


def source(states, keys=None):
    real = torch.arange(states.size(1)) < LENGTHS[:, None]
    summary = (states * real.unsqueeze(-1)).sum(dim=1) / LENGTHS.unsqueeze(1)
    return EncoderOutput(states, LENGTHS, summary, keys=keys)


def states():
    return torch.randn(2, 5, MEMORY, dtype=torch.double)


def moved(values):
    """The words of each row in another order, the padding where it was."""
    return torch.stack([values[0, [2, 4, 0, 1, 3]], values[1, [2, 0, 1, 3, 4]]])


def test_order_of_the_source_has_no_influence():
    decoder, told = build(), states()
    before, after = (
        decoder(TOKENS, source(values), need_weights=True) for values in (told, moved(told))
    )
    torch.testing.assert_close(after.log_probs, before.log_probs)
    torch.testing.assert_close(after.weights[0], before.weights[0][:, [2, 4, 0, 1, 3]])


@pytest.mark.parametrize("score", ["relative-position-bias", "alibi"])
def test_distance_scores_depend_on_the_order_of_the_source(score):
    looking = {"multi_head": {"num_heads": 2}, "score": {"type": score}}
    decoder, told = build(cross_attention=looking), states()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    before, after = decoder(TOKENS, source(told)), decoder(TOKENS, source(moved(told)))
    assert not torch.allclose(after.log_probs, before.log_probs, atol=1e-4)


def test_memory_may_have_keys_other_than_the_values():
    decoder, told, keys = build(), states(), states()
    apart = decoder(TOKENS, source(told, keys))
    swapped = decoder(TOKENS, source(keys, told))
    same = decoder(TOKENS, source(told, told))
    torch.testing.assert_close(same.log_probs, decoder(TOKENS, source(told)).log_probs)
    assert not torch.allclose(apart.log_probs, same.log_probs)
    assert not torch.allclose(apart.log_probs, swapped.log_probs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"output_head": {"type": "marginal"}},
            "decoder.output_head.type: 'marginal' needs a context per source position, but this "
            "decoder has one\n"
            "  choose 'softmax', or a recurrent decoder",
        ),
        (
            {"memory_size": SIZE, "cross_attention": {"readout": {"type": "per-position"}}},
            "decoder.cross_attention.readout.type: 'per-position' needs a context per source "
            "position, but this decoder has one\n"
            "  choose 'weighted-sum', or a recurrent decoder",
        ),
        (
            {"cross_attention": {"score": {"type": "additive"}}},
            "attention.multi_head: a single head returns contexts of the memory size 6, "
            "but 8 is needed\n"
            "  set multi_head, or make both sizes equal",
        ),
    ],
)
def test_settings_that_do_not_fit_raise(settings, message):
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    assert str(caught.value) == message

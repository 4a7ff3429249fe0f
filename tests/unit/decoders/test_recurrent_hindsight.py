"""When a decoder remembers what a token was said from, and which choices go together."""

import pytest
import torch

from heedful.attention import PerPosition
from heedful.attention.choices.monotonic import (
    ChunkwiseConfig,
    MonotonicConfig,
    MonotonicMarginalConfig,
)
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.decoders.emission import MarginalEmission
from heedful.errors import ConfigError
from heedful.layers.encoded import Encoded

PER_POSITION = {"read": {"kind": "per-position"}}
NO_FEEDING = {"kind": "step-then-attend", "input_feeding": False}
MARGINAL = {"attention": PER_POSITION, "emission": {"kind": "marginal"}, "wiring": NO_FEEDING}


def decoder(align=None, settings=MARGINAL):
    """A small decoder; an alignment of the test's own choosing takes the place of softmax."""
    sizes = {"embedding_size": 3, "hidden_size": 4}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    if align is not None:
        attention = config.attention.model_copy(update={"align": align})
        config = config.model_copy(update={"attention": attention})
    return config.build(vocabulary_size=7, memory_size=5)


def source():
    return Encoded(torch.randn(2, 3, 5), torch.tensor([3, 2]), torch.randn(2, 5))


def test_a_known_token_puts_the_posterior_in_place_of_where_was_looked():
    model, tokens = decoder(MonotonicMarginalConfig()), torch.tensor([4, 6])
    first = model.step(torch.tensor([1, 1]), model.start(source()))
    told, weights = first.state.unsettled
    torch.testing.assert_close(weights, first.state.wiring.past.last.unsqueeze(1))
    said = model.emission.projection(told).softmax(dim=-1)[[0, 1], :, tokens]
    belief = said * weights[:, 0] / (said * weights[:, 0]).sum(-1, keepdim=True)
    settled = first.state.wiring._replace(past=first.state.wiring.past._replace(last=belief))
    wanted = model.wiring(model.embedding(tokens), settled, first.state.memory)
    torch.testing.assert_close(model.step(tokens, first.state).weights, wanted.weights[:, 0])


@pytest.mark.parametrize("settings", [{}, MARGINAL], ids=["vocabulary", "softmax"])
def test_nothing_is_remembered_where_nobody_asks_for_it(settings):
    model = decoder(settings=settings)
    state = model.step(torch.tensor([1, 1]), model.start(source())).state
    assert state.unsettled is None


def test_a_marginal_decoder_is_built_where_its_parts_agree():
    assert isinstance(decoder().emission, MarginalEmission)
    assert isinstance(decoder().wiring.attention.read, PerPosition)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"emission": {"kind": "marginal"}},
            "attention.read.kind: the 'marginal' emission lets every place say a token, but the "
            "'expectation' readout gives it one context for all\n"
            "  choose the readout 'per-position', or the emission 'vocabulary'",
        ),
        (
            {"attention": PER_POSITION},
            "emission.kind: the 'per-position' readout keeps every place apart, but the "
            "'vocabulary' emission wants one context for all\n"
            "  choose the emission 'marginal', or the readout 'expectation'",
        ),
        (
            {**MARGINAL, "wiring": {"kind": "attend-then-step"}},
            "wiring.kind: under 'attend-then-step' the cell reads the context, but the readout "
            "keeps one for every place\n"
            "  choose 'step-then-attend' with `input_feeding: false`",
        ),
        (
            {**MARGINAL, "wiring": {"kind": "step-then-attend"}},
            "wiring.input_feeding: features cannot be fed back where the readout keeps them for "
            "every place\n"
            "  set it to false",
        ),
    ],
)
def test_parts_that_do_not_agree_are_named_with_a_remedy(settings, message):
    with pytest.raises(ConfigError) as caught:
        decoder(settings=settings)
    assert str(caught.value) == message


@pytest.mark.parametrize("align", [MonotonicConfig(), ChunkwiseConfig()], ids=lambda it: it.kind)
def test_a_marginal_refuses_weights_that_may_leak(align):
    with pytest.raises(ConfigError) as caught:
        decoder(align)
    assert str(caught.value) == (
        "attention.align.kind: the 'marginal' emission shares out its probability by the weights, "
        f"but those of '{align.kind}' may sum to less than one\n"
        "  choose 'monotonic-marginal' or 'softmax'"
    )

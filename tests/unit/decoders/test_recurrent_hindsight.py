"""When a decoder remembers what a token was said from."""

import pytest
import torch

from heedful.attention import PerPosition
from heedful.attention.choices.monotonic import MonotonicMarginalConfig
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.decoders.emission import MarginalEmission
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


def test_dropout_drops_the_same_from_what_is_said_and_from_its_hindsight():
    model, tokens = decoder(MonotonicMarginalConfig(), {**MARGINAL, "dropout": 0.5}), [4, 6]
    model.train()
    torch.manual_seed(5)
    first = model.step(torch.tensor([1, 1]), model.start(source()))
    told, weights = first.state.unsettled
    said = (model.emission.projection(told).softmax(dim=-1) * weights.mT).sum(dim=1)
    torch.testing.assert_close(first.log_probs.exp(), said)
    settled = model.emission.hindsight(told[:, None], weights, torch.tensor(tokens)[:, None])
    torch.manual_seed(6)
    second = model.step(torch.tensor(tokens), first.state)
    torch.manual_seed(6)
    past = first.state.wiring.past._replace(last=settled[:, 0])
    known = first.state._replace(wiring=first.state.wiring._replace(past=past), unsettled=None)
    torch.testing.assert_close(second.weights, model.step(torch.tensor(tokens), known).weights)

"""Each wiring against its paper's equations, step by step."""

import pytest
import torch

from heedful.attention import padding
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.choices.content import BilinearScoreConfig
from heedful.attention.choices.heads import HeadsConfig
from heedful.decoders.config import (
    AttendThenStepConfig,
    RecurrentDecoderConfig,
    StepThenAttendConfig,
)

MEMORY, HIDDEN, EMBEDDED = 6, 4, 3
each_number_of_heads = pytest.mark.parametrize("heads", [None, HeadsConfig(num_heads=2)], ids=str)


def make(wiring, heads=None):
    config = RecurrentDecoderConfig(
        embedding_size=EMBEDDED,
        hidden_size=HIDDEN,
        wiring=wiring,
        attention=AttentionConfig(score=BilinearScoreConfig(), heads=heads),
    )
    built = wiring.build(config, memory_size=MEMORY)
    mask = padding(torch.tensor([3, 2]), 3)
    return built, built.attention.remember(torch.randn(2, 3, MEMORY), mask)


@each_number_of_heads
def test_attend_then_step_asks_with_the_state_that_was(heads):
    wiring, memory = make(AttendThenStepConfig(), heads)
    before, token = torch.randn(2, HIDDEN), torch.randn(2, EMBEDDED)
    wired = wiring(token, wiring.begin([before], memory), memory)
    context, weights, *_ = wiring.attention(before[:, None], memory)
    torch.testing.assert_close(wired.weights, weights)
    read = torch.cat([token, context[:, 0]], -1)
    (after,) = wiring.cells.cells[0](read, (before,))
    torch.testing.assert_close(wired.state.cells[0][0], after)
    told = torch.cat([after, context[:, 0], token], -1)
    features = wiring.tell(wired.told[:, None])[:, 0]
    torch.testing.assert_close(features, wiring.combine(told).tanh())


@each_number_of_heads
def test_step_then_attend_asks_with_the_state_that_is(heads):
    wiring, memory = make(StepThenAttendConfig(input_feeding=False), heads)
    before, token = torch.randn(2, HIDDEN), torch.randn(2, EMBEDDED)
    wired = wiring(token, wiring.begin([before], memory), memory)
    (after,) = wiring.cells.cells[0](token, (before,))
    context, weights, *_ = wiring.attention(after[:, None], memory)
    torch.testing.assert_close(wired.weights, weights)
    wanted = wiring.combine(torch.cat([context[:, 0], after], -1)).tanh()
    torch.testing.assert_close(wiring.tell(wired.told[:, None])[:, 0], wanted)
    assert wired.state.feed is None


def test_input_feeding_gives_the_last_features_with_the_next_token():
    wiring, memory = make(StepThenAttendConfig())
    state = wiring.begin([torch.randn(2, HIDDEN)], memory)
    token = torch.randn(2, EMBEDDED)
    assert (state.feed == 0).all()
    first = wiring(token, state, memory)
    assert first.state.feed is first.told
    second = wiring(token, first.state, memory)
    read = torch.cat([token, first.told], -1)
    (after,) = wiring.cells.cells[0](read, first.state.cells[0])
    torch.testing.assert_close(second.state.cells[0][0], after)


@pytest.mark.parametrize("wiring", [AttendThenStepConfig(), StepThenAttendConfig()], ids=str)
@each_number_of_heads
def test_the_past_is_carried_with_the_state(wiring, heads):
    built, memory = make(wiring, heads)
    state, token = built.begin([torch.randn(2, HIDDEN)], memory), torch.randn(2, EMBEDDED)
    first = built(token, state, memory)
    second = built(token, first.state, memory)
    assert (second.state.past.asked == 2).all()
    looked = [wired.aligned.weights[..., 0, :] for wired in (first, second)]
    torch.testing.assert_close(second.state.past.total, sum(looked))

"""One place at a time: the fast form of common Transformer layers is the plain one."""

from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import pytest
import torch

from heedful.acceleration.packed_weights import assume_constant_parameters
from heedful.acceleration.transformer import PackedLayers
from heedful.inspection.attention_trace import trace_attention
from heedful.models.backbones import TransformerBackboneConfig
from heedful.models.base import EncoderOutput
from heedful.models.transformer import TransformerDecoderConfig
from heedful.pytree import select_rows, tensors_of
from tests.unit.acceleration.usual_layers import DEFAULT_METRICS, OTHERS

ROWS, SIZE, STEPS = 3, 8, 4
LENGTHS = torch.tensor([5, 2, 4])


class Case(NamedTuple):
    decoder: object
    state: object

    @property
    def stack(self):
        return self.decoder.stack


def make(settings):
    torch.manual_seed(1)
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2, "dropout": 0.3}
        | {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
        | settings
    )
    decoder = config.build(vocab_size=11, memory_size=SIZE).double().eval()
    for weight in decoder.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    states = torch.randn(ROWS, 5, SIZE, dtype=torch.double)
    return Case(decoder, decoder.initial_state(EncoderOutput(states, LENGTHS, states[:, 0])))


@contextmanager
def counted(monkeypatch):
    """Count the places that the fast form reads."""
    calls = []
    read = PackedLayers.step

    def counting(*arguments, **named):
        calls.append(0)
        return read(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(PackedLayers, "step", counting)
        yield calls


def run(decoder, state, tokens, *, fast):
    said = []
    for column in tokens.T:
        with torch.set_grad_enabled(not fast[len(said)]), assume_constant_parameters():
            step = decoder.step(column, state)
        state = step.state
        said.append((step.log_probs.detach(), step.weights.detach()))
    return said, [leaf.detach() for leaf in tensors_of(state)]


TOKENS = torch.randint(4, 11, (ROWS, STEPS), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("settings", DEFAULT_METRICS, ids=str)
@pytest.mark.parametrize("fast", [[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 1]], ids=str)
def test_outputs_weights_and_states_are_those_of_the_layers(settings, fast, monkeypatch):
    case = make(settings)
    wanted = run(*case, TOKENS, fast=[0] * STEPS)
    with counted(monkeypatch) as calls:
        found = run(*case, TOKENS, fast=fast)
    assert len(calls) == sum(fast)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_layers_of_other_kinds_keep_their_own_form(settings, monkeypatch):
    case = make(settings)
    with counted(monkeypatch) as calls:
        found = run(*case, TOKENS, fast=[1] * STEPS)
    assert not calls
    torch.testing.assert_close(found, run(*case, TOKENS, fast=[0] * STEPS))


def test_a_reader_reads_on_as_it_would_have(monkeypatch):
    torch.manual_seed(1)
    config = TransformerBackboneConfig(
        hidden_size=SIZE,
        num_layers=2,
        attention={"score": {"type": "dot"}, "multi_head": {"num_heads": 2}},
    )
    reader = config.build(input_size=SIZE).double().eval()
    inputs = torch.randn(ROWS, STEPS, SIZE, dtype=torch.double)
    whole = reader(
        inputs, torch.full((ROWS,), STEPS), reader.initial_state(inputs), need_weights=True
    )
    state = reader.initial_state(inputs)
    with counted(monkeypatch) as calls, torch.no_grad(), assume_constant_parameters():
        for place in range(STEPS):
            one = inputs[:, place : place + 1]
            read = reader(one, torch.ones(ROWS, dtype=torch.long), state, need_weights=True)
            state = read.state
            torch.testing.assert_close(read.outputs[:, 0], whole.outputs[:, place].detach())
            seen = whole.weights[:, place, : place + 1].detach()
            torch.testing.assert_close(read.weights[:, 0], seen)
    assert len(calls) == STEPS


@pytest.mark.parametrize("why", ["grad", "training", "several places", "a trace", "no rest"])
def test_whoever_learns_reads_more_or_is_watched_gets_the_plain_form(why, monkeypatch):
    case = make({})
    case.decoder.train(why == "training")
    tokens = TOKENS[:, :2] if why == "several places" else TOKENS[:, :1]
    rest = nullcontext() if why == "no rest" else assume_constant_parameters()
    with counted(monkeypatch) as calls, torch.set_grad_enabled(why == "grad"), rest:
        if why == "a trace":
            with trace_attention(case.decoder) as records:
                case.decoder.step(tokens[:, 0], case.state)
            assert records
        else:
            case.decoder._forward(tokens, case.state, need_weights=False)
    assert not calls


def test_rows_of_unlike_length_get_the_plain_form(monkeypatch):
    case = make({})
    with counted(monkeypatch) as calls, torch.no_grad(), assume_constant_parameters():
        written = case.state.stack_state._replace(start_positions=torch.tensor([0, 1, 0]))
        case.decoder.step(TOKENS[:, 0], case.state._replace(stack_state=written))
    assert not calls


def test_states_are_selected_like_any_other():
    case = make({})
    rows = torch.tensor([2, 0])
    with torch.no_grad(), assume_constant_parameters():
        first = case.decoder.step(TOKENS[:, 0], case.state).state
        all_rows = case.decoder.step(TOKENS[:, 1], first)
        some = case.decoder.step(TOKENS[rows, 1], select_rows(first, rows))
    torch.testing.assert_close(some.log_probs, all_rows.log_probs[rows])

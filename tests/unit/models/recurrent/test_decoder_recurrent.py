"""Whole decoders: every wiring with every output, told known tokens and its own."""

from itertools import product

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.decoder import RecurrentDecoderConfig, WiringConfig
from heedful.models.recurrent.pre_output import PreOutputConfig

MEMORY, VOCABULARY = 6, 9
WIRINGS = [type_of(each) for each in types_in(WiringConfig)]
OUTPUTS = [type_of(each) for each in types_in(PreOutputConfig)]
COMBINATIONS = [pair for pair in product(WIRINGS, OUTPUTS) if pair != ("step-then-attend", "none")]
REQUIRED = {"deep-fusion": {"cell": "lstmn", "hidden_size": MEMORY}}  # beyond the defaults
each_combination = pytest.mark.parametrize(("wiring", "output"), COMBINATIONS)


def build(wiring="attend-then-step", output="tanh", **settings):
    """A small decoder, with weights large enough to make its outputs differ."""
    config = RecurrentDecoderConfig.model_validate(
        {
            "embedding_size": 3,
            "hidden_size": 4,
            "num_layers": 2,
            "wiring": {"type": wiring},
            "pre_output": {"type": output},
            **REQUIRED.get(wiring, {}),
            **settings,
        }
    )
    decoder = config.build(
        vocab_size=VOCABULARY,
        memory_size=MEMORY,
        encoder_sizes=EncoderStateSizes((4, 4), backward_size=3),
    )
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(2)
    return decoder.double().eval()


def source(*lengths):
    rows, double = len(lengths), {"dtype": torch.double}
    ends = tuple(torch.randn(rows, 4, **double) for _ in range(2))
    states, memories = (torch.randn(rows, max(lengths), MEMORY, **double) for _ in range(2))
    summary = torch.randn(rows, MEMORY, **double)
    return EncoderOutput(states, torch.tensor(lengths), summary, ends, memories)


@each_combination
def test_step_by_step_is_the_whole_sequence(wiring, output):
    decoder, encoded = build(wiring, output), source(4, 2)
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    whole, state = decoder(tokens, encoded), decoder.initial_state(encoded)
    for time, column in enumerate(tokens.unbind(dim=1)):
        step = decoder.step(column, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, whole.log_probs[:, time])
        torch.testing.assert_close(step.weights, whole.weights[:, time])


@each_combination
def test_every_weight_of_every_part_learns(wiring, output):
    decoder = build(wiring, output)
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    decoder(tokens, source(4, 3)).log_probs.square().sum().backward()
    still = [name for name, weight in decoder.named_parameters() if not weight.grad.abs().sum()]
    assert still == []


@pytest.mark.parametrize("wiring", WIRINGS)
def test_padding_has_no_influence(wiring):
    decoder, encoded = build(wiring), source(4, 2)
    more = torch.zeros(2, 3, MEMORY).double()
    loose = encoded._replace(
        states=torch.cat([encoded.states, more], dim=1),
        cell_states=torch.cat([encoded.cell_states, more], dim=1),
    )
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    narrow, wide = decoder(tokens, encoded), decoder(tokens, loose)
    torch.testing.assert_close(wide.log_probs, narrow.log_probs)
    torch.testing.assert_close(wide.weights[..., :4], narrow.weights)
    assert (wide.weights[..., 4:] == 0).all()


@pytest.mark.parametrize(
    "wiring", ["attend-then-step", "step-then-attend", "bottom-layer-attention"]
)
@pytest.mark.parametrize("score", ["scaled-dot", "additive", "bilinear"])
def test_several_heads_ask_within_a_recurrent_decoder(wiring, score):
    attention = {"score": {"type": score}, "multi_head": {"num_heads": 3}}
    decoder, encoded = build(wiring, attention=attention), source(4, 2)
    found = decoder(torch.randint(3, VOCABULARY, (2, 5)), encoded)
    (look,) = found.attention_records
    assert look.alignment.weights.shape == (2, 3, 5, 4)
    torch.testing.assert_close(found.weights, look.alignment.weights.mean(dim=1))


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_residual_layer_shows_what_it_made_and_what_it_read(wiring):
    decoder, encoded = build(wiring, first_residual_layer=2), source(4, 2)
    state = decoder.step(torch.tensor([3, 5]), decoder.initial_state(encoded)).state
    (bottom, *_), (shown, made, *_) = state.wiring.cells
    torch.testing.assert_close(shown, made + bottom)


@each_combination
def test_teacher_forcing_leaves_random_state_unchanged(wiring, output):
    decoder, encoded = build(wiring, output), source(4, 2)
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    before = torch.get_rng_state()
    first = decoder(tokens, encoded)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(first[:2], decoder(tokens, encoded)[:2], rtol=0, atol=0)


def test_no_gradient_passes_through_the_decoders_own_choice():
    """It is that of reading the very same tokens as known ones."""
    decoder, encoded = build(), source(4, 2)
    known = torch.randint(3, VOCABULARY, (2, 5))
    found = decoder.forward_scheduled_sampling(known, encoded, 0.0, "argmax").log_probs
    said = torch.cat([known[:, :1], found.argmax(-1)[:, :-1]], dim=1)
    same = decoder(said, encoded).log_probs
    torch.testing.assert_close(found, same)
    weights = list(decoder.parameters())
    ours, theirs = (torch.autograd.grad(each[..., 4].sum(), weights) for each in (found, same))
    torch.testing.assert_close(ours, theirs)


def taken(decoder, known, encoded, share, token_choice="sample"):
    """The tokens that a decoder reads."""
    read = []
    handle = decoder.embedding.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    decoder.forward_scheduled_sampling(known, encoded, share, token_choice)
    handle.remove()
    return torch.stack(read, dim=1)


def test_the_first_token_is_always_known_and_others_with_the_teachers_share():
    """Known tokens are 0, which the decoder itself never says."""
    decoder, rows, times, share = build(), 400, 6, 0.3
    with torch.no_grad():
        decoder.output_head.projection.bias[0] = -1e9
    encoded = source(*[3] * rows)
    read = taken(decoder, torch.zeros(rows, times, dtype=torch.long), encoded, share)
    assert (read[:, 0] == 0).all()
    told = (read[:, 1:] == 0).double()
    error = (share * (1 - share) / told.numel()) ** 0.5
    assert abs(told.mean().item() - share) < 5 * error
    mixed = (told.sum(1) > 0) & (told.sum(1) < times - 1)
    assert mixed.any(), "each row and step decides for itself"


def test_own_tokens_are_drawn_as_likely_as_the_decoder_finds_them():
    decoder, rows = build(), 4000
    one = source(3)
    encoded = EncoderOutput(*(part.expand(rows, *part.shape[1:]) for part in one[:3]))
    known = torch.full((rows, 2), 3)
    likely = decoder(known[:1], one).log_probs[0, 0].exp()
    read = taken(decoder, known, encoded, 0.0)[:, 1]
    counts = torch.bincount(read, minlength=VOCABULARY) / rows
    errors = (likely * (1 - likely) / rows).sqrt()
    assert ((counts - likely).abs() < 5 * errors + 1e-9).all()


def test_nan_reaches_the_loss_and_ends_no_process():
    decoder, encoded = build(), source(4, 2)
    broken = encoded._replace(states=encoded.states * float("nan"))
    tokens = torch.randint(3, VOCABULARY, (2, 3))
    found = decoder.forward_scheduled_sampling(tokens, broken, 0.0, "sample")
    assert found.log_probs.isnan().all()

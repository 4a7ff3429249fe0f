"""Recurrent decoders: every wiring with every pre-output layer, and scheduled sampling."""

from itertools import product

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.config import RecurrentDecoderConfig, WiringConfig
from heedful.models.recurrent.decoder_parts import PreOutputConfig
from heedful.models.scheduled_sampling import InputSampler

MEMORY, VOCABULARY = 6, 9
WIRINGS = [type_of(each) for each in types_in(WiringConfig)]
OUTPUTS = [type_of(each) for each in types_in(PreOutputConfig)]
UNUSED_CONTEXT = {("step-then-attend", "state-only"), ("adaptive", "state-only")}
COMBINATIONS = [pair for pair in product(WIRINGS, OUTPUTS) if pair not in UNUSED_CONTEXT]
REQUIRED = {  # beyond the defaults
    "deep-fusion": {"cell": "lstmn", "hidden_size": MEMORY},
    "sum": {"hidden_size": MEMORY},
}
each_combination = pytest.mark.parametrize(("wiring", "output"), COMBINATIONS)


def build(wiring="attend-then-step", output="tanh", **settings):
    """A small decoder with parameters large enough to make its outputs differ."""
    config = RecurrentDecoderConfig.model_validate(
        {
            "embedding_size": 3,
            "hidden_size": 4,
            "num_layers": 2,
            "wiring": {"type": wiring},
            "pre_output": {"type": output},
            **REQUIRED.get(wiring, {}),
            **REQUIRED.get(output, {}),
            **settings,
        }
    )
    decoder = config.build(
        vocab_size=VOCABULARY,
        memory_size=MEMORY,
        encoder_sizes=EncoderStateSizes((4, 4), backward_size=3, has_cell_states=True),
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
def test_every_parameter_gets_gradient(wiring, output):
    decoder = build(wiring, output)
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    decoder(tokens, source(4, 3)).log_probs.square().sum().backward()
    without_gradient = [
        name for name, weight in decoder.named_parameters() if not weight.grad.abs().sum()
    ]
    assert without_gradient == []


@pytest.mark.parametrize(
    "wiring", ["attend-then-step", "step-then-attend", "bottom-layer-attention"]
)
@pytest.mark.parametrize("score", ["scaled-dot", "additive", "bilinear"])
def test_recurrent_decoder_supports_multi_head_attention(wiring, score):
    attention = {"score": {"type": score}, "multi_head": {"num_heads": 3}}
    decoder, encoded = build(wiring, attention=attention), source(4, 2)
    output = decoder(torch.randint(3, VOCABULARY, (2, 5)), encoded)
    ((_, alignment),) = output.attention_records
    assert alignment.weights.shape == (2, 3, 5, 4)
    torch.testing.assert_close(output.weights, alignment.weights.mean(dim=1))


@pytest.mark.parametrize("wiring", WIRINGS)
def test_residual_layer_adds_input(wiring):
    decoder, encoded = build(wiring, first_residual_layer=2), source(4, 2)
    state = decoder.step(torch.tensor([3, 5]), decoder.initial_state(encoded)).state
    (bottom, *_), (output_of_layer, cell_output, *_) = state.wiring.cells
    torch.testing.assert_close(output_of_layer, cell_output + bottom)


@each_combination
def test_teacher_forcing_leaves_random_state_unchanged(wiring, output):
    decoder, encoded = build(wiring, output), source(4, 2)
    tokens = torch.randint(3, VOCABULARY, (2, 5))
    before = torch.get_rng_state()
    first = decoder(tokens, encoded)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(first[:2], decoder(tokens, encoded)[:2], rtol=0, atol=0)


def test_scheduled_sampling_passes_no_gradient_through_choice():
    """It is that of reading the very same tokens as known ones."""
    decoder, encoded = build(), source(4, 2)
    gold_tokens = torch.randint(3, VOCABULARY, (2, 5))
    output = decoder.forward_scheduled_sampling(
        gold_tokens, encoded, InputSampler(0.0, "argmax")
    ).log_probs
    own_tokens = torch.cat([gold_tokens[:, :1], output.argmax(-1)[:, :-1]], dim=1)
    teacher_forced = decoder(own_tokens, encoded).log_probs
    torch.testing.assert_close(output, teacher_forced)
    weights = list(decoder.parameters())
    ours, theirs = (
        torch.autograd.grad(each[..., 4].sum(), weights) for each in (output, teacher_forced)
    )
    torch.testing.assert_close(ours, theirs)


def input_tokens_of(decoder, gold_tokens, encoded, ratio, token_choice="sample"):
    """The tokens that a decoder reads."""
    input_tokens = []
    handle = decoder.embedding.register_forward_pre_hook(
        lambda _, inputs: input_tokens.append(inputs[0])
    )
    decoder.forward_scheduled_sampling(gold_tokens, encoded, InputSampler(ratio, token_choice))
    handle.remove()
    return torch.stack(input_tokens, dim=1)


def test_first_token_is_gold_and_others_with_teacher_forcing_ratio():
    """Known tokens are 0, which the decoder itself never says."""
    decoder, rows, times, ratio = build(), 400, 6, 0.3
    with torch.no_grad():
        decoder.output_head.projection.bias[0] = -1e9
    encoded = source(*[3] * rows)
    input_tokens = input_tokens_of(
        decoder, torch.zeros(rows, times, dtype=torch.long), encoded, ratio
    )
    assert (input_tokens[:, 0] == 0).all()
    is_gold = (input_tokens[:, 1:] == 0).double()
    error = (ratio * (1 - ratio) / is_gold.numel()) ** 0.5
    assert abs(is_gold.mean().item() - ratio) < 5 * error
    mixed = (is_gold.sum(1) > 0) & (is_gold.sum(1) < times - 1)
    assert mixed.any(), "each row and step decides for itself"


def test_own_tokens_follow_model_distribution():
    decoder, rows = build(), 4000
    one = source(3)
    encoded = EncoderOutput(*(part.expand(rows, *part.shape[1:]) for part in one[:3]))
    gold_tokens = torch.full((rows, 2), 3)
    likely = decoder(gold_tokens[:1], one).log_probs[0, 0].exp()
    input_tokens = input_tokens_of(decoder, gold_tokens, encoded, 0.0)[:, 1]
    counts = torch.bincount(input_tokens, minlength=VOCABULARY) / rows
    errors = (likely * (1 - likely) / rows).sqrt()
    assert ((counts - likely).abs() < 5 * errors + 1e-9).all()


def test_nan_reaches_log_probs_in_scheduled_sampling():
    decoder, encoded = build(), source(4, 2)
    broken = encoded._replace(states=encoded.states * float("nan"))
    tokens = torch.randint(3, VOCABULARY, (2, 3))
    output = decoder.forward_scheduled_sampling(tokens, broken, InputSampler(0.0, "sample"))
    assert output.log_probs.isnan().all()

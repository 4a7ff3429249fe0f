"""Experts between the layers of a recurrent decoder."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.models.scheduled_sampling import InputSampler

EXPERTS = {"num_experts": 4, "num_experts_per_token": 2, "intermediate_size": 5}
BALANCED = EXPERTS | {"gating": "strictly-balanced"}
GNMT = {"type": "bottom-layer-attention"}
TOKENS = torch.tensor([[1, 5, 6, 7, 8], [1, 4, 3, 0, 0]])
NUM_REAL = 8


def decoder(wiring=GNMT, **settings):
    options = {"embedding_size": 3, "hidden_size": 4, "num_layers": 2, "experts": EXPERTS}
    config = RecurrentDecoderConfig.model_validate({**options, "wiring": wiring, **settings})
    return config.build(vocab_size=9, memory_size=6).double()


def source():
    return EncoderOutput(torch.randn(2, 4, 6, dtype=torch.double), torch.tensor([4, 2]))


def experts_of(built):
    (experts,) = (module for module in built.modules() if isinstance(module, MixtureOfExperts))
    torch.nn.init.normal_(experts.gate.score.weight)
    return experts


def test_decoder_layer_input_is_sum_of_output_below_and_sigmoid_of_experts():
    built, encoded = decoder().eval(), source()
    experts, (bottom, top) = experts_of(built), built.wiring.cells.cells
    actual = built(TOKENS, encoded)
    state, top_outputs = built.initial_state(encoded), []
    (lower,), (upper,) = state.wiring.cells
    attention = built.wiring.attention
    for tokens in TOKENS.unbind(1):
        context = attention(lower.unsqueeze(1), state.memory).context.squeeze(1)
        (lower,) = bottom(torch.cat([built.embedding(tokens), context], -1), (lower,))
        everything = torch.ones(2, 1, dtype=torch.bool)
        added = experts(lower.unsqueeze(1), everything).outputs.squeeze(1).sigmoid()
        (upper,) = top(torch.cat([lower + added, context], -1), (upper,))
        top_outputs.append(torch.cat([context, upper], -1))
    features = built.wiring.pre_output(torch.stack(top_outputs, 1))
    torch.testing.assert_close(actual.log_probs, built.output_head(features, actual.weights))


def test_expert_losses_are_those_of_real_tokens_of_all_steps():
    built = decoder({"type": "final-state"}, experts=BALANCED).train()
    experts, encoded = experts_of(built), source()
    (lower,), _ = built.initial_state(encoded).wiring.cells
    outputs = []
    for tokens in TOKENS.unbind(1):
        (lower,) = built.wiring.cells.cells[0](built.embedding(tokens), (lower,))
        outputs.append(lower)
    expected = experts(torch.stack(outputs, 1), TOKENS != 0).auxiliary_losses
    actual = dict(built(TOKENS, encoded).auxiliary_losses)
    assert set(actual) == {"expert-importance", "expert-load", "expert-threshold"}
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "wiring", ["bottom-layer-attention", "step-then-attend", "final-state", "constant-context"]
)
def test_strictly_balanced_experts_share_tokens_of_all_steps_in_training(wiring):
    is_step_first = wiring == "step-then-attend"
    feeding = {"input_feeding": False} if is_step_first else {}
    built = decoder({"type": wiring, **feeding}, experts=BALANCED).train()
    loads = []
    experts_of(built).register_forward_hook(lambda *call: loads.append(call[-1]))
    output = built(TOKENS, source())
    (routed,) = loads  # one call for all steps
    assert int(routed.num_routed) == NUM_REAL * 2  # two per token on average, none for padding
    assert routed.expert_load.tolist() == [1 / 4] * 4
    assert "expert-threshold" in output.auxiliary_losses


@pytest.mark.parametrize(("after_layers", "expected"), [(None, ["1", "2"]), ([2], ["2"])])
def test_experts_follow_decoder_layers_but_never_the_top(after_layers, expected):
    built = decoder(num_layers=3, experts=EXPERTS | {"after_layers": after_layers})
    assert list(built.wiring.cells.experts) == expected


@pytest.mark.parametrize("wiring", ["attend-then-step", "step-then-attend"])
def test_wiring_that_feeds_back_cannot_have_experts(wiring):
    message = f"wiring '{wiring}' uses the output of experts in the next step"
    with pytest.raises(ConfigError, match=message):
        decoder({"type": wiring})


@pytest.mark.parametrize(
    ("experts", "minimum"), [(EXPERTS, 2), (EXPERTS | {"after_layers": [3]}, 4)]
)
def test_experts_need_layers_on_both_sides(experts, minimum):
    with pytest.raises(ConfigError, match=f"needs num_layers of {minimum} or more"):
        decoder(num_layers=minimum - 1, experts=experts)


def test_experts_cannot_be_trained_with_scheduled_sampling():
    built, sampler = decoder(), InputSampler(0.5, "argmax")
    with pytest.raises(ConfigError, match="experts of this decoder balance whole sequences"):
        built.train().forward_scheduled_sampling(TOKENS, source(), sampler)
    built.eval().forward_scheduled_sampling(TOKENS, source(), sampler)


def test_trace_records_attention_below_experts():
    built = decoder().eval()
    with trace_attention(built) as records:
        built(TOKENS, source())
    assert {(record.module_path, record.role) for record in records} == {
        ("wiring.attention", "cross")
    }

"""Which choices of a decoder are refused together, and what is said of it."""

import pytest

from heedful.attention.monotonic_alignment import (
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
)
from heedful.errors import ConfigError
from heedful.models.recurrent.decoder import RecurrentDecoderConfig

UNFED = {"type": "step-then-attend", "input_feeding": False}
PER_POSITION = {"readout": {"type": "per-position"}}
MARGINAL = {"attention": PER_POSITION, "output_head": {"type": "marginal"}, "wiring": UNFED}


def message(config):
    with pytest.raises(ConfigError) as caught:
        config.build(vocab_size=7, memory_size=5)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (
            {"output_head": {"type": "marginal"}},
            "attention.readout.type: the 'marginal' emission lets every place say a token, but the "
            "'expectation' readout gives it one context for all\n"
            "  choose the readout 'per-position', or the emission 'vocabulary'",
        ),
        (
            {"attention": PER_POSITION},
            "output_head.type: the 'per-position' readout keeps every place apart, but the "
            "'vocabulary' emission wants one context for all\n"
            "  choose the emission 'marginal', or the readout 'expectation'",
        ),
        (
            {**MARGINAL, "wiring": {"type": "attend-then-step"}},
            "wiring.type: under 'attend-then-step' the cell reads the context, but the readout "
            "keeps one for every place\n"
            "  choose 'step-then-attend' with `input_feeding: false`",
        ),
        (
            {**MARGINAL, "wiring": {"type": "bottom-layer-attention"}},
            "wiring.type: under 'bottom-asks' the cell reads the context, but the readout "
            "keeps one for every place\n"
            "  choose 'step-then-attend' with `input_feeding: false`",
        ),
        (
            {**MARGINAL, "wiring": {"type": "step-then-attend"}},
            "wiring.input_feeding: features cannot be fed back where the readout keeps them for "
            "every place\n"
            "  set it to false",
        ),
        (
            {"wiring": UNFED, "pre_output": {"type": "state-only"}},
            "pre_output.type: under 'step-then-attend' the output alone hears the context, but 'none' "
            "leaves it out\n"
            "  choose 'tanh', 'maxout' or 'plain', or another wiring",
        ),
        (
            {"wiring": {"type": "final-state"}, "attention": {"score": {"type": "dot"}}},
            "attention: under 'final-state' nothing is asked, so these settings would have no "
            "effect\n"
            "  leave the section out, or choose another wiring, such as 'attend-then-step'",
        ),
        (
            {"wiring": {"type": "constant-context"}, "output_head": {"type": "marginal"}},
            "output_head.type: the 'marginal' emission goes by where was looked, but under "
            "'constant-context' nothing is looked at\n"
            "  choose 'vocabulary', or another wiring, such as 'step-then-attend'",
        ),
        (
            {"wiring": {"type": "final-state"}, "bridge": {"type": "zeros"}},
            "bridge.type: under 'final-state' the first state is all that is known of the source, "
            "but 'zeros' leaves it empty\n"
            "  choose another bridge, such as 'tanh', or another wiring",
        ),
        (
            {"num_layers": 2, "first_residual_layer": 3},
            "residual_from: there is no layer 3: num_layers is 2\n"
            "  name a layer from 2 up to the last, or leave it out",
        ),
    ],
)
def test_choices_that_make_no_sense_together_are_named_with_a_remedy(settings, wanted):
    assert message(RecurrentDecoderConfig.model_validate(settings)) == wanted


@pytest.mark.parametrize(
    "align",
    [MonotonicAlignmentConfig(), MonotonicChunkwiseAlignmentConfig()],
    ids=lambda it: it.type,
)
def test_a_marginal_refuses_weights_that_may_leak(align):
    config = RecurrentDecoderConfig.model_validate(MARGINAL)
    attention = config.attention.model_copy(update={"alignment": align})
    assert message(config.model_copy(update={"attention": attention})) == (
        "attention.alignment.type: the 'marginal' emission shares out its probability by the weights, "
        f"but those of '{align.type}' may sum to less than one\n"
        "  choose 'monotonic-marginal' or 'softmax'"
    )


def test_settings_of_attention_that_are_the_defaults_are_no_settings():
    """A configuration that was saved whole says all of them, and is read again."""
    config = RecurrentDecoderConfig.model_validate({"wiring": {"type": "final-state"}})
    again = RecurrentDecoderConfig.model_validate(config.model_dump())
    assert again == config
    again.build(vocab_size=7, memory_size=5)

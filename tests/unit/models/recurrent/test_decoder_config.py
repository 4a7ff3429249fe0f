"""Settings of a recurrent decoder that do not work together, and their messages."""

import pytest

from heedful.attention.monotonic_alignment import (
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
)
from heedful.errors import ConfigError
from heedful.models.recurrent.config import RecurrentDecoderConfig

NO_INPUT_FEEDING = {"type": "step-then-attend", "input_feeding": False}
PER_POSITION = {"readout": {"type": "per-position"}}
MARGINAL = {
    "attention": PER_POSITION,
    "output_head": {"type": "marginal"},
    "wiring": NO_INPUT_FEEDING,
}


def message(config):
    with pytest.raises(ConfigError) as caught:
        config.build(vocab_size=7, memory_size=5)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"output_head": {"type": "marginal"}},
            "attention.readout.type: output head 'marginal' needs a context per source position, "
            "not 'weighted-sum'\n"
            "  choose the readout 'per-position', or the output head 'softmax'",
        ),
        (
            {"attention": PER_POSITION},
            "output_head.type: 'softmax' needs a single context, but readout 'per-position' has "
            "one per position\n"
            "  choose the output head 'marginal', or the readout 'weighted-sum'",
        ),
        (
            {**MARGINAL, "wiring": {"type": "attend-then-step"}},
            "wiring.type: its cell reads a single context, but readout 'per-position' has one per "
            "position\n"
            "  choose 'step-then-attend' with `input_feeding: false`",
        ),
        (
            {**MARGINAL, "wiring": {"type": "bottom-layer-attention"}},
            "wiring.type: its cell reads a single context, but readout 'per-position' has one per "
            "position\n"
            "  choose 'step-then-attend' with `input_feeding: false`",
        ),
        (
            {**MARGINAL, "wiring": {"type": "step-then-attend"}},
            "wiring.input_feeding: readout 'per-position' gives features per position, "
            "which cannot be fed back\n"
            "  set it to false",
        ),
        (
            {"wiring": NO_INPUT_FEEDING, "pre_output": {"type": "state-only"}},
            "pre_output.type: 'state-only' leaves out the context, which this wiring uses nowhere "
            "else\n"
            "  choose 'tanh', 'maxout' or 'concat', or another wiring",
        ),
        (
            {"wiring": {"type": "final-state"}, "attention": {"score": {"type": "dot"}}},
            "attention: wiring 'final-state' has no attention, so these settings would have no "
            "effect\n"
            "  remove the section, or choose another wiring, such as 'attend-then-step'",
        ),
        (
            {"wiring": {"type": "constant-context"}, "output_head": {"type": "marginal"}},
            "output_head.type: output head 'marginal' needs attention, which wiring "
            "'constant-context' does not have\n"
            "  choose 'softmax', or another wiring, such as 'step-then-attend'",
        ),
        (
            {"wiring": {"type": "final-state"}, "bridge": {"type": "zeros"}},
            "bridge.type: wiring 'final-state' passes the source in the first state alone, which "
            "is zero\n"
            "  choose another bridge, such as 'tanh', or another wiring",
        ),
        (
            {"wiring": NO_INPUT_FEEDING, "cell": {"type": "gru", "reset": "after-with-context"}},
            "cell.reset: 'after-with-context' needs a decoder in which every layer reads a "
            "context\n"
            "  choose 'after', or the wiring 'constant-context'",
        ),
        (
            {"num_layers": 2, "first_residual_layer": 3},
            "first_residual_layer: there is no layer 3: num_layers is 2\n"
            "  choose a layer from 2 to num_layers, or remove the setting",
        ),
    ],
)
def test_incompatible_settings_raise(settings, expected):
    assert message(RecurrentDecoderConfig.model_validate(settings)) == expected


@pytest.mark.parametrize(
    "alignment",
    [MonotonicAlignmentConfig(), MonotonicChunkwiseAlignmentConfig()],
    ids=lambda it: it.type,
)
def test_marginal_head_rejects_unnormalized_alignments(alignment):
    config = RecurrentDecoderConfig.model_validate(MARGINAL)
    attention = config.attention.model_copy(update={"alignment": alignment})
    assert message(config.model_copy(update={"attention": attention})) == (
        "attention.alignment.type: 'marginal' needs weights that sum to one, but "
        f"those of '{alignment.type}' may not\n"
        "  choose 'monotonic-marginal' or 'softmax'"
    )


def test_default_attention_settings_accepted_without_attention():
    """A saved config contains all defaults, and must be accepted again."""
    config = RecurrentDecoderConfig.model_validate({"wiring": {"type": "final-state"}})
    again = RecurrentDecoderConfig.model_validate(config.model_dump())
    assert again == config
    again.build(vocab_size=7, memory_size=5)

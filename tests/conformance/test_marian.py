"""Hugging Face's Marian: equal outputs and gradients with the same parameters.

Marian puts all sines of a position before all cosines; the paper and heedful interleave them. The
hidden dimensions are therefore permuted, and its parameters are permuted accordingly.
"""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from heedful.attention.positional_encoding import SinusoidalEncoding
from tests.conformance.hugging_face import (
    HIDDEN,
    MAX_POSITIONS,
    SIZE,
    SIZES,
    build_model,
    check_same_values_and_gradients,
    randomize,
)

# Columns 2 i and 2 i + 1 are Marian's columns i and SIZE / 2 + i.
ORDER = torch.arange(SIZE).view(2, -1).T.flatten()
INWARD = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight", "shared.weight")
OUTWARD = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias")


def reordered(name, tensor):
    """Return a tensor of Marian with permuted hidden dimensions."""
    if name == "final_logits_bias":
        return tensor.squeeze(0)
    if name.endswith(INWARD):
        return tensor[:, ORDER]
    return tensor[ORDER] if name.endswith(OUTWARD) or "norm" in name else tensor


def marian(activation):
    config = MarianConfig(**SIZES, activation_function=activation, scale_embedding=True)
    return randomize(MarianMTModel(config))


def sinusoids():
    return SinusoidalEncoding(SIZE)(torch.arange(MAX_POSITIONS), torch.double)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_marian_positions_match_up_to_column_order(side):
    table = getattr(marian("swish").model, side).embed_positions.weight
    torch.testing.assert_close(
        table[:, ORDER], sinusoids(), rtol=0, atol=1e-6
    )  # Marian rounds to float32


@pytest.mark.parametrize("activation", ["swish", "gelu", "relu"])
def test_transformer_same_as_marian_in_value_and_gradient(activation):
    model = build_model({"feed_forward": [{"intermediate_size": HIDDEN, "activation": activation}]})
    reference = marian(activation)
    with torch.no_grad():
        for side in (reference.model.encoder, reference.model.decoder):
            side.embed_positions.weight[:, ORDER] = sinusoids()  # in double precision
    check_same_values_and_gradients(model, reference, reordered)

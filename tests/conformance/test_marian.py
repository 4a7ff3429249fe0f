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
    all_parameters,
    build_model,
    example_batch,
    foreign_name,
    randomize,
    their_log_probs,
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
    names = {name: foreign_name(name) for name, _ in model.named_parameters()}
    theirs = all_parameters(reference)
    assert set(names.values()) == theirs.keys()
    model.load_state_dict(
        {name: reordered(their, theirs[their]) for name, their in names.items()}, strict=False
    )

    batch = example_batch()
    actual, expected = model(batch, need_weights=False).log_probs, their_log_probs(reference, batch)
    torch.testing.assert_close(actual, expected)

    grad_outputs = torch.randn_like(expected) * (batch.targets != 0).unsqueeze(-1)
    learned = torch.autograd.grad(actual, list(model.parameters()), grad_outputs)
    gradients = dict(
        zip(theirs, torch.autograd.grad(expected, list(theirs.values()), grad_outputs), strict=True)
    )
    for (name, their), gradient in zip(names.items(), learned, strict=True):
        torch.testing.assert_close(gradient, reordered(their, gradients[their]), msg=name)

"""Hugging Face's BART: equal outputs and gradients with the same parameters.

Its position table begins with two unused rows, which heedful does not have.
"""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from tests.conformance.hugging_face import (
    HIDDEN,
    MAX_POSITIONS,
    SIZES,
    all_parameters,
    build_model,
    example_batch,
    foreign_name,
    randomize,
    their_log_probs,
)

UNUSED = 2  # unused rows of BART's position table


def without_unused(name, tensor):
    """Return a tensor of BART in the shape used here."""
    if name == "final_logits_bias":
        return tensor.squeeze(0)
    return tensor[UNUSED:] if "embed_positions" in name else tensor


@pytest.mark.parametrize("scaled", [False, True], ids=["as it is", "scaled"])
def test_transformer_same_as_bart_in_value_and_gradient(scaled):
    reference = randomize(BartForConditionalGeneration(BartConfig(**SIZES, scale_embedding=scaled)))
    model = build_model(
        {
            "feed_forward": [{"intermediate_size": HIDDEN, "activation": "gelu"}],
            "positional_encoding": {"type": "learned", "max_positions": MAX_POSITIONS},
            "embedding_norm": True,
            "scale_embeddings": scaled,
        }
    )
    names = {name: foreign_name(name) for name, _ in model.named_parameters()}
    theirs = all_parameters(reference)
    assert set(names.values()) == theirs.keys()
    model.load_state_dict(
        {name: without_unused(their, theirs[their]) for name, their in names.items()}, strict=False
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
        torch.testing.assert_close(gradient, without_unused(their, gradients[their]), msg=name)
        assert (
            not their.endswith("embed_positions.weight") or (gradients[their][:UNUSED] == 0).all()
        )

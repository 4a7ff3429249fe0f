"""Hugging Face's BART: equal outputs and gradients with the same parameters.

Its position table begins with two unused rows, which heedful does not have.
"""

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from tests.conformance.hugging_face import (
    HIDDEN,
    MAX_POSITIONS,
    SIZES,
    build_model,
    check_same_values_and_gradients,
    randomize,
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
    gradients = check_same_values_and_gradients(model, reference, without_unused)
    tables = [name for name in gradients if name.endswith("embed_positions.weight")]
    assert len(tables) == 2
    assert all((gradients[name][:UNUSED] == 0).all() for name in tables)

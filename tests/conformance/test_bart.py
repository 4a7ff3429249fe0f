"""Hugging Face's BART: ours must agree with it weight for weight, in values and gradients.

Its table of places begins with two rows that no place has; ours has none of them.
"""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from tests.conformance.hugging_face import (
    HIDDEN,
    MAX_POSITIONS,
    SIZES,
    drawn,
    everything,
    examples,
    ours,
    their_log_probs,
    their_name,
)

UNUSED = 2  # rows of BART's table of places before that of the first


def without_unused(name, tensor):
    """A tensor of BART's, as ours has it."""
    if name == "final_logits_bias":
        return tensor.squeeze(0)
    return tensor[UNUSED:] if "embed_positions" in name else tensor


@pytest.mark.parametrize("scaled", [False, True], ids=["as it is", "scaled"])
def test_a_transformer_is_barts_in_value_and_gradient(scaled):
    peer = drawn(BartForConditionalGeneration(BartConfig(**SIZES, scale_embedding=scaled)))
    model = ours(
        {
            "feed_forward": [{"intermediate_size": HIDDEN, "activation": "gelu"}],
            "positional_encoding": {"type": "learned", "max_positions": MAX_POSITIONS},
            "embedding_norm": True,
            "scale_embeddings": scaled,
        }
    )
    names = {name: their_name(name) for name, _ in model.named_parameters()}
    theirs = everything(peer)
    assert set(names.values()) == theirs.keys()
    model.load_state_dict(
        {name: without_unused(its, theirs[its]) for name, its in names.items()}, strict=False
    )

    given = examples()
    found, wanted = model(given, need_weights=False).log_probs, their_log_probs(peer, given)
    torch.testing.assert_close(found, wanted)

    slopes = torch.randn_like(wanted) * (given.targets != 0).unsqueeze(-1)
    learned = torch.autograd.grad(found, list(model.parameters()), slopes)
    gradients = dict(
        zip(theirs, torch.autograd.grad(wanted, list(theirs.values()), slopes), strict=True)
    )
    for (name, its), gradient in zip(names.items(), learned, strict=True):
        torch.testing.assert_close(gradient, without_unused(its, gradients[its]), msg=name)
        assert not its.endswith("embed_positions.weight") or (gradients[its][:UNUSED] == 0).all()

"""Hugging Face's Marian: ours must agree with it weight for weight, in values and gradients.

Marian puts all sines of a place before all cosines, the paper and we put them in turn. The columns
that run through the model are the same in another order, so its weights are taken over in our
order: a model is the same whichever order its columns have.
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
    drawn,
    everything,
    examples,
    ours,
    their_log_probs,
    their_name,
)

# Our columns 2 i and 2 i + 1 are Marian's columns i and SIZE / 2 + i.
ORDER = torch.arange(SIZE).view(2, -1).T.flatten()
INWARD = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight", "shared.weight")
OUTWARD = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias")


def reordered(name, tensor):
    """A tensor of Marian's with the columns that run through the model in our order."""
    if name == "final_logits_bias":
        return tensor.squeeze(0)
    if name.endswith(INWARD):
        return tensor[:, ORDER]
    return tensor[ORDER] if name.endswith(OUTWARD) or "norm" in name else tensor


def marian(activation):
    config = MarianConfig(**SIZES, activation_function=activation, scale_embedding=True)
    return drawn(MarianMTModel(config))


def waves():
    return SinusoidalEncoding(SIZE)(torch.arange(MAX_POSITIONS), torch.double)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_marians_places_are_ours_in_another_order(side):
    table = getattr(marian("swish").model, side).embed_positions.weight
    torch.testing.assert_close(table[:, ORDER], waves(), rtol=0, atol=1e-6)  # they round to float32


@pytest.mark.parametrize("activation", ["swish", "gelu", "relu"])
def test_a_transformer_is_marians_in_value_and_gradient(activation):
    model = ours({"feed_forward": [{"intermediate_size": HIDDEN, "activation": activation}]})
    peer = marian(activation)
    with torch.no_grad():
        for side in (peer.model.encoder, peer.model.decoder):
            side.embed_positions.weight[:, ORDER] = waves()  # as precise as the rest
    names = {name: their_name(name) for name, _ in model.named_parameters()}
    theirs = everything(peer)
    assert set(names.values()) == theirs.keys()
    model.load_state_dict(
        {name: reordered(its, theirs[its]) for name, its in names.items()}, strict=False
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
        torch.testing.assert_close(gradient, reordered(its, gradients[its]), msg=name)

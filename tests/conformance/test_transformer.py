"""torch.nn.Transformer: ours must agree with it weight for weight, in values and gradients.

Torch's whole Transformer always ends in a norm; where norms come after sublayers, ours does not,
as in the paper, so that norm is taken away there.
"""

import pytest
import torch
from torch import nn

from heedful.attention import causal_mask, padding_mask
from heedful.data.batching import Batch
from heedful.models.encoder_decoder import EncoderDecoderConfig
from tests.catalogue import VOCABULARY, batch, store

SIZE, NUM_HEADS, HIDDEN, NUM_LAYERS = 8, 2, 12, 2
EPSILON = 1e-3  # large enough to be missed
PLACEMENTS = ["before", "after"]

# Torch says that it cannot use a shortcut of its own.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

each_form = pytest.mark.parametrize(
    ("placement", "activation"), [(one, two) for one in PLACEMENTS for two in ("relu", "gelu")]
)
SUBLAYERS = {
    "self_attn": "self_attention.attention",
    "multihead_attn": "source_attention.attention",
    "linear1": "feedforward.into",
    "linear2": "feedforward.out",
}
NORMS = {
    "encoder": {"norm1": "self_residual.norm", "norm2": "residual.norm"},
    "decoder": {
        "norm1": "self_residual.norm",
        "norm2": "source_attention.residual.norm",
        "norm3": "residual.norm",
    },
}
PROJECTIONS = ("query_projection", "key_projection", "value_projection")


def ours(placement, activation):
    side = {
        "type": "transformer",
        "hidden_size": SIZE,
        "num_layers": NUM_LAYERS,
        "attention": {
            "multi_head": {"num_heads": NUM_HEADS, "bias": True},
            "score": {"type": "scaled-dot"},
        },
        "feed_forward": [{"intermediate_size": HIDDEN, "activation": activation}],
        "norm_order": placement,
        "norm_eps": EPSILON,
        "dropout": 0.0,
    }
    config = EncoderDecoderConfig.model_validate({"encoder": side, "decoder": side})
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double()


def torchs(placement, activation):
    """Torch's, every weight of it drawn, gains and biases too."""
    model = nn.Transformer(
        SIZE,
        NUM_HEADS,
        NUM_LAYERS,
        NUM_LAYERS,
        HIDDEN,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=EPSILON,
        batch_first=True,
        norm_first=placement == "before",
    ).double()
    if placement == "after":
        model.encoder.norm = model.decoder.norm = None
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.6)
    return model


def by_our_names(tensors):
    """Tensors by the names of torch's parameters, as tensors by the names of ours."""
    found = {}
    for name, tensor in tensors.items():
        side, *rest = name.split(".")
        if rest[0] == "norm":
            found[f"{side}.stack.{'.'.join(rest)}"] = tensor
            continue
        _, number, part, *last = rest
        layer = f"{side}.stack.layers.{number}.{(SUBLAYERS | NORMS[side])[part]}"
        kind = last[-1].removeprefix("in_proj_")
        if last[0].startswith("in_proj"):
            parts = zip(PROJECTIONS, tensor.chunk(3), strict=True)
            found |= {f"{layer}.{each}.{kind}": piece for each, piece in parts}
        elif last[0] == "out_proj":
            found[f"{layer}.output_projection.{kind}"] = tensor
        else:
            found[f"{layer}.{kind}"] = tensor
    return found


def torchs_log_probs(peer, model, examples: Batch):
    """What torch's layers say between our embeddings and our emission."""
    tokens, lengths = examples.sources
    hidden = ~padding_mask(lengths, tokens.size(1)).squeeze(1)
    outputs = peer(
        model.encoder.embedding(tokens),
        model.decoder.embedding(examples.decoder_inputs),
        tgt_mask=~causal_mask(examples.decoder_inputs.size(1)),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    return model.decoder.output_head.projection(outputs).log_softmax(dim=-1)


@each_form
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_a_transformer_is_torchs_in_value_and_gradient(placement, activation, need_weights):
    model, peer = ours(placement, activation), torchs(placement, activation)
    names = dict(model.named_parameters())
    taken = by_our_names(dict(peer.named_parameters()))
    assert {name for name in names if ".stack." in name} == taken.keys()
    model.load_state_dict(taken, strict=False)

    examples = batch(store(), [0, 3, 5, 6])
    found = model(examples, need_weights=need_weights).log_probs
    wanted = torchs_log_probs(peer, model, examples)
    torch.testing.assert_close(found, wanted)

    slopes = torch.randn_like(wanted) * (examples.targets != 0).unsqueeze(-1)
    gradients = torch.autograd.grad(found, list(names.values()), slopes)
    learned = dict(zip(names, gradients, strict=True))
    outside = {name: each for name, each in names.items() if ".stack." not in name}
    whole = {**dict(peer.named_parameters()), **outside}
    wanted_gradients = dict(
        zip(whole, torch.autograd.grad(wanted, list(whole.values()), slopes), strict=True)
    )
    apart = {name: wanted_gradients.pop(name) for name in outside}
    torch.testing.assert_close(learned, by_our_names(wanted_gradients) | apart)


def test_without_a_last_norm_torchs_sum_goes_out_as_it_is():
    """What makes ours end in a norm where norms come before: the layers' sums never stop."""
    peer = torchs("before", "relu")
    inputs = torch.randn(1, 4, SIZE, dtype=torch.double)
    stack = ours("before", "relu").encoder.stack
    stack.load_state_dict(
        {
            name.removeprefix("encoder.stack."): tensor
            for name, tensor in by_our_names(dict(peer.named_parameters())).items()
            if name.startswith("encoder.")
        }
    )
    last, stack.norm = stack.norm, None
    sums, _ = stack.forward_bidirectional(inputs, torch.tensor([4]))
    torch.testing.assert_close(last(sums), peer.encoder(inputs))

"""torch.nn.Transformer: equal outputs and gradients with the same parameters.

Torch's Transformer always ends in a norm; with post-norm the paper and heedful do not, so it is
removed there.
"""

import pytest
import torch
from torch import nn

from heedful.attention.masks import causal_mask, padding_mask
from heedful.data.text.batching import Batch
from heedful.models.encoder_decoder import EncoderDecoderConfig
from tests.catalogue import VOCABULARY, batch, store

SIZE, NUM_HEADS, HIDDEN, NUM_LAYERS = 8, 2, 12, 2
EPSILON = 1e-3  # large enough to matter
NORM_ORDERS = ["pre", "post"]

# Torch warns that it cannot use nested tensors.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

all_forms = pytest.mark.parametrize(
    ("norm_order", "activation"),
    [(order, activation) for order in NORM_ORDERS for activation in ("relu", "gelu")],
)
SUBLAYERS = {
    "self_attn": "self_attention.attention",
    "multihead_attn": "cross_attention.attention",
    "linear1": "feed_forward.input_projection",
    "linear2": "feed_forward.output_projection",
}
NORMS = {
    "encoder": {"norm1": "self_attention_residual.norm", "norm2": "feed_forward_residual.norm"},
    "decoder": {
        "norm1": "self_attention_residual.norm",
        "norm2": "cross_attention.residual.norm",
        "norm3": "feed_forward_residual.norm",
    },
}
PROJECTIONS = ("query_projection", "key_projection", "value_projection")


def ours(norm_order, activation):
    side = {
        "type": "transformer",
        "hidden_size": SIZE,
        "num_layers": NUM_LAYERS,
        "attention": {
            "multi_head": {"num_heads": NUM_HEADS, "bias": True},
            "score": {"type": "scaled-dot"},
        },
        "feed_forward": [{"intermediate_size": HIDDEN, "activation": activation}],
        "norm_order": norm_order,
        "norm_eps": EPSILON,
        "dropout": 0.0,
    }
    config = EncoderDecoderConfig.model_validate({"encoder": side, "decoder": side})
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double()


def torchs(norm_order, activation):
    """Build torch's model with random parameters, including norms and biases."""
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
        norm_first=norm_order == "pre",
    ).double()
    if norm_order == "post":
        model.encoder.norm = model.decoder.norm = None
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.6)
    return model


def by_our_names(tensors):
    """Rename torch's parameters to the names used here."""
    actual = {}
    for name, tensor in tensors.items():
        side, *rest = name.split(".")
        if rest[0] == "norm":
            actual[f"{side}.stack.{'.'.join(rest)}"] = tensor
            continue
        _, number, part, *last = rest
        layer = f"{side}.stack.layers.{number}.{(SUBLAYERS | NORMS[side])[part]}"
        type_name = last[-1].removeprefix("in_proj_")
        if last[0].startswith("in_proj"):
            parts = zip(PROJECTIONS, tensor.chunk(3), strict=True)
            actual |= {f"{layer}.{item}.{type_name}": piece for item, piece in parts}
        elif last[0] == "out_proj":
            actual[f"{layer}.output_projection.{type_name}"] = tensor
        else:
            actual[f"{layer}.{type_name}"] = tensor
    return actual


def torchs_log_probs(reference, model, examples: Batch):
    """Return log-probabilities of torch's layers between heedful's embeddings and output head."""
    tokens, lengths = examples.sources
    hidden = ~padding_mask(lengths, tokens.size(1)).squeeze(1)
    outputs = reference(
        model.encoder.embedding(tokens),
        model.decoder.embedding(examples.decoder_inputs),
        tgt_mask=~causal_mask(examples.decoder_inputs.size(1))[0],
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    return model.decoder.output_head.projection(outputs).log_softmax(dim=-1)


@all_forms
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
def test_transformer_same_as_torch_in_value_and_gradient(norm_order, activation, need_weights):
    model, reference = ours(norm_order, activation), torchs(norm_order, activation)
    names = dict(model.named_parameters())
    taken = by_our_names(dict(reference.named_parameters()))
    assert {name for name in names if ".stack." in name} == taken.keys()
    model.load_state_dict(taken, strict=False)

    examples = batch(store(), [0, 3, 5, 6])
    actual = model(examples, need_weights=need_weights).log_probs
    expected = torchs_log_probs(reference, model, examples)
    torch.testing.assert_close(actual, expected)

    grad_outputs = torch.randn_like(expected) * (examples.targets != 0).unsqueeze(-1)
    gradients = torch.autograd.grad(actual, list(names.values()), grad_outputs)
    learned = dict(zip(names, gradients, strict=True))
    outside = {name: item for name, item in names.items() if ".stack." not in name}
    whole = {**dict(reference.named_parameters()), **outside}
    wanted_gradients = dict(
        zip(whole, torch.autograd.grad(expected, list(whole.values()), grad_outputs), strict=True)
    )
    separate = {name: wanted_gradients.pop(name) for name in outside}
    torch.testing.assert_close(learned, by_our_names(wanted_gradients) | separate)


def test_pre_norm_stack_without_final_norm_same_as_torch():
    """With pre-norm the residual stream is not normalized at the end."""
    reference = torchs("pre", "relu")
    inputs = torch.randn(1, 4, SIZE, dtype=torch.double)
    stack = ours("pre", "relu").encoder.stack
    stack.load_state_dict(
        {
            name.removeprefix("encoder.stack."): tensor
            for name, tensor in by_our_names(dict(reference.named_parameters())).items()
            if name.startswith("encoder.")
        }
    )
    last, stack.norm = stack.norm, None
    sums, _ = stack.forward_bidirectional(inputs, torch.tensor([4]))
    torch.testing.assert_close(last(sums), reference.encoder(inputs))

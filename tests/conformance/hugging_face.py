"""Mapping between the parameters of Hugging Face encoder-decoders and heedful."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.data.text.batching import Batch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from tests.catalogue import VOCABULARY, batch, store

SIZE, NUM_HEADS, HIDDEN, NUM_LAYERS, MAX_POSITIONS = 16, 2, 24, 2, 20
SIZES = {  # names in their configs
    "vocab_size": VOCABULARY,
    "d_model": SIZE,
    "max_position_embeddings": MAX_POSITIONS,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "eos_token_id": 3,
    "forced_eos_token_id": None,
    "dropout": 0.0,
    **{f"{settings}_layers": NUM_LAYERS for settings in ("encoder", "decoder")},
    **{f"{settings}_attention_heads": NUM_HEADS for settings in ("encoder", "decoder")},
    **{f"{settings}_ffn_dim": HIDDEN for settings in ("encoder", "decoder")},
}
NAMES = {  # parts of parameter names here, and their names there
    "encoder.embedding.embedding": "model.shared",
    "decoder.embedding.embedding": "model.shared",
    "coder.embedding.": "coder.",
    "position_combiner.encoding.embedding": "embed_positions",
    "coder.norm": "coder.layernorm_embedding",
    "decoder.output_head.projection.weight": "model.shared.weight",
    "decoder.output_head.projection.bias": "final_logits_bias",
    "coder.stack.": "coder.",
    "self_attention.attention": "self_attn",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention.attention": "encoder_attn",
    "cross_attention.residual.norm": "encoder_attn_layer_norm",
    "feed_forward.input_projection": "fc1",
    "feed_forward.output_projection": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
    "query_projection": "q_proj",
    "key_projection": "k_proj",
    "value_projection": "v_proj",
    "output_projection": "out_proj",
}


def foreign_name(name: str) -> str:
    """Return their name of a parameter."""
    for build_model, theirs in NAMES.items():
        name = name.replace(build_model, theirs)
    is_inner = name.startswith(("encoder", "decoder"))
    return f"model.{name}" if is_inner else name


def build_model(settings: dict[str, object]) -> EncoderDecoderModel:
    """Build a model of these sizes with shared embeddings; `settings` apply to both sides."""
    side_settings = {
        "type": "transformer",
        "hidden_size": SIZE,
        "num_layers": NUM_LAYERS,
        "attention": {
            "multi_head": {"num_heads": NUM_HEADS, "bias": True},
            "score": {"type": "scaled-dot"},
        },
        "dropout": 0.0,
        **settings,
    }
    config = EncoderDecoderConfig.model_validate(
        {"encoder": side_settings, "decoder": side_settings, "embeddings": "shared"}
    )
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double()


def randomize(reference: nn.Module) -> nn.Module:
    """Initialize all parameters randomly, including norms and biases."""
    reference = reference.double().eval()
    frozen = {name for name, weight in reference.named_parameters() if not weight.requires_grad}
    with torch.no_grad():
        for name, weight in reference.named_parameters():
            if name not in frozen:
                weight.normal_(std=0.5)
        reference.final_logits_bias.normal_()
    reference.final_logits_bias.requires_grad_()
    return reference


def all_parameters(reference: nn.Module) -> dict[str, torch.Tensor]:
    """Return their trained parameters by name, and the output bias, which is a buffer."""
    learned = {
        name: parameter
        for name, parameter in reference.named_parameters()
        if parameter.requires_grad
    }
    return learned | {"final_logits_bias": reference.final_logits_bias}


def example_batch() -> Batch:
    """Return a batch of sentences of different lengths."""
    return batch(store(), [0, 3, 5, 6])


def their_log_probs(reference: nn.Module, examples: Batch) -> torch.Tensor:
    """Return their log-probabilities for the same batch."""
    tokens, _ = examples.sources
    logits = reference(
        input_ids=tokens,
        attention_mask=(tokens != 0).long(),
        decoder_input_ids=examples.decoder_inputs,
        use_cache=False,
    ).logits
    return logits.log_softmax(dim=-1)


def check_same_values_and_gradients(
    model: nn.Module, reference: nn.Module, convert: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Compare log-probabilities and gradients for the parameters of the reference.

    `convert` returns a tensor of the reference in our shape; returns its gradients by name.
    """
    names = {name: foreign_name(name) for name, _ in model.named_parameters()}
    theirs = all_parameters(reference)
    assert set(names.values()) == theirs.keys()
    state = {name: convert(their, theirs[their]) for name, their in names.items()}
    model.load_state_dict(state, strict=False)

    batch = example_batch()
    actual, expected = model(batch, need_weights=False).log_probs, their_log_probs(reference, batch)
    torch.testing.assert_close(actual, expected)

    grad_outputs = torch.randn_like(expected) * (batch.targets != 0).unsqueeze(-1)
    learned = torch.autograd.grad(actual, list(model.parameters()), grad_outputs)
    found = torch.autograd.grad(expected, list(theirs.values()), grad_outputs)
    gradients = dict(zip(theirs, found, strict=True))
    for (name, their), gradient in zip(names.items(), learned, strict=True):
        torch.testing.assert_close(gradient, convert(their, gradients[their]), msg=name)
    return gradients

import pytest
import torch
from torch import nn

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.scores import DotScore
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from heedful.models.convolutional import ConvolutionalDecoderConfig, ConvolutionalEncoderConfig
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from tests.catalogue import VOCABULARY, batch, store

LAYERS = [
    {"num_layers": 2, "hidden_size": 6, "kernel_size": 3},
    {"hidden_size": 4, "kernel_size": 2},
    {"hidden_size": 7, "kernel_size": 1},
]


def decoder(memory_size=5, **settings):
    options = {"embedding_size": 5, "layers": LAYERS} | settings
    config = ConvolutionalDecoderConfig.model_validate(options)
    return config.build(vocab_size=VOCABULARY, memory_size=memory_size)


def system():
    """An untrained model with parameters large enough to make its outputs differ."""
    layers = [{"num_layers": 2, "hidden_size": 6}, {"hidden_size": 3}]
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=layers)
    module = encoder.build(vocab_size=VOCABULARY)
    model = EncoderDecoderModel(module, decoder()).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def test_weights_are_mean_over_layers():
    model, examples = system(), batch(store(), [2, 5])
    with trace_attention(model) as records:
        whole = model(examples, need_weights=True)
    assert len(records) == 4
    mean = torch.stack([record.weights.squeeze(1) for record in records]).mean(dim=0)
    torch.testing.assert_close(whole.weights, mean)
    assert {record.role for record in records} == {"cross"}


def test_log_probs_are_the_same_without_weights():
    model, examples = system(), batch(store(), [2, 5])
    with_weights, without = model(examples, need_weights=True), model(examples)
    assert without.weights is None
    torch.testing.assert_close(without.log_probs, with_weights.log_probs)


def test_auxiliary_losses_computed_without_need_weights():
    attention = {"auxiliary_losses": [{"type": "entropy", "weight": 0.5}]}
    encoder = ConvolutionalEncoderConfig(embedding_size=5, layers=LAYERS[:1])
    module = encoder.build(vocab_size=VOCABULARY)
    model, examples = (
        EncoderDecoderModel(module, decoder(attention=attention)),
        batch(store(), [2, 5]),
    )
    actual, expected = (
        model(examples, need_weights=need).auxiliary_losses for need in (False, True)
    )
    assert len(actual) == 1
    torch.testing.assert_close(actual, expected)


def test_decoder_works_with_recurrent_encoder():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    module = encoder.build(vocab_size=VOCABULARY)
    attention = {"score": {"type": "bilinear"}}
    model = EncoderDecoderModel(module, decoder(memory_size=6, attention=attention)).double()
    model(batch(store(), [2, 5])).log_probs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_context_scale_keeps_variance():
    module = decoder(embedding_size=256, memory_size=256, layers=[{"hidden_size": 256}]).layers[0]
    states, length = torch.randn(1, 49, 256), torch.tensor([49.0])
    memory = module.attention.build_memory(states, torch.ones(1, 1, 49, dtype=torch.bool))
    zero_query = torch.zeros(1, 1, 256)  # uniform weights
    context = module.attention(zero_query, memory).context * length.sqrt()
    assert context.var().item() == pytest.approx(1, rel=0.3)


def test_default_score_is_dot_product():
    for settings in ({}, {"attention": {}}, {"attention": {"dropout": 0.1}}):
        attention = decoder(**settings).layers[0].attention
        assert type(attention.score) is DotScore
        assert type(attention.alignment_function) is SoftmaxAlignment


def test_output_head_has_std_of_other_layers():
    module = decoder(embedding_size=400, memory_size=400, dropout=0.36)
    weight = module.output_head.projection.weight
    assert weight.std().item() == pytest.approx((0.64 / 400) ** 0.5, rel=0.05)
    assert (module.output_head.projection.bias == 0).all()
    assert isinstance(module.dropout, nn.Dropout)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"embedding_size": 4},
            "score.type: 'dot' needs equal sizes, but queries have 4 and keys 5\n"
            "  make the sizes equal, or choose 'bilinear' or 'additive'",
        ),
        (
            {"attention": {"readout": {"type": "per-position"}}},
            "decoder.attention.readout.type: 'per-position' needs a context per source position, "
            "but this decoder has one\n"
            "  choose 'weighted-sum', or a recurrent decoder",
        ),
        (
            {"output_head": {"type": "marginal"}},
            "decoder.output_head.type: 'marginal' needs a context per source position, but this "
            "decoder has one\n"
            "  choose 'softmax', or a recurrent decoder",
        ),
    ],
)
def test_incompatible_settings_raise(settings, message):
    with pytest.raises(ConfigError) as caught:
        decoder(**settings)
    assert str(caught.value) == message

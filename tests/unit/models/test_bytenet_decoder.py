import pytest
import torch
from torch import nn

from heedful.errors import ConfigError
from heedful.models.bytenet import DilatedDecoderConfig, DilatedEncoderConfig
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from tests.catalogue import VOCABULARY, batch, store


def decoder(memory_size=6, **settings):
    config = DilatedDecoderConfig.model_validate({"hidden_size": 3} | settings)
    return config.build(vocab_size=VOCABULARY, memory_size=memory_size)


def system():
    """An untrained model with parameters large enough to make its outputs differ."""
    encoder = DilatedEncoderConfig(hidden_size=3, dilations=(1, 2), length_factor=1.2)
    module = encoder.build(vocab_size=VOCABULARY)
    return with_large_parameters(
        EncoderDecoderModel(module, decoder(dilations=(1, 2), num_repeats=2))
    )


def with_large_parameters(model):
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.7)
    return model.double().eval()


def test_weights_are_zero_or_none():
    model, examples = system(), batch(store(), [2, 5])
    whole = model(examples, need_weights=True)
    assert whole.weights.shape == (*examples.decoder_inputs.shape, examples.sources.tokens.size(1))
    assert (whole.weights == 0).all()
    assert model(examples).weights is None


def test_position_uses_encoder_output_at_same_position():
    model = with_large_parameters(
        EncoderDecoderModel(system().encoder, decoder(kernel_size=1, dilations=(1,)))
    )
    examples = batch(store(), [6])
    encoded = model.encoder(*examples.sources)
    unfolded = encoded.unfolded
    tokens = torch.full((1, unfolded.size(1) + 3), 5)
    log_probs = model.decoder(tokens, encoded).log_probs[0]
    for position in range(unfolded.size(1)):
        changed = unfolded.clone()
        changed[:, position] += 1
        other = model.decoder(tokens, encoded._replace(unfolded=changed)).log_probs[0]
        assert (log_probs != other).any(dim=-1).nonzero().flatten().tolist() == [position]
    torch.testing.assert_close(log_probs[-1], log_probs[-3])


def test_encoder_without_unfolding_loads_to_the_end():
    encoder = RecurrentEncoderConfig(embedding_size=5, hidden_size=6)
    model = with_large_parameters(
        EncoderDecoderModel(encoder.build(vocab_size=VOCABULARY), decoder())
    )
    examples = batch(store(), [2, 5])
    encoded = model.encoder(*examples.sources)
    whole = model(examples).log_probs
    unfolded = encoded._replace(unfolded=encoded.states)
    torch.testing.assert_close(model.decoder(examples.decoder_inputs, unfolded).log_probs, whole)


def test_dropout_is_before_output_head():
    module = decoder(dropout=0.4)
    assert isinstance(module.output_layers[-1], nn.Dropout)
    assert module.output_layers[-1].p == 0.4
    assert module.embedding.dropout.p == 0


def test_encoder_of_another_size_raises():
    with pytest.raises(ConfigError) as caught:
        decoder(memory_size=8)
    assert str(caught.value) == (
        "decoder.hidden_size: needs encoder states of size 6, but they have 8\n"
        "  set encoder.type to 'dilated' and give both the same hidden_size"
    )

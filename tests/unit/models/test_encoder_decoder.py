"""Encoder-decoder models: auxiliary losses, and the encoder layers that decoders attend to."""

import copy

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.auxiliary_losses import CoverageLoss, DoublyStochasticLoss
from heedful.attention.hard_alignment import MovingAverageBaseline, SampledAlignment
from heedful.data.text.batching import SourceBatch
from heedful.errors import ConfigError
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.tokenization.vocabulary import PAD
from tests.catalogue import batch, build, store

FAST_FORWARD = {"type": "fast-forward", "shortcut_size": 4}


def system():
    return copy.deepcopy(build("gru, attend-then-step"))


def test_auxiliary_losses_ignore_padding():
    """By a loop over the sentences, each without its padding."""
    model = system()
    attention = model.decoder.wiring.attention
    attention.auxiliary_losses.extend([DoublyStochasticLoss(1.0), CoverageLoss(1.0)])
    examples = batch(store(), list(range(7)), extra=2)
    output = model(examples)
    missing = overlap = 0.0
    for row, weights in enumerate(output.weights):
        length = int(examples.sources.lengths[row])
        visible = weights[examples.targets[row] != PAD][:, :length]
        missing += (1 - visible.sum(0)).square().sum()
        for step in range(1, len(visible)):
            overlap += torch.minimum(visible[step], visible[:step].sum(0)).sum()
    assert output.auxiliary_losses["doubly-stochastic"].item() == pytest.approx(missing.item())
    assert output.auxiliary_losses["coverage"].item() == pytest.approx(overlap.item())


def test_rewards_are_log_likelihoods_of_real_targets():
    model = system().train()
    align = SampledAlignment(
        SoftmaxAlignment(), MovingAverageBaseline(0.0), credit="future"
    ).double()
    model.decoder.wiring.attention.alignment_function = align
    examples = batch(store(), [0, 3, 4], extra=1)
    output = model(examples)
    assert set(output.auxiliary_losses) == {"reinforce", "entropy-bonus"}
    rewards = []
    for log_probs, targets in zip(output.log_probs, examples.targets.tolist(), strict=True):
        real = [token for token in targets if token != PAD]
        token_log_probs = [log_probs[step, token].item() for step, token in enumerate(real)]
        rewards += [sum(token_log_probs[step:]) for step in range(len(real))]
    assert align.baseline.running_mean.item() == pytest.approx(sum(rewards) / len(rewards))


def test_eval_mode_samples_nothing_and_has_no_losses():
    model = system()
    model.decoder.wiring.attention.alignment_function = SampledAlignment(
        SoftmaxAlignment(), MovingAverageBaseline()
    ).eval()
    examples = batch(store(), [0, 1, 2])
    first, second = model(examples), model(examples)
    assert first.auxiliary_losses == {}
    torch.testing.assert_close(first.log_probs, second.log_probs)


@pytest.mark.parametrize("name", ["gru, attend-then-step", "transformer"])
def test_model_without_source_eos_sees_what_is_before_it(name):
    """As if the sources had no EOS: their last token takes its place."""
    model = copy.deepcopy(build(name))
    examples = batch(store(), [0, 3, 5, 6])
    tokens, lengths = examples.sources
    shorter = examples._replace(sources=SourceBatch(tokens, (lengths - 1).clamp(min=1)))
    expected = model(shorter, need_weights=True)
    model.source_eos = False
    output = model(examples, need_weights=True)
    torch.testing.assert_close(output.log_probs, expected.log_probs)
    for row, length in enumerate(lengths.tolist()):
        assert (output.weights[row, :, max(1, length - 1) :] == 0).all()


@pytest.mark.parametrize("order", ["post", "pre"])
def test_decoder_layer_attends_to_the_same_layer_of_the_encoder(order):
    model = copy.deepcopy(build(f"transformer, same-layer cross-attention, {order}-norm"))
    sources = batch(store(), [0, 3, 4]).sources
    memories = model.initial_state(sources).memories
    layers = list(model.encoder.stack.layers)
    assert len(memories) == len(layers) == len(model.decoder.stack.layers)
    for num_layers, memory in enumerate(memories, start=1):
        model.encoder.stack.layers = torch.nn.ModuleList(layers[:num_layers])
        encoded = model.encoder(*sources)  # by an encoder that ends there
        attention = model.decoder.stack.layers[num_layers - 1].cross_attention.attention
        expected = attention.build_memory(encoded.states, encoded.mask)
        torch.testing.assert_close(memory.values * memory.mask.mT, expected.values * memory.mask.mT)
        torch.testing.assert_close(memory.keys * memory.mask.mT, expected.keys * memory.mask.mT)


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        ({"type": "transformer", "num_layers": 3}, "the decoder has 2 layers, the encoder 3"),
        ({"type": "bag-of-words"}, "the decoder has 2 layers, the encoder 0"),
        (
            {"num_layers": 2, "hidden_size": 16, "connection": FAST_FORWARD},
            "the encoder layers have different sizes: {16, 4}",
        ),
    ],
)
def test_same_layer_cross_attention_needs_equal_layers(encoder, problem):
    decoder = {"type": "transformer", "num_layers": 2, "cross_attention_to": "same-layer"}
    config = EncoderDecoderConfig.model_validate({"encoder": encoder, "decoder": decoder})
    with pytest.raises(ConfigError) as caught:
        config.build(source_vocab_size=9, target_vocab_size=9)
    assert str(caught.value) == (
        f"decoder.cross_attention_to: is 'same-layer', but {problem}\n"
        "  set it to 'top-layer', or change the encoder"
    )

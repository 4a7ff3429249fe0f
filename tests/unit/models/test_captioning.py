"""The word loss of captioning models, and the encoding of the cells of a grid."""

import math

import numpy as np
import pytest
import torch

from heedful.models.captioning import CaptioningConfig, WordLoss
from tests.captioning import ENCODERS, SOFT, VOCABULARY, Batch, captions, images

WEIGHT = 0.5


def build(weight, encoder="features"):
    torch.manual_seed(0)
    settings = {"encoder": ENCODERS[encoder], "decoder": SOFT, "word_loss_weight": weight}
    config = CaptioningConfig.model_validate(settings)
    return config.build(source_vocab_size=0, target_vocab_size=VOCABULARY).double()


def batch_for(encoder="features"):
    return Batch(images(ENCODERS[encoder]), captions(), captions())


def test_word_loss_same_as_loop_over_words():
    model, batch = build(WEIGHT).eval(), batch_for()
    cells = model.encoder(*batch.sources).states.detach().numpy()
    matrix, bias = (part.detach().numpy() for part in model.encoder_loss.projection.parameters())
    expected = 0.0
    rows = zip(cells, batch.sources.lengths.tolist(), batch.targets.tolist(), strict=True)
    for image, length, caption in rows:
        logits = matrix @ image[:length].max(axis=0) + bias
        for word, logit in enumerate(logits):
            is_present = word in caption and word >= 4  # not PAD, UNK, BOS, EOS
            expected += WEIGHT * np.logaddexp(0, -logit if is_present else logit)
    assert model(batch).auxiliary_losses["words"].item() == pytest.approx(expected, rel=1e-10)


def test_word_loss_trains_encoder_but_not_decoder():
    model = build(WEIGHT, "cnn")
    model(batch_for("cnn")).auxiliary_losses["words"].backward()
    assert all(parameter.grad is None for parameter in model.decoder.parameters())
    assert all(parameter.grad.any() for parameter in model.encoder.parameters())


def test_word_loss_is_off_by_default_and_does_not_change_other_outputs():
    without, trained, batch = build(0.0).eval(), build(WEIGHT).eval(), batch_for()
    assert without.encoder_loss is None
    assert not any(name.startswith("encoder_loss") for name in without.state_dict())
    assert "words" not in without(batch).auxiliary_losses
    trained.load_state_dict(without.state_dict(), strict=False)
    torch.testing.assert_close(trained(batch).log_probs, without(batch).log_probs)


def test_words_are_improbable_at_first():
    loss = WordLoss(3, 100, 1.0)
    probabilities = loss.projection(torch.zeros(3)).sigmoid()
    torch.testing.assert_close(probabilities, torch.full((100,), 1 / 101))
    assert math.isclose(-math.log(100), loss.projection.bias[0].item(), rel_tol=1e-6)


def test_learned_grid_encodings_start_as_large_as_set():
    positions = {"type": "learned", "max_positions": 500, "init_std": 0.1}
    encoder = {**ENCODERS["features"], "positional_encoding": positions}
    encoding = CaptioningConfig.model_validate({"encoder": encoder}).encoder.build().positions
    for part in (encoding.rows, encoding.columns):
        assert part.embedding.weight.std().item() == pytest.approx(0.1, rel=0.1)

import pytest
import torch

from heedful.attention.auxiliary_losses import CoverageLoss
from heedful.experiment.validation import validate
from tests.catalogue import batch, build, store


def test_validation_is_a_mean_over_real_tokens_whatever_the_batches():
    model, corpus = build("gru, attend-then-step"), store()
    whole = validate(model, [batch(corpus, list(range(7)))])
    parts = validate(model, [batch(corpus, [row], extra=2) for row in range(7)])
    assert parts.loss == pytest.approx(whole.loss)
    assert parts.accuracy == pytest.approx(whole.accuracy)


def test_validation_drops_nothing_out_and_takes_no_gradient():
    model = build("gru, attend-then-step").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    examples = [batch(store(), [0, 1])]
    assert validate(model, examples) == validate(model, examples)
    assert all(weight.grad is None for weight in model.parameters())


def test_validation_measures_the_likelihood_alone():
    model, examples = build("gru, attend-then-step"), [batch(store(), [0, 1])]
    plain = validate(model, examples)
    model.decoder.wiring.attention.auxiliary_losses.append(CoverageLoss(5.0))
    assert model(examples[0]).auxiliary_losses["coverage"] > 0
    assert validate(model, examples) == plain

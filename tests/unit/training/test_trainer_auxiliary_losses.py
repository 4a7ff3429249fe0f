"""Penalties in training: added to what is learned from, kept out of what is compared."""

import copy
import io
import json

import pytest
import torch
from rich.console import Console

from heedful.attention.auxiliary_losses import CoverageLoss, DoublyStochasticLoss, EntropyLoss
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.trainer import GradientClipper, Trainer
from tests.catalogue import batch, build, store
from tests.commands import write_recipe


def system(*auxiliary_losses):
    model = copy.deepcopy(build("gru, attend-then-step"))
    model.decoder.wiring.attention.auxiliary_losses.extend(auxiliary_losses)
    return model


def learner(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(
        model, CrossEntropyObjective(), optimizer, lambda step: 0.1, clipping=GradientClipper()
    )


def learned(groups, *auxiliary_losses):
    trainer = learner(system(*auxiliary_losses))
    metrics = trainer.train_step([batch(store(8), rows, extra) for rows, extra in groups])
    return metrics, dict(trainer.model.named_parameters())


AUXILIARY_LOSSES = [DoublyStochasticLoss(0.5), CoverageLoss(2.0), EntropyLoss(0.1)]
WHOLE = [(list(range(8)), 0)]


@pytest.mark.parametrize(
    "groups",
    [
        [(list(range(4)), 0), (list(range(4, 8)), 0)],
        [(list(range(0, 8, 2)), 0), (list(range(1, 8, 2)), 3)],
        [([row], row % 3) for row in range(8)],
    ],
    ids=["two halves", "unlike padding", "one by one"],
)
def test_micro_batches_have_the_auxiliary_losses_of_one_batch(groups):
    whole_metrics, whole = learned(WHOLE, *AUXILIARY_LOSSES)
    parts_metrics, parts = learned(groups, *AUXILIARY_LOSSES)
    assert parts_metrics.loss == pytest.approx(whole_metrics.loss)
    assert set(whole_metrics.auxiliary_losses) == {"doubly-stochastic", "coverage", "entropy"}
    assert parts_metrics.auxiliary_losses == pytest.approx(whole_metrics.auxiliary_losses)
    assert parts_metrics.grad_norm == pytest.approx(whole_metrics.grad_norm)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


def test_auxiliary_losses_change_the_update_but_not_the_reported_loss():
    plain_metrics, plain = learned(WHOLE)
    metrics, regularized = learned(WHOLE, *AUXILIARY_LOSSES)
    assert plain_metrics.auxiliary_losses == {}
    assert metrics.loss == plain_metrics.loss
    assert any(not torch.equal(regularized[name], weight) for name, weight in plain.items())


def test_auxiliary_loss_raises_per_target():
    examples = batch(store(8), [0, 1, 2])
    model = system(CoverageLoss(2.0))
    expected = model(examples).auxiliary_losses["coverage"].item()
    metrics = learner(model).train_step([examples])
    assert metrics.auxiliary_losses == pytest.approx({"coverage": expected / examples.num_targets})


def test_nan_auxiliary_loss_skips_the_step_with_a_message():
    trainer = learner(system(CoverageLoss(float("nan"))))
    before = copy.deepcopy(trainer.model.state_dict())
    metrics = trainer.train_step([batch(store(8), [0])])
    assert metrics.skip_reason == (
        f"loss is {metrics.loss}, auxiliary loss 'coverage' is nan, gradient norm is nan "
        "(first in encoder.embedding.embedding.weight)"
    )
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_run_logs_auxiliary_losses(tmp_path):
    settings = ["model.decoder.attention.auxiliary_losses=[{type: coverage, weight: 0.5}]"]
    recipe = load_recipe(str(write_recipe(tmp_path, steps=10, every=10)), settings)
    screen = io.StringIO()
    train(recipe, tmp_path / "run", console=Console(file=screen))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    environment, first, last, validation = map(json.loads, lines)
    assert environment["type"] == "environment"
    assert first["auxiliary_losses"].keys() == last["auxiliary_losses"].keys() == {"coverage"}
    assert last["auxiliary_losses"]["coverage"] > 0
    assert "  coverage 0." in screen.getvalue()
    names = {"type", "step", "loss", "accuracy", "bleu", "chrf", "seconds"}
    assert validation.keys() == names

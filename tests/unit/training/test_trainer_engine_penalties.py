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
from heedful.training import CrossEntropyObjective
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
    student = learner(system(*auxiliary_losses))
    report = student.train_step([batch(store(8), rows, extra) for rows, extra in groups])
    return report, dict(student.model.named_parameters())


PENALTIES = [DoublyStochasticLoss(0.5), CoverageLoss(2.0), EntropyLoss(0.1)]
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
def test_many_small_batches_are_penalised_as_one_large_batch(groups):
    whole_report, whole = learned(WHOLE, *PENALTIES)
    parts_report, parts = learned(groups, *PENALTIES)
    assert parts_report.loss == pytest.approx(whole_report.loss)
    assert set(whole_report.auxiliary_losses) == {"doubly-stochastic", "coverage", "entropy"}
    assert parts_report.auxiliary_losses == pytest.approx(whole_report.auxiliary_losses)
    assert parts_report.grad_norm == pytest.approx(whole_report.grad_norm)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


def test_penalties_change_what_is_learned_but_not_the_loss_that_is_reported():
    plain_report, plain = learned(WHOLE)
    report, penalised = learned(WHOLE, *PENALTIES)
    assert plain_report.auxiliary_losses == {}
    assert report.loss == plain_report.loss
    assert any(not torch.equal(penalised[name], weight) for name, weight in plain.items())


def test_a_penalty_is_reported_per_real_target():
    examples = batch(store(8), [0, 1, 2])
    model = system(CoverageLoss(2.0))
    by_itself = model(examples).auxiliary_losses["coverage"].item()
    report = learner(model).train_step([examples])
    assert report.auxiliary_losses == pytest.approx(
        {"coverage_penalty": by_itself / examples.num_targets}
    )


def test_from_a_penalty_that_is_no_number_nothing_is_learned_and_it_is_named():
    student = learner(system(CoverageLoss(float("nan"))))
    before = copy.deepcopy(student.model.state_dict())
    report = student.train_step([batch(store(8), [0])])
    assert report.skip_reason == (
        f"the loss is {report.loss}, the penalty 'coverage' nan and the gradient's norm nan; "
        "the first bad gradient is that of encoder.embedding.table.weight"
    )
    for name, weight in student.model.state_dict().items():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize("auxiliary_losses", ["[{type: coverage, weight: 0.5}]", "[]"])
def test_a_run_tells_of_its_penalties_if_it_has_any(auxiliary_losses, tmp_path):
    settings = [f"model.decoder.attention.auxiliary_losses={auxiliary_losses}"]
    recipe = load_recipe(str(write_recipe(tmp_path, steps=10, every=10)), settings)
    screen = io.StringIO()
    train(recipe, tmp_path / "run", console=Console(file=screen))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    environment, first, last, validation = map(json.loads, lines)
    assert environment["kind"] == "environment"
    if auxiliary_losses == "[]":
        assert "penalties" not in {*first, *last}
        assert "coverage" not in screen.getvalue()
    else:
        assert first["penalties"].keys() == last["penalties"].keys() == {"coverage"}
        assert last["penalties"]["coverage"] > 0
        assert "  coverage 0." in screen.getvalue()
    assert validation.keys() == {"kind", "step", "loss", "accuracy", "seconds"}

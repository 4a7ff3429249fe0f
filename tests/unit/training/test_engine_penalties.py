"""Penalties in training: added to what is learned from, kept out of what is compared."""

import copy
import io
import json

import pytest
import torch
from rich.console import Console

from heedful.attention.penalties import CoverageLoss, DoublyStochastic, EntropyPenalty
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.training.engine import Learner, NonFiniteError
from heedful.training.objectives import Loss, negative_log_likelihood
from tests.catalogue import batch, build, store
from tests.commands import write_recipe


def system(*penalties):
    model = copy.deepcopy(build("gru, attend-then-step"))
    model.decoder.wiring.attention.penalties.extend(penalties)
    return model


def learner(model):
    def loss(each, examples):
        log_probs, _, penalties = each(examples)
        return Loss(negative_log_likelihood(log_probs, examples.targets), penalties)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Learner(model, loss, optimizer, lambda step: 0.1, max_grad_norm=1e9)


def learned(groups, *penalties):
    student = learner(system(*penalties))
    report = student.update([batch(store(8), rows, extra) for rows, extra in groups])
    return report, dict(student.model.named_parameters())


PENALTIES = [DoublyStochastic(0.5), CoverageLoss(2.0), EntropyPenalty(0.1)]
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
    assert set(whole_report.penalties) == {"doubly-stochastic", "coverage", "entropy"}
    assert parts_report.penalties == pytest.approx(whole_report.penalties)
    assert parts_report.grad_norm == pytest.approx(whole_report.grad_norm)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


def test_penalties_change_what_is_learned_but_not_the_loss_that_is_reported():
    plain_report, plain = learned(WHOLE)
    report, penalised = learned(WHOLE, *PENALTIES)
    assert plain_report.penalties == {}
    assert report.loss == plain_report.loss
    assert any(not torch.equal(penalised[name], weight) for name, weight in plain.items())


def test_a_penalty_is_reported_per_real_target():
    examples = batch(store(8), [0, 1, 2])
    model = system(CoverageLoss(2.0))
    by_itself = model(examples).penalties["coverage"].item()
    report = learner(model).update([examples])
    assert report.penalties == pytest.approx({"coverage": by_itself / examples.num_targets})


def test_a_penalty_that_is_no_number_stops_before_the_update_and_is_named():
    student = learner(system(CoverageLoss(float("nan"))))
    with pytest.raises(NonFiniteError) as caught:
        student.update([batch(store(8), [0])])
    message = str(caught.value)
    loss = negative_log_likelihood(
        student.model(batch(store(8), [0])).log_probs, batch(store(8), [0]).targets
    )
    per_target = loss.item() / batch(store(8), [0]).num_targets
    assert message == (
        f"training step 1: the loss is {per_target}, the penalty 'coverage' nan and the "
        "gradient's norm nan; the first bad gradient is that of encoder.embedding.table.weight\n"
        "  nothing was learned from this step; lower training.optimizer.learning_rate "
        "or training.max_grad_norm"
    )


@pytest.mark.parametrize("penalties", ["[{kind: coverage, weight: 0.5}]", "[]"])
def test_a_run_tells_of_its_penalties_if_it_has_any(penalties, tmp_path):
    settings = [f"model.decoder.attention.penalties={penalties}"]
    recipe = load_recipe(str(write_recipe(tmp_path, steps=10, every=10)), settings)
    screen = io.StringIO()
    train(recipe, tmp_path / "run", console=Console(file=screen))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    first, last, validation = map(json.loads, lines)
    if penalties == "[]":
        assert "penalties" not in {*first, *last}
        assert "coverage" not in screen.getvalue()
    else:
        assert first["penalties"].keys() == last["penalties"].keys() == {"coverage"}
        assert last["penalties"]["coverage"] > 0
        assert "  coverage 0." in screen.getvalue()
    assert validation.keys() == {"kind", "step", "loss", "accuracy"}

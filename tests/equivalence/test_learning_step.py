"""However batches are grouped and padded, the same examples teach the same."""

import copy

import pytest
import torch

from heedful.training.config import TrainingConfig
from heedful.training.engine import Learner
from heedful.training.objectives import Loss, negative_log_likelihood
from tests.catalogue import batch, build, store

CONFIG = TrainingConfig()


def learner(model, smoothing):
    def loss(each, examples):
        told = each(examples)
        error = negative_log_likelihood(told.log_probs, examples.targets, smoothing=smoothing)
        return Loss(error, told.penalties)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Learner(model, loss, optimizer, lambda step: 0.1, max_grad_norm=1e9)


def learned(groups, smoothing=0.1):
    """The weights and the loss after one update from these groups of rows."""
    corpus = store(12)
    student = learner(copy.deepcopy(build("gru, attend-then-step")), smoothing)
    report = student.update([batch(corpus, rows, extra) for rows, extra in groups])
    return report, dict(student.model.named_parameters())


@pytest.mark.parametrize(
    "groups",
    [
        [(range(6), 0), (range(6, 12), 0)],
        [(range(0, 12, 2), 0), (range(1, 12, 2), 3)],
        [([row], row % 3) for row in range(12)],
        [([0], 0), (range(1, 12), 7)],
    ],
    ids=["two halves", "unlike padding", "one by one", "one and the rest"],
)
def test_many_small_batches_are_one_large_batch(groups):
    groups = [(list(rows), extra) for rows, extra in groups]
    whole_report, whole = learned([(list(range(12)), 0)])
    parts_report, parts = learned(groups)
    assert parts_report.loss == pytest.approx(whole_report.loss)
    assert parts_report.grad_norm == pytest.approx(whole_report.grad_norm)
    assert parts_report.num_tokens == whole_report.num_tokens
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)

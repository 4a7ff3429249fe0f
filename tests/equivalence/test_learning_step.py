"""However batches are grouped and padded, the same examples teach the same."""

import copy

import pytest
import torch

from heedful.training.clipping import Clipping
from heedful.training.engine import Learner
from heedful.training.objectives import Likelihood
from tests.catalogue import batch, build, store


def learner(model, smoothing):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objective = Likelihood(smoothing=smoothing)
    return Learner(model, objective, optimizer, lambda step: 0.1, clipping=Clipping())


def learned(groups, smoothing=0.1, size=12):
    """The weights and the loss after one update from these groups of rows."""
    corpus = store(size)
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


def test_one_batch_of_32_is_eight_of_4():
    one = [(list(range(32)), 0)]
    eight = [(list(range(first, first + 4)), first % 3) for first in range(0, 32, 4)]
    _, whole = learned(one, size=32)
    _, parts = learned(eight, size=32)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)

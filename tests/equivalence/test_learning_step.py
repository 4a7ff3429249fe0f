"""However batches are grouped and padded, the same examples teach the same."""

import copy
import multiprocessing
import os
import socket

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.training import CrossEntropyObjective
from heedful.training.distributed import SINGLE_PROCESS
from heedful.training.process_group import init_distributed
from heedful.training.trainer import GradientClipper, Trainer
from tests.catalogue import batch, build, store


def learner(model, smoothing, ranks=SINGLE_PROCESS):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objective = CrossEntropyObjective(label_smoothing=smoothing)
    clipping = GradientClipper()
    return Trainer(
        model, objective, optimizer, lambda step: 0.1, clipping=clipping, dist_context=ranks
    )


def learned(groups, smoothing=0.1, size=12, ranks=SINGLE_PROCESS):
    """The weights and the loss after one update from these groups of rows."""
    corpus = store(size)
    student = learner(copy.deepcopy(build("gru, attend-then-step")), smoothing, ranks)
    report = student.train_step([batch(corpus, rows, extra) for rows, extra in groups])
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


ONE_OF_32 = [(list(range(32)), 0)]


def test_one_batch_of_32_is_eight_of_4():
    eight = [(list(range(first, first + 4)), first % 3) for first in range(0, 32, 4)]
    _, whole = learned(ONE_OF_32, size=32)
    _, parts = learned(eight, size=32)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


@pytest.mark.faults
def test_one_batch_of_32_is_two_ranks_with_16_each(tmp_path):
    """Plain gradient descent moves each weight by its gradient: equal weights, equal gradients."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_learn_as, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        assert process.exitcode == 0
    whole_report, whole = learned(ONE_OF_32, size=32)
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        assert found.pop("loss").item() == pytest.approx(whole_report.loss)
        assert found.keys() == whole.keys()
        for name, weight in whole.items():
            torch.testing.assert_close(found[name], weight.detach())


def _learn_as(rank, port, folder):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    with init_distributed(torch.device("cpu")) as (ranks, _):
        report, weights = learned(ONE_OF_32, size=32, ranks=ranks)
    kept = {name: weight.detach() for name, weight in weights.items()}
    save_file({**kept, "loss": torch.tensor(report.loss)}, folder / f"{rank}.safetensors")

"""The gradient does not depend on how examples are grouped into micro-batches or padded."""

import copy
import multiprocessing
import os
import socket

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.pytree import select_rows
from heedful.tasks.forecasting.task import SeriesLikelihood
from heedful.tasks.tagging.task import TagLikelihood
from heedful.training.data_parallel import init_distributed
from heedful.training.distributed import SINGLE_PROCESS
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.trainer import GradientClipper, Trainer
from tests.catalogue import TAGGERS, batch, build, store, tagged_store
from tests.forecasting import BACKBONES, collate, count_series, small_config, small_model


def build_trainer(model, objective, ranks=SINGLE_PROCESS):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clipping = GradientClipper()
    return Trainer(
        model, objective, optimizer, lambda step: 0.1, clipping=clipping, dist_context=ranks
    )


def train_once(micro_batches, size=12, ranks=SINGLE_PROCESS, name="gru, attend-then-step"):
    """Metrics and parameters after one step on these micro-batches."""
    is_tagger = name in TAGGERS
    corpus = (tagged_store if is_tagger else store)(size)
    objective = TagLikelihood() if is_tagger else CrossEntropyObjective(label_smoothing=0.1)
    trainer = build_trainer(copy.deepcopy(build(name)), objective, ranks)
    metrics = trainer.train_step([batch(corpus, rows, extra) for rows, extra in micro_batches])
    return metrics, dict(trainer.model.named_parameters())


@pytest.mark.parametrize(
    "micro_batches",
    [
        [(range(6), 0), (range(6, 12), 0)],
        [(range(0, 12, 2), 0), (range(1, 12, 2), 3)],
        [([row], row % 3) for row in range(12)],
        [([0], 0), (range(1, 12), 7)],
    ],
    ids=["two halves", "different padding", "one by one", "one and the rest"],
)
@pytest.mark.parametrize("name", ["gru, attend-then-step", *TAGGERS])
def test_micro_batches_match_one_large_batch(name, micro_batches):
    micro_batches = [(list(rows), extra) for rows, extra in micro_batches]
    whole_metrics, whole = train_once([(list(range(12)), 0)], name=name)
    parts_metrics, parts = train_once(micro_batches, name=name)
    assert parts_metrics.loss == pytest.approx(whole_metrics.loss)
    assert parts_metrics.grad_norm == pytest.approx(whole_metrics.grad_norm)
    assert parts_metrics.num_tokens == whole_metrics.num_tokens
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_micro_batches_of_series_match_one_large_batch(backbone):
    """Rows differ in the number of missing values."""
    config, series = small_config(backbone), count_series(5)
    series[0].values[-8:-2] = np.nan
    whole = collate(config, series)
    parts = [select_rows(whole, torch.tensor(rows)) for rows in ([3, 0], [1], [4, 2])]
    results = []
    for micro_batches in ([whole], parts):
        trainer = build_trainer(small_model(config), SeriesLikelihood())
        metrics = trainer.train_step(micro_batches)
        results.append((metrics.loss, metrics.grad_norm, list(trainer.model.parameters())))
    torch.testing.assert_close(*results)


ONE_OF_32 = [(list(range(32)), 0)]


def test_one_batch_of_32_same_as_eight_of_4():
    eight = [(list(range(first, first + 4)), first % 3) for first in range(0, 32, 4)]
    _, whole = train_once(ONE_OF_32, size=32)
    _, parts = train_once(eight, size=32)
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


@pytest.mark.faults
def test_one_batch_of_32_same_as_two_ranks_with_16_each(tmp_path):
    """With SGD, equal parameters mean equal gradients."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=_train_on_rank, args=(rank, port, tmp_path)) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        assert process.exitcode == 0
    whole_metrics, whole = train_once(ONE_OF_32, size=32)
    for rank in range(2):
        actual = load_file(tmp_path / f"{rank}.safetensors")
        assert actual.pop("loss").item() == pytest.approx(whole_metrics.loss)
        assert actual.keys() == whole.keys()
        for name, weight in whole.items():
            torch.testing.assert_close(actual[name], weight.detach())


def _train_on_rank(rank, port, output_dir):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    with init_distributed(torch.device("cpu")) as (ranks, _):
        metrics, weights = train_once(ONE_OF_32, size=32, ranks=ranks)
    tensors = {name: weight.detach() for name, weight in weights.items()}
    save_file({**tensors, "loss": torch.tensor(metrics.loss)}, output_dir / f"{rank}.safetensors")

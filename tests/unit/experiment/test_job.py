"""Dev metrics and debug dumps."""

import json

import pytest
import torch
from safetensors.torch import load_file

from heedful.attention.auxiliary_losses import CoverageLoss
from heedful.data.text.batching import Batch, SourceBatch
from heedful.experiment.job import MAX_DEBUG_DUMPS, write_debug_dump
from heedful.experiment.validation import compute_dev_metrics
from heedful.tasks.translation.task import TASK
from heedful.training.distributed import get_rng_states
from tests.catalogue import batch, build, store


def dev_metrics(model, batches):
    return compute_dev_metrics(TASK, model, batches)


def test_dev_metrics_are_means_over_targets_for_any_batching():
    model, dataset = build("gru, attend-then-step"), store()
    whole = dev_metrics(model, [batch(dataset, list(range(7)))])
    parts = dev_metrics(model, [batch(dataset, [row], extra=2) for row in range(7)])
    assert parts == pytest.approx(whole)
    assert list(whole) == ["loss", "accuracy"]


def test_dev_metrics_use_no_dropout_and_no_gradient():
    model = build("gru, attend-then-step").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    batches = [batch(store(), [0, 1])]
    assert dev_metrics(model, batches) == dev_metrics(model, batches)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dev_loss_has_no_auxiliary_losses():
    model, batches = build("gru, attend-then-step"), [batch(store(), [0, 1])]
    plain = dev_metrics(model, batches)
    model.decoder.wiring.attention.auxiliary_losses.append(CoverageLoss(5.0))
    assert model(batches[0]).auxiliary_losses["coverage"] > 0
    assert dev_metrics(model, batches) == plain


def test_debug_dump_holds_batches_random_states_and_metadata(tmp_path):
    micro_batches = [batch(store(), [0, 1]), batch(store(), [2])]
    states = get_rng_states()
    metadata = {"step": 7, "problem": "loss is nan"}
    path = write_debug_dump(tmp_path, micro_batches, states, metadata)
    assert path == tmp_path / "step-00000007"
    for index, expected in enumerate(micro_batches):
        tensors = load_file(path / f"batch-{index}.safetensors")
        tokens, lengths, inputs, targets = (tensors[str(field)] for field in range(4))
        restored = Batch(SourceBatch(tokens, lengths), inputs, targets)
        assert torch.equal(restored.sources.tokens, expected.sources.tokens)
        assert torch.equal(restored.targets, expected.targets)
    assert torch.equal(load_file(path / "rng_states.safetensors")["cpu"], states["cpu"])
    assert json.loads((path / "metadata.json").read_text()) == metadata


def test_number_of_debug_dumps_is_limited(tmp_path):
    micro_batches = [batch(store(), [0])]
    for step in range(1, MAX_DEBUG_DUMPS + 1):
        assert write_debug_dump(tmp_path, micro_batches, {}, {"step": step}) is not None
    assert write_debug_dump(tmp_path, micro_batches, {}, {"step": 99}) is None
    assert len(list(tmp_path.iterdir())) == MAX_DEBUG_DUMPS

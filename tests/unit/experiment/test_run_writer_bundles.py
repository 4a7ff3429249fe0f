import json

import torch
from safetensors.torch import load_file

from heedful.data.batching import Batch, SourceBatch
from heedful.experiment.run_writer import MAX_DEBUG_DUMPS, write_debug_dump
from heedful.training.trainer import get_rng_states
from tests.catalogue import batch, store


def test_a_bundle_holds_the_batches_the_random_numbers_and_the_facts(tmp_path):
    group = [batch(store(), [0, 1]), batch(store(), [2])]
    states = get_rng_states()
    path = write_debug_dump(tmp_path, group, states, {"step": 7, "problem": "the loss is nan"})
    assert path == tmp_path / "step-00000007"
    for number, each in enumerate(group):
        found = load_file(path / f"batch-{number}.safetensors")
        tokens, lengths, inputs, targets = (found[str(place)] for place in range(4))
        again = Batch(SourceBatch(tokens, lengths), inputs, targets)
        assert torch.equal(again.sources.tokens, each.sources.tokens)
        assert torch.equal(again.targets, each.targets)
    assert torch.equal(load_file(path / "random.safetensors")["cpu"], states["cpu"])
    assert json.loads((path / "facts.json").read_text())["problem"] == "the loss is nan"


def test_no_more_than_some_are_kept(tmp_path):
    group = [batch(store(), [0])]
    for step in range(1, MAX_DEBUG_DUMPS + 1):
        assert write_debug_dump(tmp_path, group, {}, {"step": step}) is not None
    assert write_debug_dump(tmp_path, group, {}, {"step": 99}) is None
    assert len(list(tmp_path.iterdir())) == MAX_DEBUG_DUMPS

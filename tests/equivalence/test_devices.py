"""A GPU computes what the CPU computes."""

import pytest
import torch

import heedful
from heedful.pytree import map_tensors
from tests.catalogue import SYSTEMS, TAGGERS, batch, build, store, tagged_store
from tests.commands import write_recipe

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SYSTEMS)
def test_gpu_outputs_match_cpu(name):
    model, examples = build(name), batch(store(), [0, 3, 5])
    on_cpu = model(examples, need_weights=True)
    on_gpu = model.cuda()(map_tensors(lambda tensor: tensor.cuda(), examples), need_weights=True)
    torch.testing.assert_close(on_gpu.log_probs.cpu(), on_cpu.log_probs)
    torch.testing.assert_close(on_gpu.weights.cpu(), on_cpu.weights)


@pytest.mark.parametrize("name", TAGGERS)
def test_gpu_log_probs_of_tags_match_cpu(name):
    model, examples = build(name), batch(tagged_store(), [0, 3, 5])
    on_cpu = model(examples).log_probs
    on_gpu = model.cuda()(map_tensors(lambda tensor: tensor.cuda(), examples)).log_probs
    torch.testing.assert_close(on_gpu.cpu(), on_cpu)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_gpu_translations_match_cpu(trained, beam_size):
    texts = ["a b c", "", "h g f e d", "b"]
    on_cpu = heedful.load(trained, device="cpu").translate(texts, beam_size=beam_size)
    on_gpu = heedful.load(trained, device="cuda").translate(texts, beam_size=beam_size)
    assert [each.text for each in on_cpu] == [each.text for each in on_gpu]


def test_run_trained_on_gpu_loads_on_cpu(tmp_path):
    recipe = write_recipe(tmp_path, steps=20, every=10)
    heedful.train(str(recipe), tmp_path / "run", device="cuda")
    assert heedful.load(tmp_path / "run", device="cpu").translate(["a"])

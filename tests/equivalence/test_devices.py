"""What a GPU computes is what the CPU computes."""

import pytest
import torch

import heedful
from heedful.pytree import map_tensors
from tests.catalogue import SYSTEMS, batch, build, store
from tests.commands import write_recipe

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_gpu_computes_what_the_cpu_does(name):
    model, examples = build(name), batch(store(), [0, 3, 5])
    here = model(examples, need_weights=True)
    there = model.cuda()(map_tensors(lambda tensor: tensor.cuda(), examples), need_weights=True)
    torch.testing.assert_close(there.log_probs.cpu(), here.log_probs)
    torch.testing.assert_close(there.weights.cpu(), here.weights)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_gpu_says_what_the_cpu_does(trained, beam):
    texts = ["a b c", "", "h g f e d", "b"]
    here = heedful.load(trained, device="cpu").translate(texts, beam=beam)
    there = heedful.load(trained, device="cuda").translate(texts, beam=beam)
    assert [each.text for each in here] == [each.text for each in there]


def test_training_on_a_gpu_is_gone_on_with_on_a_gpu(tmp_path):
    recipe = write_recipe(tmp_path, steps=20, every=10)
    heedful.train(str(recipe), tmp_path / "run", device="cuda")
    assert heedful.load(tmp_path / "run", device="cpu").translate(["a"])

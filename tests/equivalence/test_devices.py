"""A GPU computes what the CPU computes."""

import pytest
import torch

import heedful
from heedful.attention.edits import AttentionEdit, find_attention, with_edits
from heedful.pytree import map_tensors
from tests.catalogue import DIVERSE_SYSTEMS, SYSTEMS, TAGGERS, batch, build, store, tagged_store
from tests.commands import write_recipe

pytestmark = pytest.mark.gpu
FORCED = AttentionEdit(step=1, set={0: 1.0})


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


@pytest.mark.parametrize("name", DIVERSE_SYSTEMS)
def test_gpu_outputs_of_edited_models_match_cpu(name):
    model, examples = build(name), batch(store(), [2])
    sites = [site for site in find_attention(model) if site.why_not(FORCED) is None]
    edits = [FORCED.model_copy(update={"layer": site.path}) for site in sites]
    on_cpu = with_edits(model, edits)(examples).log_probs
    moved = map_tensors(lambda tensor: tensor.cuda(), examples)
    on_gpu = with_edits(model.cuda(), edits)(moved).log_probs
    torch.testing.assert_close(on_gpu.cpu(), on_cpu)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_gpu_explanations_match_cpu(trained, beam_size):
    on_cpu, on_gpu = (heedful.load(trained, device=device) for device in ("cpu", "cuda"))
    options = on_cpu.parse_options({"beam_size": beam_size})
    first, second = (each.explain("a b c d", options, edits=[FORCED]) for each in (on_cpu, on_gpu))
    assert first.result.tokens == second.result.tokens
    weights = (torch.tensor(each.layers[0].weights) for each in (first, second))
    torch.testing.assert_close(*weights, rtol=1e-2, atol=1e-3)  # a GPU multiplies in TF32
    effects = (torch.tensor(each.checks[0].effects["uniform"]) for each in (first, second))
    torch.testing.assert_close(*effects, rtol=1e-2, atol=1e-3)


def test_run_trained_on_gpu_loads_on_cpu(tmp_path):
    recipe = write_recipe(tmp_path, steps=20, every=10)
    heedful.train(str(recipe), tmp_path / "run", device="cuda")
    assert heedful.load(tmp_path / "run", device="cpu").translate(["a"])

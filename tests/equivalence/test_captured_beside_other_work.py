"""Captured steps equal plain ones, whatever else the process does on the GPU between replays."""

import copy

import pytest
import torch
from torch import nn

from heedful.acceleration.registry import accelerate
from heedful.data.text.batching import SourceBatch
from heedful.recipes import load_recipe
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.tasks.task_data import BatchShape, VocabSizes
from heedful.training.distributed import get_rng_states, set_rng_states
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.step_capture import CapturedUpdate
from heedful.training.trainer import Trainer

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
VOCAB_SIZES = VocabSizes(1000, 1000)
NUM_ROWS, LENGTH = 64, 24  # products that need a workspace
MODELS = ["transformer-2017-base", "bahdanau-2015"]


def overwrite_free_memory():
    """Fill all memory that the allocator can reuse, and some that is new."""
    blocks = [torch.full((2**20 * size,), 1e30, device=GPU) for size in (1, 2, 8, 16, 32)]
    torch.cuda.synchronize()
    del blocks


def build(name, dropout=True):
    recipe = load_recipe(name)
    torch.manual_seed(0)
    model = recipe.task.build_model(recipe, VOCAB_SIZES).to(GPU)
    for module in model.modules():
        if isinstance(module, nn.Dropout) and not dropout:
            module.p = 0.0
    return recipe, model


def build_trainer(name):
    recipe, model = build(name, dropout=False)
    optimizer = torch.optim.AdamW(model.train().parameters(), fused=True)
    objective = CrossEntropyObjective(label_smoothing=0.1)
    trainer = Trainer(model, objective, optimizer, lambda step: 1e-5, device=GPU)
    shape = BatchShape(LENGTH, LENGTH)
    return trainer, recipe.task.data.dummy_batch(recipe.model, VOCAB_SIZES, shape, NUM_ROWS)


def compile_another_model():
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).to(GPU)
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        model.zero_grad(set_to_none=True)
        compiled(torch.randn(64, 512, device=GPU)).sum().backward()


def free_workspaces():
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def capture_another_graph():
    inputs, weight = torch.randn(512, 512, device=GPU), torch.randn(512, 512, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inputs @ weight
    graph.replay()


def change_random_states():
    states = get_rng_states()
    torch.manual_seed(7)
    torch.rand(3, device=GPU)
    set_rng_states(states)


def train_another_model():
    trainer, batch = build_trainer("luong-2015-dot")
    trainer.captured_update = CapturedUpdate(trainer, lambda line: None)
    for _ in range(3):
        trainer.train_step([batch])


OTHER_WORK = {
    "compile": compile_another_model,
    "free workspaces": free_workspaces,
    "capture": capture_another_graph,
    "random states": change_random_states,
    "second model": train_another_model,
}
each_work = pytest.mark.parametrize("work", OTHER_WORK.values(), ids=OTHER_WORK)


@each_work
@pytest.mark.parametrize("name", MODELS)
def test_captured_training_steps_equal_plain_ones_beside_other_work(name, work):
    messages = []
    plain, batch = build_trainer(name)
    captured, _ = build_trainer(name)
    captured.captured_update = CapturedUpdate(captured, messages.append)
    for _ in range(5):
        expected, metrics = plain.train_step([batch]), captured.train_step([batch])
        assert metrics.loss == pytest.approx(expected.loss, rel=1e-3)
        work()
        overwrite_free_memory()
    assert messages == ["training steps are captured as CUDA graphs, one per batch shape"]


@each_work
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_captured_search_equals_plain_search_beside_other_work(name, beam_size, work):
    _, model = build(name)
    model = model.eval()
    captured = accelerate(copy.deepcopy(model), GPU)
    tokens = torch.randint(4, 1000, (NUM_ROWS, LENGTH), device=GPU)
    sources = SourceBatch(tokens, torch.full((NUM_ROWS,), LENGTH, device=GPU))
    options = {
        "beam_size": beam_size,
        "max_lengths": torch.full_like(sources.lengths, 12),
        "length_penalty": LengthPenalty(0.6),
        "options": BeamSearchOptions(),
    }
    expected = [found[0] for found in model.search(sources, **options)]
    for _ in range(4):
        outputs = [found[0] for found in captured.search(sources, **options)]
        scores = [hypothesis.score for hypothesis in outputs]
        assert scores == pytest.approx([best.score for best in expected], rel=1e-3)
        work()
        overwrite_free_memory()
    assert captured._chain_cache._chains
    assert captured._chain_cache.plain_reason == ""

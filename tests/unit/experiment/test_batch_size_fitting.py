"""The largest batch that fits: measured for real, in processes of its own."""

import random
import re

import pytest
import torch
from rich.console import Console

from heedful.errors import ConfigError
from heedful.experiment import load_data
from heedful.experiment.batch_size import (
    find_largest_batch_size,
    with_largest_batch_size,
    with_saved_batch_size,
)
from heedful.experiment.environment import resident_memory
from heedful.experiment.memory_trials import (
    BatchShape,
    MemoryProbe,
    MemoryTrial,
    MemoryTrialProcess,
)
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.training.distributed import SINGLE_PROCESS
from tests.commands import write_recipe
from tests.running_text import write_text_recipe

CPU = torch.device("cpu")
MIB = 1 << 20
QUIET = Console(quiet=True)


@pytest.fixture
def wide(tmp_path):
    """A recipe and a corpus of which one batch takes some hundred MiB: many words, long lines."""
    path = write_recipe(tmp_path)
    chance = random.Random(1)
    words = [f"w{number}" for number in range(1500)]
    for side in ("source", "target"):
        lines = [" ".join(chance.choices(words, k=30)) for _ in range(1200)]
        (tmp_path / f"{side}.txt").write_text("\n".join(lines) + "\n")
    recipe = load_recipe(str(path), [])
    run = Run(tmp_path / "run")
    return recipe, load_data(recipe, run, QUIET), run


@pytest.mark.faults
def test_the_chosen_batch_fits_when_tried_and_one_half_larger_would_not(wide):
    recipe, corpora, _ = wide
    told = []
    limit = resident_memory() + 300 * MIB
    size = find_largest_batch_size(
        recipe, corpora, CPU, memory_limit=limit, log_message=told.append
    )
    asked = MemoryProbe.from_recipe(recipe, corpora)
    with MemoryTrialProcess(recipe, asked.vocab_sizes) as process:
        form = asked.worst_shape(process.saved_activation_bytes)
        rows = size // sum(form)
        few, most = process.peak_bytes(form, rows // 4), process.peak_bytes(form, rows)
    assert rows < asked.max_batch_size
    assert most <= 300 * MIB
    assert most + (most - few) / (rows - rows // 4) * rows / 2 > 0.8 * 300 * MIB
    assert re.search(r"in tokens: .* took \d+ MiB, beside the program itself", told[0])
    assert "room is 80 % of the 300 MiB free: 240 MiB" in told[1]
    assert f"mlm_probability: training.batching.max_tokens={size} (the recipe has 512)" in told[2]
    assert "the learning rate of 0.01 was chosen for 512" in told[3]


def test_text_is_fitted_in_streams_as_far_as_there_are_and_recorded(tmp_path):
    recipe = load_recipe(str(write_text_recipe(tmp_path)), [])
    run = Run(tmp_path / "run")
    corpora = load_data(recipe, run, QUIET)
    told = []
    found = with_largest_batch_size(
        recipe, corpora, run, CPU, SINGLE_PROCESS, limit=None, log_message=told.append
    )
    size = found.data.lm_batching.batch_size
    assert size == len(corpora.train) // 16
    assert f"mlm_probability: data.lm_batching.batch_size={size} (the recipe has 4)" in told[2]
    assert corpora.recipe == run.read_recipe() == found
    assert with_saved_batch_size(recipe, run) == found


def test_a_run_that_is_only_beginning_has_no_recorded_batch(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), [])
    assert with_saved_batch_size(recipe, Run(tmp_path / "run")) == recipe


@pytest.mark.faults
def test_no_room_at_all_is_said_and_random_numbers_are_left_alone(wide):
    recipe, corpora, _ = wide
    state = torch.random.get_rng_state()
    with pytest.raises(ConfigError, match="no room for even one row of the worst texts"):
        find_largest_batch_size(
            recipe, corpora, CPU, memory_limit=resident_memory() + MIB, log_message=print
        )
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_worst_form_is_the_one_with_most_target_where_logits_weigh_most(wide):
    recipe, corpora, _ = wide
    asked = MemoryProbe.from_recipe(recipe, corpora)._replace(
        shapes=[BatchShape(30, 10), BatchShape(20, 20), BatchShape(10, 30)]
    )
    trial = MemoryTrial(recipe, asked.vocab_sizes, CPU)
    assert asked.worst_shape(trial.saved_activation_bytes) == BatchShape(10, 30)


def test_bytes_kept_grow_in_proportion_to_rows(wide):
    recipe, corpora, _ = wide
    trial = MemoryTrial(recipe, MemoryProbe.from_recipe(recipe, corpora).vocab_sizes, CPU)
    two, four, eight = (trial.saved_activation_bytes(BatchShape(6, 8), rows) for rows in (2, 4, 8))
    assert (eight - four) / 2 == pytest.approx(four - two, rel=0.02)
    assert four - two > 2 * 8 * 1500 * 4  # at least what was said of each word, at each place


@pytest.mark.gpu
def test_a_gpu_is_asked_until_it_refuses(wide):
    recipe, corpora, _ = wide
    device = torch.device("cuda")
    told = []
    size = find_largest_batch_size(
        recipe, corpora, device, memory_limit=400 * MIB, log_message=told.append
    )
    assert "did not" in told[0]
    assert "fitted" in told[0]
    asked = MemoryProbe.from_recipe(recipe, corpora)
    trial = MemoryTrial(recipe, asked.vocab_sizes, device)
    form = asked.worst_shape(trial.saved_activation_bytes)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trial.run_update(form, size // sum(form))
    assert torch.cuda.max_memory_allocated() <= 400 * MIB

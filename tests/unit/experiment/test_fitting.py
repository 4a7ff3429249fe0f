"""The largest batch that fits: measured for real, in processes of its own."""

import random
import re

import pytest
import torch
from rich.console import Console

from heedful.corpora import read_corpora
from heedful.errors import ConfigError
from heedful.experiment.demands import Demand
from heedful.experiment.fitting import fit_batch, fitted, with_recorded_batch
from heedful.experiment.trials import Form, Trial, TrialProcess
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.training.memory import resident_memory
from heedful.training.ranks import ALONE
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
    return recipe, read_corpora(recipe, run, QUIET), run


@pytest.mark.faults
def test_the_chosen_batch_fits_when_tried_and_one_half_larger_would_not(wide):
    recipe, corpora, _ = wide
    told = []
    limit = resident_memory() + 300 * MIB
    size = fit_batch(recipe, corpora, CPU, limit=limit, tell=told.append)
    asked = Demand.by(recipe, corpora)
    with TrialProcess(recipe, asked.sizes) as process:
        form = asked.worst(process.saved)
        rows = size // sum(form)
        few, most = process.peak(form, rows // 4), process.peak(form, rows)
    assert rows < asked.most
    assert most <= 300 * MIB
    assert most + (most - few) / (rows - rows // 4) * rows / 2 > 0.8 * 300 * MIB
    assert re.search(r"in tokens: .* took \d+ MiB, beside the program itself", told[0])
    assert "room is 80 % of the 300 MiB free: 240 MiB" in told[1]
    assert f"chosen: training.batching.max_tokens={size} (the recipe has 512)" in told[2]
    assert "the learning rate of 0.01 was chosen for 512" in told[3]


def test_text_is_fitted_in_streams_as_far_as_there_are_and_recorded(tmp_path):
    recipe = load_recipe(str(write_text_recipe(tmp_path)), [])
    run = Run(tmp_path / "run")
    corpora = read_corpora(recipe, run, QUIET)
    told = []
    found = fitted(recipe, corpora, run, CPU, ALONE, limit=None, tell=told.append)
    size = found.data.streams.count
    assert size == len(corpora.train) // 16
    assert f"chosen: data.streams.count={size} (the recipe has 4)" in told[2]
    assert corpora.recipe == run.read_recipe() == found
    assert with_recorded_batch(recipe, run) == found


def test_a_run_that_is_only_beginning_has_no_recorded_batch(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), [])
    assert with_recorded_batch(recipe, Run(tmp_path / "run")) == recipe


@pytest.mark.faults
def test_no_room_at_all_is_said_and_random_numbers_are_left_alone(wide):
    recipe, corpora, _ = wide
    state = torch.random.get_rng_state()
    with pytest.raises(ConfigError, match="no room for even one row of the worst texts"):
        fit_batch(recipe, corpora, CPU, limit=resident_memory() + MIB, tell=print)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_worst_form_is_the_one_with_most_target_where_logits_weigh_most(wide):
    recipe, corpora, _ = wide
    asked = Demand.by(recipe, corpora)._replace(forms=[Form(30, 10), Form(20, 20), Form(10, 30)])
    trial = Trial(recipe, asked.sizes, CPU)
    assert asked.worst(trial.saved) == Form(10, 30)


def test_bytes_kept_grow_in_proportion_to_rows(wide):
    recipe, corpora, _ = wide
    trial = Trial(recipe, Demand.by(recipe, corpora).sizes, CPU)
    two, four, eight = (trial.saved(Form(6, 8), rows) for rows in (2, 4, 8))
    assert (eight - four) / 2 == pytest.approx(four - two, rel=0.02)
    assert four - two > 2 * 8 * 1500 * 4  # at least what was said of each word, at each place


@pytest.mark.gpu
def test_a_gpu_is_asked_until_it_refuses(wide):
    recipe, corpora, _ = wide
    device = torch.device("cuda")
    told = []
    size = fit_batch(recipe, corpora, device, limit=400 * MIB, tell=told.append)
    assert "did not" in told[0]
    assert "fitted" in told[0]
    asked = Demand.by(recipe, corpora)
    trial = Trial(recipe, asked.sizes, device)
    form = asked.worst(trial.saved)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trial.learn(form, size // sum(form))
    assert torch.cuda.max_memory_allocated() <= 400 * MIB

"""--auto-find-batch-size: measured in child processes."""

import io
import math
import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from heedful.data.text.batching import epoch_batches
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.errors import ConfigError, RunError
from heedful.experiment import load_data
from heedful.experiment.batch_size import (
    MemoryTrial,
    Trial,
    TrialProcess,
    find_largest_batch_size,
    is_out_of_memory,
    largest_fitting,
    with_largest_batch_size,
    with_saved_batch_size,
    worst_shape,
)
from heedful.experiment.environment import resident_memory
from heedful.experiment.plan import TrainingPlan
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tasks.pair_data import PairDataModule
from heedful.tasks.task_data import BatchShape, VocabSizes
from heedful.tokenization.ragged_array import RaggedArray
from heedful.training.distributed import SINGLE_PROCESS
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe

CPU = torch.device("cpu")
MIB = 1 << 20
QUIET = Console(quiet=True)
SHAPE = BatchShape(6, 6)


@pytest.fixture
def recipe(tmp_path):
    return load_recipe(str(write_recipe(tmp_path)), [])


@pytest.fixture
def large(tmp_path):
    """A recipe with data of which one batch needs some hundred MiB: many words, long lines."""
    path = write_recipe(tmp_path)
    generator = random.Random(1)
    words = [f"w{index}" for index in range(1500)]
    for side in ("source", "target"):
        lines = [" ".join(generator.choices(words, k=30)) for _ in range(1200)]
        (tmp_path / f"{side}.txt").write_text("\n".join(lines) + "\n")
    recipe = load_recipe(str(path), [])
    return recipe, load_data(recipe, Run(tmp_path / "run"), QUIET)


def trial_job(recipe, sizes, *, max_bytes=1 << 40):
    return MemoryTrial(recipe, sizes, "cpu", max_bytes)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 2 * 10**6))
def test_search_finds_the_largest_that_fits_in_few_trials(start, max_rows, capacity):
    trials = []

    def fits(rows):
        trials.append(rows)
        return rows <= capacity

    result = largest_fitting(fits, start, max_rows)
    assert result <= capacity
    assert max(trials) <= max_rows
    if capacity >= max_rows:
        assert result == max_rows
    else:
        assert result >= math.floor(capacity / 1.05) or capacity - result <= 1
    assert len(trials) <= 2 * math.log2(2 * max_rows) + 2


@pytest.mark.faults
@pytest.mark.slow
def test_batch_size_fits_the_limit_and_one_half_larger_does_not(large):
    recipe, data_module = large
    messages = []
    limit = resident_memory() + 300 * MIB
    size = find_largest_batch_size(
        recipe, data_module, CPU, memory_limit=limit, log=messages.append
    )
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    shapes = recipe.task.data.worst_case_shapes(data_module)
    with TrialProcess(trial_job(recipe, sizes)) as process:
        shape = worst_shape(shapes, process.activation_bytes)
        rows = size // sum(shape)
        small, full = process.peak_bytes(shape, rows // 4), process.peak_bytes(shape, rows)
    assert rows < recipe.task.data.max_rows(data_module)
    assert full <= 300 * MIB
    assert full + (full - small) / (rows - rows // 4) * rows / 2 > 0.8 * 240 * MIB
    pattern = r"auto batch size: longest sequences \(\d+ \+ \d+ tokens\), in tokens: .*fits"
    assert re.match(pattern, messages[0])
    assert messages[1].startswith("auto batch size: memory budget: ")
    assert f"training.batching.max_tokens={size} (the recipe has 512)" in messages[2]
    assert "the learning rate of 0.01 was chosen for 512" in messages[3]


@pytest.mark.wide  # another process imports torch
def test_batch_size_of_text_is_limited_by_the_data_and_recorded(tmp_path):
    recipe = load_recipe(str(write_text_recipe(tmp_path)), [])
    run = Run(tmp_path / "run")
    data_module = load_data(recipe, run, QUIET)
    output = io.StringIO()
    plan = TrainingPlan(recipe, run, CPU, Console(file=output, width=1000))
    found = with_largest_batch_size(plan, data_module, SINGLE_PROCESS)
    result = found.recipe
    size = result.data.lm_batching.batch_size
    assert size == len(data_module.train) // 16
    assert f"data.lm_batching.batch_size={size} (the recipe has 4)" in output.getvalue()
    assert data_module.recipe == run.read_recipe() == result
    assert with_saved_batch_size(plan) == plan, "without a checkpoint it starts over"
    run.save_model(nn.Linear(1, 1).state_dict(), step=1)
    assert with_saved_batch_size(plan) == found


def test_new_run_has_no_saved_batch_size(recipe, tmp_path):
    plan = TrainingPlan(recipe, Run(tmp_path / "run"), CPU, QUIET)
    assert with_saved_batch_size(plan) == plan


@pytest.mark.faults
@pytest.mark.slow
def test_too_little_memory_is_reported_and_random_state_is_kept(large):
    recipe, data_module = large
    state = torch.random.get_rng_state()
    with pytest.raises(ConfigError, match="not even one row of the longest sequences"):
        find_largest_batch_size(
            recipe, data_module, CPU, memory_limit=resident_memory() + MIB, log=print
        )
    assert torch.equal(torch.random.get_rng_state(), state)


def test_worst_shape_has_most_targets_where_logits_dominate(large):
    recipe, data_module = large
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    trial = MemoryTrial(recipe, sizes, "cpu").setup(is_shared=False)
    shapes = [BatchShape(30, 10), BatchShape(20, 20), BatchShape(10, 30)]
    assert worst_shape(shapes, trial.activation_bytes) == BatchShape(10, 30)


def test_activation_bytes_are_linear_in_rows(large):
    recipe, data_module = large
    trial = MemoryTrial(recipe, VocabSizes.from_tokenizers(data_module.tokenizers), "cpu").setup(
        is_shared=False
    )
    two, four, eight = (trial.activation_bytes(BatchShape(6, 8), rows) for rows in (2, 4, 8))
    assert (eight - four) / 2 == pytest.approx(four - two, rel=0.02)
    assert four - two > 2 * 8 * 1500 * 4  # at least the log-probabilities


def test_out_of_memory_is_recognized():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes (2, 3) and (4, 5) do not match"))


@pytest.mark.faults
def test_trial_out_of_memory_or_killed_needs_infinite_memory(recipe):
    with TrialProcess(trial_job(recipe, VocabSizes(12, 12))) as process:
        assert 0 < process.peak_bytes(SHAPE, 2) < 1 << 30
        assert process.peak_bytes(SHAPE, 1 << 50) == math.inf
        process._worker._process.kill()
        assert process.peak_bytes(SHAPE, 1 << 51) == math.inf
        assert process.peak_bytes(SHAPE, 2) < 1 << 30, "a new process was started"


@pytest.mark.faults
def test_trial_that_fails_otherwise_raises(recipe):
    with TrialProcess(trial_job(recipe, VocabSizes(0, 0))) as process:
        with pytest.raises(RunError) as caught:
            process.peak_bytes(SHAPE, 2)
        assert "a trial step failed: a worker failed:" in str(caught.value)
        assert str(caught.value).endswith("use the same command without --auto-find-batch-size")


@pytest.mark.faults
def test_memory_limit_makes_allocations_of_the_child_fail(recipe):
    job = trial_job(recipe, VocabSizes(12, 12), max_bytes=200 * MIB)
    with TrialProcess(job) as process:
        assert process.peak_bytes(SHAPE, 2) < 200 * MIB
        assert process.peak_bytes(SHAPE, 1 << 20) == math.inf


@pytest.mark.gpu
def test_batch_size_fits_the_limit_of_a_gpu(large):
    recipe, data_module = large
    device = torch.device("cuda")
    messages = []
    size = find_largest_batch_size(
        recipe, data_module, device, memory_limit=400 * MIB, log=messages.append
    )
    assert "does not" in messages[0]
    assert "fits" in messages[0]
    sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
    trial = MemoryTrial(recipe, sizes, "cuda").setup(is_shared=False)
    shape = worst_shape(recipe.task.data.worst_case_shapes(data_module), trial.activation_bytes)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert trial(Trial(shape, size // sum(shape))) <= 400 * MIB


def dataset(*lengths):
    sides = zip(*lengths, strict=True)
    return InMemoryPairDataset(
        *(RaggedArray.from_sequences([[5] * length for length in side]) for side in sides)
    )


def worst_case_shapes(tmp_path, *lengths):
    recipe = load_recipe(str(write_recipe(tmp_path)), ["training.batching.max_tokens=120"])
    data = dataset(*lengths)
    module = PairDataModule(recipe, None, data, data, fingerprint="")
    return module, set(recipe.task.data.worst_case_shapes(module))


def test_pairs_of_equal_lengths_have_one_worst_shape(tmp_path):
    """BOS or EOS counts, and lengths are rounded up to even ones."""
    _, shapes = worst_case_shapes(tmp_path, *[(n, n) for n in range(1, 10)] * 40)
    assert shapes == {BatchShape(10, 10)}


def test_worst_shapes_include_the_longest_of_each_side(tmp_path):
    _, shapes = worst_case_shapes(
        tmp_path, *[(3, 9)] * 50, *[(9, 3)] * 50, *[(5, 5)] * 50, (13, 13)
    )
    assert shapes == {BatchShape(14, 14), BatchShape(4, 10), BatchShape(10, 4)}


def test_longest_source_and_target_may_be_in_one_batch(tmp_path):
    assert BatchShape(14, 14) in worst_case_shapes(tmp_path, (13, 1), (1, 13))[1]


def test_no_batch_of_any_epoch_is_longer_than_the_longest_shape(tmp_path):
    generator = random.Random(0)
    lengths = [(generator.randint(1, 59), generator.randint(1, 59)) for _ in range(300)]
    module, shapes = worst_case_shapes(tmp_path, *lengths)
    longest = max(shapes, key=sum)
    for epoch in range(5):
        batching = module.recipe.training.batching
        for spec, _, _ in epoch_batches(module.train, batching, seed=0, epoch=epoch):
            assert spec.source_length <= longest.source_length
            assert spec.target_length <= longest.target_length

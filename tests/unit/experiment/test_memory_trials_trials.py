"""Trials: what memory that ran out looks like, and that other failures are not taken for it."""

import math

import pytest
import torch

from heedful.errors import RunError
from heedful.experiment.memory_trials import (
    BatchShape,
    MemoryTrialProcess,
    VocabSizes,
    is_out_of_memory,
)
from heedful.recipes import load_recipe
from tests.commands import write_recipe

SIZES = VocabSizes(12, 12)


@pytest.fixture
def recipe(tmp_path):
    return load_recipe(str(write_recipe(tmp_path)), [])


def test_more_than_any_machine_has_is_memory_that_ran_out():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes (2, 3) and (4, 5) do not go together"))


@pytest.mark.faults
def test_a_trial_that_is_refused_memory_or_killed_took_more_than_there_is(recipe):
    with MemoryTrialProcess(recipe, SIZES) as process:
        small = process.peak_bytes(BatchShape(6, 6), 2)
        assert 0 < small < 1 << 30
        assert process.peak_bytes(BatchShape(6, 6), 1 << 50) == math.inf
        process._process.kill()
        assert process.peak_bytes(BatchShape(6, 6), 2) == math.inf


@pytest.mark.faults
def test_a_trial_that_fails_for_another_reason_says_so(recipe, capfd):
    with MemoryTrialProcess(recipe, VocabSizes(0, 0)) as process, pytest.raises(RunError) as caught:
        process.peak_bytes(BatchShape(6, 6), 2)
    assert "without --auto-find-batch-size" in str(caught.value)
    assert "Error" in capfd.readouterr().err

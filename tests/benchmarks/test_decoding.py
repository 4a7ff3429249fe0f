"""Workloads and peers of the decoding benchmark."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers.environments import NotInstalledError, install
from benchmarks.peers.system import BrokenSystemError, running
from benchmarks.peers.workload import RESERVED, VOCABULARY, Workload, batches

PYTHON = Path(sys.executable)


def test_sources_do_not_depend_on_beam_size():
    assert batches(Workload(1, 4, 10)) == batches(Workload(5, 4, 10))


def test_batches_partition_sources_by_decreasing_length():
    work = batches(Workload(5, 4, 10))
    assert [len(batch) for batch in work] == [4, 4, 2]
    assert all(sorted(batch, key=len, reverse=True) == batch for batch in work)
    alone = [source for batch in batches(Workload(5, 1, 10)) for source in batch]
    assert sorted(alone) == sorted(source for batch in work for source in batch)


def test_sources_contain_no_special_tokens():
    tokens = {
        token for batch in batches(Workload(5, 8, 64)) for source in batch for token in source
    }
    assert min(tokens) >= RESERVED
    assert max(tokens) < VOCABULARY


def test_error_of_a_dead_system_raises():
    with (
        pytest.raises(BrokenSystemError, match=r"^it ended: .*No module named"),
        running("none", PYTHON, "with_nobody"),
    ):
        pass


def test_missing_release_raises():
    with pytest.raises(NotInstalledError, match="No matching distribution found for no-such-peer"):
        install(PYTHON, "--no-index", "no-such-peer==1")

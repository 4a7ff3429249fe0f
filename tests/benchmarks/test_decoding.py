"""The logic of the benchmark of decoding: what systems are given, and how they are compared."""

import sys
from pathlib import Path

import pytest

from benchmarks.decoding import compare
from benchmarks.peers.environments import NotInstalledError, install
from benchmarks.peers.system import BrokenSystemError, running
from benchmarks.peers.workload import RESERVED, VOCABULARY, Task, batches

PYTHON = Path(sys.executable)


def test_every_system_gets_the_same_sources_whatever_the_beam():
    assert batches(Task(1, 4, 10)) == batches(Task(5, 4, 10))


def test_batches_hold_every_source_once_longest_first():
    work = batches(Task(5, 4, 10))
    assert [len(batch) for batch in work] == [4, 4, 2]
    assert all(sorted(batch, key=len, reverse=True) == batch for batch in work)
    alone = [source for batch in batches(Task(5, 1, 10)) for source in batch]
    assert sorted(alone) == sorted(source for batch in work for source in batch)


def test_no_source_holds_a_special_symbol():
    tokens = {token for batch in batches(Task(5, 8, 64)) for source in batch for token in source}
    assert min(tokens) >= RESERVED
    assert max(tokens) < VOCABULARY


def test_we_are_compared_with_the_fastest_of_the_others_round_by_round():
    times = {"ours": [1.0, 2.0, 1.0], "slow": [4.0, 4.0, 4.0], "quick": [2.0, 3.0, 1.5]}
    assert compare(times) == ("quick", [1.5, 1.5, 2.0])


def test_a_system_that_ends_leaves_its_last_words():
    with (
        pytest.raises(BrokenSystemError, match=r"^it ended: .*No module named"),
        running("none", PYTHON, "with_nobody"),
    ):
        pass


def test_a_release_that_cannot_be_had_is_named():
    with pytest.raises(NotInstalledError, match="No matching distribution found for no-such-peer"):
        install(PYTHON, "--no-index", "no-such-peer==1")

"""Which suite runs a test: quick tests are short and limited in number, large families are thinned.

A family is all cases of one parametrized test. Of those that are marked wide or diagonal, CI runs
some, of each test other ones; `make test-all` runs them all. The limits are in pyproject.toml.
"""

import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMITS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["heedful"]["tests"]
SUITES = {"diagonal", "extras", "faults", "gpu", "learning", "slow", "wide"}


def is_quick(item: pytest.Item) -> bool:
    """Return whether `make test` runs the test."""
    return not any(marker.name in SUITES for marker in item.iter_markers())


def thin_families(items: Iterable[pytest.Item]) -> None:
    """Mark the members of a family beyond the limit as slow: those with the largest hashes."""
    families = defaultdict(list)
    for item in items:
        for marker in {"diagonal", "wide"} & {marker.name for marker in item.iter_markers()}:
            if not item.get_closest_marker("slow"):
                families[marker, item.nodeid.partition("[")[0]].append(item)
    for (marker, _), members in families.items():
        members.sort(key=lambda item: crc32(item.nodeid.encode()))
        for item in members[LIMITS[f"{marker}-cases-of-a-test"] :]:
            item.add_marker(pytest.mark.slow)


@contextmanager
def limited_time(item: pytest.Item) -> Iterator[None]:
    """Fail a quick test that takes more processor time than the limit, on CI."""
    start = _processor_seconds()
    yield
    seconds, limit = _processor_seconds() - start, LIMITS["quick-test-seconds"]
    if "CI" in os.environ and seconds > limit and is_quick(item):
        pytest.fail(
            f"takes {seconds:.1f} seconds of processor time, a quick test at most {limit}: "
            "make it smaller, or mark it wide"
        )


def _processor_seconds() -> float:
    """Return the processor time of this process and of children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system

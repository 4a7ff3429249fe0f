"""Trace lines for the coverage where that finds something new.

Tracing doubles the time of a test. The first examples of a property reach the lines that the others
repeat, and so do the first steps of a training and the first members of a parametrized test: the
others are traced until a few in a row have reached no new line. `test_steps.py` traces every model
of the catalogue.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from pathlib import Path

import pytest

NUM_TRACED_EXAMPLES = 3
NUM_TRACED_TRAINING_STEPS = 2
MAX_FRUITLESS_MEMBERS = 2
ALWAYS_TRACED_TESTS = ["equivalence/test_steps.py"]
UNTRACED_TESTS = [  # run the lines of unit tests again
    *("browser", "laws/test_random_configs.py"),
    *("equivalence/test_batch_independence.py", "equivalence/test_resuming.py"),
]
_TESTS = Path(__file__).parent
_num_fruitless: Counter[str] = Counter()  # members in a row, by parametrized test


@contextmanager
def limited_tracing(item: pytest.Item) -> Iterator[None]:
    """Trace a test, a few examples of it, or nothing."""
    tracer = sys.gettrace()
    if tracer is None or _num_lines() == 0:  # nobody traces, or a debugger does
        yield
        return
    _limit_tracing_of_training()
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner_test = handle and handle.inner_test
    if handle:
        handle.inner_test = _traced_a_few_times(inner_test)
    if not _is_traced(item):
        sys.settrace(None)
    before = _num_lines()
    try:
        yield
    finally:
        sys.settrace(tracer)
        family = _family(item)
        _num_fruitless[family] = 0 if _num_lines() > before else _num_fruitless[family] + 1
        if handle:
            handle.inner_test = inner_test


@contextmanager
def untraced() -> Iterator[None]:
    """Do not trace lines: a training loop repeats them."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def _traced_a_few_times(test):
    num_examples = 0

    @wraps(test)
    def run(*args, **kwargs):
        nonlocal num_examples
        num_examples += 1
        if num_examples > NUM_TRACED_EXAMPLES:
            sys.settrace(None)
        return test(*args, **kwargs)

    return run


def _limit_tracing_of_training() -> None:
    trainer = sys.modules.get("heedful.training.trainer")
    if trainer is None or hasattr(trainer.Trainer.start_step, "__wrapped__"):
        return
    start_step = trainer.Trainer.start_step

    @wraps(start_step)
    def start_traced_step(self, micro_batches):
        with nullcontext() if self.step < NUM_TRACED_TRAINING_STEPS else untraced():
            return start_step(self, micro_batches)

    trainer.Trainer.start_step = start_traced_step


def _is_traced(item: pytest.Item) -> bool:
    if _is_below(item.path, tuple(ALWAYS_TRACED_TESTS)):
        return True
    is_fruitless = _num_fruitless[_family(item)] >= MAX_FRUITLESS_MEMBERS
    return not is_fruitless and not _is_below(item.path, tuple(UNTRACED_TESTS))


@cache
def _is_below(test_file: Path, names: tuple[str, ...]) -> bool:
    return any(test_file.is_relative_to(_TESTS / name) for name in names)


def _family(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _num_lines() -> int:
    """Return how many lines, or pairs of lines, were reached; 0 if coverage is not measured."""
    coverage = sys.modules.get("coverage")
    collector = getattr(coverage and coverage.Coverage.current(), "_collector", None)
    return sum(map(len, collector.data.values())) if collector else 0

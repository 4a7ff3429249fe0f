"""Trace lines for the coverage where that finds something new.

Tracing doubles the time of a test. The first examples of a property reach the lines that the others
repeat, and the families over the catalogue run the same models: `test_steps.py` traces them.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NUM_TRACED_EXAMPLES = 5
TRACED_FAMILY = "test_steps.py"


@contextmanager
def limited_tracing(item: pytest.Item) -> Iterator[None]:
    """Trace a few examples of a property, and no model of the catalogue a second time."""
    tracer = sys.gettrace()
    if tracer is None:
        yield
        return
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner_test = handle and handle.inner_test
    if handle:
        handle.inner_test = _traced_a_few_times(inner_test)
    elif _repeats_a_model(item):
        sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        if handle:
            handle.inner_test = inner_test


def _traced_a_few_times(test):
    num_examples = 0

    @functools.wraps(test)
    def run(*args, **kwargs):
        nonlocal num_examples
        num_examples += 1
        if num_examples > NUM_TRACED_EXAMPLES:
            sys.settrace(None)
        return test(*args, **kwargs)

    return run


def _repeats_a_model(item: pytest.Item) -> bool:
    catalogue = sys.modules.get("tests.catalogue")
    if catalogue is None or not hasattr(item, "callspec") or item.path.name == TRACED_FAMILY:
        return False
    name = item.callspec.params.get("name")
    return isinstance(name, str) and name in catalogue.SYSTEMS

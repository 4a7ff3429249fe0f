"""Captures: what must not happen while one is under way."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event

import pytest
import torch

from heedful.acceleration.cuda.graphs import StaticFunction, no_collection


class Node:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.itself = self


def test_garbage_stays_during_a_capture():
    with no_collection():
        garbage = weakref.ref(Node())
        nodes = [Node() for _ in range(3 * gc.get_threshold()[0])]
        assert garbage() is not None
    assert len(nodes) > 0
    assert gc.isenabled()
    gc.collect()
    assert garbage() is None


def test_collections_that_were_off_stay_off():
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.gpu
def test_another_thread_pins_memory_during_captures():
    x, is_done = torch.ones(64, device="cuda"), Event()

    def pin():
        sizes = count(1024, 1024)
        while not is_done.is_set():
            torch.zeros(next(sizes)).pin_memory()

    with ThreadPoolExecutor(1) as pool:
        pinned = pool.submit(pin)
        for _ in range(50):
            StaticFunction(lambda: x * 2).capture(None)
        is_done.set()
        pinned.result()

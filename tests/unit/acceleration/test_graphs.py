"""Captures: what must not happen while one is under way."""

import gc
import weakref

from heedful.acceleration.cuda.graphs import no_collection


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

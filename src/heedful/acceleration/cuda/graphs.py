"""Functions of fixed tensors as CUDA graphs: one launch in place of hundreds.

A graph reads and writes the tensors that it was captured with, so inputs are copied into place.
Invariant: a graph and its function compute the same values.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Generic, TypeVar

import torch

Result = TypeVar("Result")
_IS_CAPTURING = ContextVar("is_capturing", default=False)


class StaticFunction(Generic[Result]):
    """A function whose inputs and outputs stay in the same tensors; without a GPU it just runs."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None

    def capture(self, pool: Any, warm_up: Callable[[], object] | None = None) -> Result:
        """Capture the function; `warm_up` calls it once for what libraries do at the first call."""
        stream, graph = capture_stream(pool), torch.cuda.CUDAGraph()
        with capturing():
            with on_stream(stream):
                (warm_up or self._function)()
            # Products then take a workspace from the pool of the graph, which nobody else can free.
            torch._C._cuda_clearCublasWorkspaces()
            # Thread-local: another thread may pin memory for the next batches meanwhile.
            with no_collection(), torch.cuda.graph(graph, pool, stream, "thread_local"):
                result = self._function()
        self._graph = graph
        return result

    def run(self) -> Result | None:
        """Run the function; a graph returns nothing, as its results are those of `capture`."""
        if self._graph is None:
            return self._function()
        self._graph.replay()
        return None


@cache
def capture_stream(pool: Any) -> torch.cuda.Stream:
    """Return the stream on which all functions of a memory pool are warmed up and captured.

    It is one, since autograd accumulates a gradient on the stream on which a parameter was first
    used. It is not that of other pools, since torch may free the workspace that products of a
    stream have in common when one of its graphs is deleted.
    """
    return torch.cuda.Stream()


def is_capturing() -> bool:
    """Whether a function is captured, or called just before: it must not wait for the GPU."""
    return not torch.compiler.is_compiling() and _IS_CAPTURING.get()


@contextmanager
def capturing() -> Iterator[None]:
    """Let `is_capturing` be true."""
    token = _IS_CAPTURING.set(True)
    try:
        yield
    finally:
        _IS_CAPTURING.reset(token)


@contextmanager
def no_collection() -> Iterator[None]:
    """Let no garbage be collected: a graph that is deleted during a capture makes it fail."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Run work on a stream, after that of the current one and before what follows there."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)


def leave_capture(device: torch.device | str) -> None:
    """Give the default generator a new state.

    After a capture that failed, the old one refuses random numbers outside of a graph.
    """
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())

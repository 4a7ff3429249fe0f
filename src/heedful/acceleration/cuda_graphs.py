"""Functions of fixed tensors as CUDA graphs: one launch in place of hundreds.

A graph reads and writes the tensors that it was captured with, so inputs are copied into place.
Invariant: a graph computes what its function computes.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

Result = TypeVar("Result")


class StaticFunction(Generic[Result]):
    """A function whose inputs and outputs stay in the same tensors; without a GPU it just runs."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None

    def capture(self, pool: Any, warm_up: Callable[[], object] | None = None) -> Result:
        """Capture the function; `warm_up` calls it once for what libraries do at the first call."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            (warm_up or self._function)()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = self._function()
        self._graph = graph
        return result

    def run(self) -> Result | None:
        """Run the function; a graph returns nothing, as its results are those of `capture`."""
        if self._graph is None:
            return self._function()
        self._graph.replay()
        return None


def leave_capture(device: torch.device | str) -> None:
    """Give the default generator a new state.

    After a capture that failed, the old one refuses random numbers outside of a graph.
    """
    index = torch.device(device).index or torch.cuda.current_device()
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())

"""Batches that a thread prepares while the GPU computes, in pinned memory.

Invariant: the batches, their order and the cursor after each are those of the plain stream, so
training resumes at the same batch whether or not batches were prepared ahead.
"""

from collections.abc import Callable, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any

import torch

from heedful.pytree import map_tensors
from heedful.training.state import ResumableBatches
from heedful.training.trainer import Trainer

NUM_PREFETCHED = 8
_POLL_SECONDS = 0.1  # after which a waiting thread looks whether it should end


class PrefetchedBatches:
    """The batches of a stream, prepared ahead; `cursor` follows those that were taken."""

    def __init__(
        self, batches: ResumableBatches, prepare: Callable[[Any], Any] = lambda batch: batch
    ) -> None:
        self.batches = batches
        self._prepare_batch = prepare
        self.cursor = batches.cursor

    def __iter__(self) -> Iterator[Any]:
        prepared: Queue[Any] = Queue(NUM_PREFETCHED)
        stop = Event()
        thread = Thread(target=self._prepare, args=(prepared, stop), daemon=True)
        thread.start()
        try:
            while True:
                batch, cursor, error = _take(prepared, thread)
                if error is not None:
                    raise error
                if cursor is None:
                    return
                self.cursor = cursor
                yield batch
        finally:
            stop.set()
            thread.join()

    def _prepare(self, prepared: Queue[Any], stop: Event) -> None:
        try:
            for batch in self.batches:
                pinned = map_tensors(_pin, self._prepare_batch(batch))
                if not _put(prepared, (pinned, self.batches.cursor, None), stop):
                    return
            _put(prepared, (None, None, None), stop)
        except BaseException as error:  # raised again where batches are taken
            _put(prepared, (None, None, error), stop)


def _take(prepared: Queue[Any], thread: Thread) -> Any:
    while True:
        try:
            return prepared.get(timeout=_POLL_SECONDS)
        except Empty:
            assert thread.is_alive() or not prepared.empty(), "the thread ended without a word"


def _put(prepared: Queue[Any], item: Any, stop: Event) -> bool:
    """Wait for room; return False if no more batches are wanted."""
    while not stop.is_set():
        try:
            prepared.put(item, timeout=_POLL_SECONDS)
        except Full:
            continue
        return True
    return False


def _pin(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


def prefetch(batches: ResumableBatches, trainer: Trainer) -> ResumableBatches:
    """Return the batches, prepared ahead for a GPU; a CPU is busy with the model."""
    is_gpu = torch.device(trainer.device).type == "cuda"
    return PrefetchedBatches(batches, trainer.prepare_batch) if is_gpu else batches

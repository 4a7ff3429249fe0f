import threading
from types import SimpleNamespace

import pytest
import torch

from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import BatchingConfig, BatchStream
from heedful.pytree import map_tensors, tensors_of
from heedful.training.prefetching import NUM_PREFETCHED, PrefetchedBatches, prefetch
from tests.catalogue import store

START = DataCursor(0, 0)


def stream(cursor=START):
    return BatchStream(store(), BatchingConfig(max_tokens=40), seed=1, cursor=cursor)


def take(batches, count):
    taken = []
    for batch in batches:
        taken.append((list(tensors_of(batch)), batches.cursor))
        if len(taken) == count:
            return taken
    return taken


def test_batches_and_cursors_are_those_of_the_stream():
    for plain, ahead in zip(take(stream(), 30), take(PrefetchedBatches(stream()), 30), strict=True):
        torch.testing.assert_close(ahead[0], plain[0], rtol=0, atol=0)
        assert ahead[1] == plain[1]


def test_training_resumes_behind_the_last_batch_taken():
    first = PrefetchedBatches(stream())
    take(first, 7)
    rest = take(PrefetchedBatches(stream(first.cursor)), 5)
    expected = take(stream(), 12)[7:]
    for (tensors, _), (others, _) in zip(rest, expected, strict=True):
        torch.testing.assert_close(tensors, others, rtol=0, atol=0)


class EndingBatches:
    """Two batches, and then an error or the end."""

    cursor = DataCursor(0, 0)

    def __init__(self, error=None):
        self.error = error

    def __iter__(self):
        for index in range(2):
            self.cursor = DataCursor(0, index + 1)
            yield (torch.tensor([index]),)
        if self.error:
            raise self.error


def test_error_of_the_stream_is_raised_behind_the_last_batch():
    batches = PrefetchedBatches(EndingBatches(ValueError("a corrupt shard")))
    taken = []
    with pytest.raises(ValueError, match="a corrupt shard"):
        taken.extend(batches)
    assert len(taken) == 2


def test_stream_that_ends_ends():
    assert [int(batch[0]) for batch in PrefetchedBatches(EndingBatches())] == [0, 1]


def test_thread_ends_with_the_iteration_and_prefetches_a_bounded_number():
    source = stream()
    before = threading.active_count()
    iterator = iter(PrefetchedBatches(source))
    next(iterator)
    iterator.close()
    assert threading.active_count() == before
    assert source.cursor.epoch * 2 + source.cursor.batch <= NUM_PREFETCHED + 3


def test_batches_padded_by_the_thread():
    def repeat_rows(batch):
        return map_tensors(lambda rows: torch.cat([rows, rows]), batch)

    (plain, _), (ahead, _) = take(stream(), 1) + take(PrefetchedBatches(stream(), repeat_rows), 1)
    torch.testing.assert_close(ahead, [torch.cat([rows, rows]) for rows in plain])


def test_cpu_prepares_nothing_ahead():
    batches = stream()
    assert prefetch(batches, SimpleNamespace(device="cpu")) is batches

"""Batch streams resume exactly."""

from itertools import islice

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.shuffling import DataCursor
from heedful.data.text.batching import BatchingConfig, BatchStream
from tests.catalogue import store

CONFIG = BatchingConfig(max_tokens=60, bucket_size=16)


def stream(cursor):
    return BatchStream(store(40), CONFIG, seed=5, cursor=cursor)


def same(one, other):
    return torch.equal(one.decoder_inputs, other.decoder_inputs) and torch.equal(
        one.sources.tokens, other.sources.tokens
    )


@given(num_used=st.integers(0, 60))
def test_batch_stream_resumes_from_any_cursor(num_used):
    whole = stream(DataCursor(0, 0))
    batches = list(islice(whole, num_used + 5))
    interrupted = stream(DataCursor(0, 0))
    for _ in islice(interrupted, num_used):
        pass
    resumed = list(islice(stream(interrupted.cursor), 5))
    assert all(map(same, batches[num_used:], resumed))


def test_batch_stream_reshuffles_every_epoch():
    batch_stream = stream(DataCursor(0, 0))
    batches = iter(batch_stream)
    first = []
    while batch_stream.cursor.epoch == 0:
        first.append(next(batches))
    assert batch_stream.cursor == DataCursor(1, 0)
    assert sum(len(batch.decoder_inputs) for batch in first) == 40


def test_cursor_without_bucket_resumes_at_same_batch():
    interrupted = stream(DataCursor(0, 0))
    for _ in islice(interrupted, 9):
        pass
    epoch, batch, bucket, before = interrupted.cursor
    assert bucket > 0 < before < batch
    resumed = islice(stream(interrupted.cursor), 20), islice(stream(DataCursor(epoch, batch)), 20)
    assert all(map(same, *resumed))

from itertools import islice

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch_stream import (
    BatchStream,
    DataCursor,
    fingerprint,
    split_held_out,
    tokenize_pairs_in_memory,
)
from heedful.data.batching import BatchingConfig
from heedful.data.filtering import FilterConfig, FilterReason
from heedful.data.pair_dataset import Pair
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig
from tests.catalogue import store

CONFIG = BatchingConfig(max_tokens=60, bucket_size=16)


def stream(position):
    return BatchStream(store(40), CONFIG, seed=5, cursor=position)


def same(one, other):
    return torch.equal(one.decoder_inputs, other.decoder_inputs) and torch.equal(
        one.sources.tokens, other.sources.tokens
    )


@given(taken=st.integers(0, 60))
def test_batch_stream_resumes_from_any_cursor(taken):
    whole = stream(DataCursor(0, 0))
    batches = list(islice(whole, taken + 5))
    begun = stream(DataCursor(0, 0))
    for _ in islice(begun, taken):
        pass
    resumed = list(islice(stream(begun.cursor), 5))
    assert all(map(same, batches[taken:], resumed))


def test_batch_stream_reshuffles_every_epoch():
    source = stream(DataCursor(0, 0))
    batches = iter(source)
    first = []
    while source.cursor.epoch == 0:
        first.append(next(batches))
    assert source.cursor == DataCursor(1, 0)
    assert sum(len(batch.decoder_inputs) for batch in first) == 40


def test_cursor_without_bucket_resumes_at_same_batch():
    begun = stream(DataCursor(0, 0))
    for _ in islice(begun, 9):
        pass
    epoch, batch, window, before = begun.cursor
    assert window > 0 < before < batch
    resumed = islice(stream(begun.cursor), 20), islice(stream(DataCursor(epoch, batch)), 20)
    assert all(map(same, *resumed))


@given(count=st.integers(2, 200), seed=st.integers(0, 99))
def test_split_held_out_is_small_and_disjoint(count, seed):
    pairs = [Pair(str(number), "") for number in range(count)]
    learned, held_out = split_held_out(pairs, seed=seed, location="here")
    assert len(held_out) == max(1, count // 20)
    assert sorted(learned + held_out) == sorted(pairs)
    assert not set(learned) & set(held_out)


def test_tokenize_pairs_in_memory_filters_and_reports():
    pairs = [Pair("a b", "x"), Pair("", "y"), Pair("a b c d", "z")]
    text = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ).train(*zip(*pairs, strict=True))
    kept, report = tokenize_pairs_in_memory(
        pairs, text, FilterConfig(max_length=3), location="data"
    )
    assert len(kept) == report.num_kept == 1
    assert text.source.decode(kept.source.get(0)) == "a b"
    assert report.counts[FilterReason.EMPTY] == report.counts[FilterReason.TOO_LONG] == 1


def test_fingerprint_differs_between_corpora():
    assert fingerprint(store(7)) == fingerprint(store(7))
    assert fingerprint(store(7)) != fingerprint(store(8))

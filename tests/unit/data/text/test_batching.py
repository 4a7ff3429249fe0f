"""Batches contain every example once, respect max_tokens, have little padding, resume exactly."""

import gzip
import itertools
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.shuffling import DataCursor, with_last_flag
from heedful.data.text.batching import (
    BatchingConfig,
    BatchSpec,
    BatchStream,
    collate,
    collate_sources,
    epoch_batches,
    padded_lengths,
)
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.tokenization.ragged_array import RaggedArray, offsets_from_lengths
from heedful.tokenization.vocabulary import BOS, EOS, PAD
from tests.catalogue import store

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=200).map(
    lambda pairs: tuple(np.array(pairs).T)
)


def dataset_of(case):
    """A dataset of sequences with these lengths, BOS or EOS included."""
    sides = (
        RaggedArray(np.zeros(sum(side), np.int32), offsets_from_lengths(side - 1)) for side in case
    )
    return InMemoryPairDataset(*sides)


def batch_specs(case, config, seed=0, epoch=0, min_rows=1):
    batches = epoch_batches(dataset_of(case), config, seed=seed, epoch=epoch, min_rows=min_rows)
    return [spec for spec, *_ in batches]


@pytest.mark.parametrize("min_rows", [1, 2])
@given(case=lengths, max_tokens=st.integers(1, 2000), bucket_size=st.integers(2, 300))
def test_batches_partition_examples_within_max_tokens(min_rows, case, max_tokens, bucket_size):
    config = BatchingConfig(max_tokens=max_tokens, bucket_size=bucket_size)
    specs = batch_specs(case, config, min_rows=min_rows)
    rows = np.concatenate([spec.rows for spec in specs])
    assert sorted(rows.tolist()) == list(range(len(case[0])))
    fits_three = 6 * padded_lengths(max(side.max() for side in case))[-1] <= max_tokens
    for spec in specs:
        assert case[0][spec.rows].max() <= spec.source_length
        assert case[1][spec.rows].max() <= spec.target_length
        assert spec.num_tokens <= max_tokens or len(spec.rows) == 1
        is_single = len(spec.rows) == 1 < min_rows
        assert not is_single or not fits_three or len(case[0]) == 1


@given(max_length=st.integers(1, 5000))
def test_padded_lengths_are_few_and_tight(max_length):
    steps = padded_lengths(max_length)
    assert steps[-1] >= max_length
    assert len(steps) <= 8 * max(1, max_length.bit_length())
    lengths = np.arange(1, max_length + 1)
    padded = steps[np.searchsorted(steps, lengths)]
    assert ((padded - lengths) <= np.maximum(1, lengths / 8)).all()


def test_epoch_batches_are_deterministic_and_differ_by_epoch():
    case = tuple(np.random.default_rng(0).integers(1, 30, (2, 500)))
    config = BatchingConfig(max_tokens=300)

    def rows(epoch):
        return [spec.rows.tolist() for spec in batch_specs(case, config, seed=3, epoch=epoch)]

    assert rows(0) == rows(0)
    assert rows(0) != rows(1)


@given(case=lengths, bucket_size=st.integers(1, 60), bucket=st.integers(0, 20))
def test_epoch_batches_resume_at_any_bucket(case, bucket_size, bucket):
    config = BatchingConfig(max_tokens=300, bucket_size=bucket_size)
    full = list(epoch_batches(dataset_of(case), config, seed=1, epoch=2))
    resumed = list(epoch_batches(dataset_of(case), config, seed=1, epoch=2, bucket=bucket))
    expected = [batch for batch in full if batch.bucket >= bucket]
    assert [batch.spec.rows.tolist() for batch in resumed] == [
        batch.spec.rows.tolist() for batch in expected
    ]
    assert [batch[1:] for batch in resumed] == [batch[1:] for batch in expected]


def test_batches_not_sorted_by_length():
    case = tuple(np.random.default_rng(0).integers(1, 30, (2, 2000)))
    lengths = [spec.target_length for spec in batch_specs(case, BatchingConfig(max_tokens=400))]
    rising = sum(a <= b for a, b in itertools.pairwise(lengths))
    assert 0.3 < rising / len(lengths) < 0.7


def test_padding_is_below_ten_percent_and_shapes_recur_on_multi30k(heedful_data):
    sides = [
        gzip.decompress((heedful_data / "multi30k" / f"train.{language}.gz").read_bytes()).decode()
        for language in ("de", "en")
    ]
    words = np.array([[len(line.split()) + 1 for line in side.splitlines()] for side in sides])
    config = BatchingConfig()
    specs = batch_specs(tuple(words), config)
    padded = sum(spec.num_tokens for spec in specs)
    assert 1 - words.sum() / padded < 0.10
    shapes = {(spec.source_length, spec.target_length) for spec in specs}
    assert len(shapes) < len(specs) / 2


@pytest.mark.parametrize("max_tokens", [4096, 16384])
def test_padding_is_below_ten_percent_on_realistic_lengths(max_tokens):
    """Lengths as in a caption corpus: about 14 words, correlated between the sides."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9, 1.6, 40_000), 4, 50).astype(int)
    target = np.clip(source + random.normal(0, 2.3, 40_000), 3, 50).astype(int)
    specs = batch_specs((source, target), BatchingConfig(max_tokens=max_tokens))
    assert 1 - (source.sum() + target.sum()) / sum(spec.num_tokens for spec in specs) < 0.10


@pytest.mark.parametrize("count", range(4))
def test_with_last_flag_marks_only_last_item(count):
    marks = list(with_last_flag(range(count)))
    assert marks == [(item, item == count - 1) for item in range(count)]


CONFIG = BatchingConfig(max_tokens=60, bucket_size=16)


def batch_stream(cursor):
    return BatchStream(store(40), CONFIG, seed=5, cursor=cursor)


def same(one, other):
    return torch.equal(one.decoder_inputs, other.decoder_inputs) and torch.equal(
        one.sources.tokens, other.sources.tokens
    )


@given(num_used=st.integers(0, 60))
def test_batch_stream_resumes_from_any_cursor(num_used):
    whole = batch_stream(DataCursor(0, 0))
    batches = list(islice(whole, num_used + 5))
    interrupted = batch_stream(DataCursor(0, 0))
    for _ in islice(interrupted, num_used):
        pass
    resumed = list(islice(batch_stream(interrupted.cursor), 5))
    assert all(map(same, batches[num_used:], resumed))


def test_batch_stream_reshuffles_every_epoch():
    stream = batch_stream(DataCursor(0, 0))
    batches = iter(stream)
    first = []
    while stream.cursor.epoch == 0:
        first.append(next(batches))
    assert stream.cursor == DataCursor(1, 0)
    assert sum(len(batch.decoder_inputs) for batch in first) == 40


def test_cursor_without_bucket_resumes_at_same_batch():
    interrupted = batch_stream(DataCursor(0, 0))
    for _ in islice(interrupted, 9):
        pass
    epoch, batch, bucket, before = interrupted.cursor
    assert bucket > 0 < before < batch
    resumed = (
        islice(batch_stream(interrupted.cursor), 20),
        islice(batch_stream(DataCursor(epoch, batch)), 20),
    )
    assert all(map(same, *resumed))


STORE = InMemoryPairDataset(
    RaggedArray.from_sequences([[7, 8, 9], [5]]), RaggedArray.from_sequences([[6], [4, 4, 4]])
)


def test_collate_adds_bos_and_eos():
    batch = collate(STORE, BatchSpec(np.array([1, 0]), 5, 4))
    assert batch.sources.tokens.tolist() == [[5, EOS, PAD, PAD, PAD], [7, 8, 9, EOS, PAD]]
    assert batch.sources.lengths.tolist() == [2, 4]
    assert batch.decoder_inputs.tolist() == [[BOS, 4, 4, 4], [BOS, 6, PAD, PAD]]
    assert batch.targets.tolist() == [[4, 4, 4, EOS], [6, EOS, PAD, PAD]]


def test_batch_counts_exclude_padding():
    batch = collate(STORE, BatchSpec(np.array([0, 1]), 9, 9))
    assert batch.num_targets == 2 + 4
    assert batch.num_tokens == (4 + 2) + (2 + 4)


def test_collate_sources_pads_to_longest():
    sources = collate_sources([[5, 6], [7, 8, 9], []])
    assert sources.tokens.tolist() == [[5, 6, EOS, PAD], [7, 8, 9, EOS], [EOS, PAD, PAD, PAD]]
    assert sources.lengths.tolist() == [3, 4, 1]

"""Batches contain every example once, respect max_tokens, and have little padding."""

import gzip
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.shuffling import with_last_flag
from heedful.data.text.batching import BatchingConfig, epoch_batches, padded_lengths
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.tokenization.ragged_array import RaggedArray, offsets_from_lengths

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=200).map(
    lambda pairs: tuple(np.array(pairs).T)
)


def dataset_of(case):
    """A dataset of sequences with these lengths, BOS or EOS included."""
    sides = (
        RaggedArray(np.zeros(sum(side), np.int32), offsets_from_lengths(side - 1)) for side in case
    )
    return InMemoryPairDataset(*sides)


def batch_specs(case, config, seed=0, epoch=0):
    return [spec for spec, *_ in epoch_batches(dataset_of(case), config, seed=seed, epoch=epoch)]


@given(case=lengths, max_tokens=st.integers(120, 2000), bucket_size=st.integers(1, 300))
def test_batches_partition_examples_within_max_tokens(case, max_tokens, bucket_size):
    specs = batch_specs(case, BatchingConfig(max_tokens=max_tokens, bucket_size=bucket_size))
    rows = np.concatenate([spec.rows for spec in specs])
    assert sorted(rows.tolist()) == list(range(len(case[0])))
    for spec in specs:
        assert case[0][spec.rows].max() <= spec.source_length
        assert case[1][spec.rows].max() <= spec.target_length
        assert spec.num_tokens <= max_tokens or len(spec.rows) == 1


@given(case=lengths, max_tokens=st.integers(1, 2000), bucket_size=st.integers(2, 300))
def test_batches_of_at_least_two_rows_partition_examples(case, max_tokens, bucket_size):
    config = BatchingConfig(max_tokens=max_tokens, bucket_size=bucket_size)
    specs = [
        indexed.spec
        for indexed in epoch_batches(dataset_of(case), config, seed=0, epoch=0, min_rows=2)
    ]
    rows = np.concatenate([spec.rows for spec in specs])
    assert sorted(rows.tolist()) == list(range(len(case[0])))
    longest = padded_lengths(max(side.max() for side in case))[-1]
    fits_three = 6 * longest <= max_tokens
    for spec in specs:
        assert case[0][spec.rows].max() <= spec.source_length
        assert case[1][spec.rows].max() <= spec.target_length
        assert spec.num_tokens <= max_tokens or len(spec.rows) == 1
        assert len(spec.rows) > 1 or not fits_three or len(case[0]) == 1


@given(case=lengths)
def test_example_longer_than_max_tokens_gets_own_batch(case):
    specs = batch_specs(case, BatchingConfig(max_tokens=1))
    assert [len(spec.rows) for spec in specs] == [1] * len(case[0])


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


@pytest.mark.parametrize("name", ["max_tokens", "bucket_size"])
def test_batching_config_rejects_non_positive_sizes(name):
    with pytest.raises(ValueError, match="greater than 0"):
        BatchingConfig(**{name: 0})


@pytest.mark.parametrize("count", range(4))
def test_with_last_flag_marks_only_last_item(count):
    marks = list(with_last_flag(range(count)))
    assert marks == [(item, item == count - 1) for item in range(count)]

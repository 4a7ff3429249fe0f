"""Batches hold every example once, fit the budget, and are hardly padded."""

import gzip
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batching import BatchingConfig, epoch_batches, padded_lengths
from heedful.data.pair_dataset import InMemoryPairDataset, RaggedArray, offsets_from_lengths

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=200).map(
    lambda pairs: tuple(np.array(pairs).T)
)


def of_lengths(case):
    """A store of sequences that are so long with the symbol that begins or ends them."""
    sides = (
        RaggedArray(np.zeros(sum(side), np.int32), offsets_from_lengths(side - 1)) for side in case
    )
    return InMemoryPairDataset(*sides)


def epoch(case, config, seed=0, number=0, window=0):
    found = epoch_batches(of_lengths(case), config, seed=seed, epoch=number, bucket=window)
    return [placed.spec for placed in found]


@given(case=lengths, budget=st.integers(120, 2000), window=st.integers(1, 300))
def test_batches_partition_examples_within_max_tokens(case, budget, window):
    found = epoch(case, BatchingConfig(max_tokens=budget, bucket_size=window))
    rows = np.concatenate([shape.rows for shape in found])
    assert sorted(rows.tolist()) == list(range(len(case[0])))
    for shape in found:
        assert case[0][shape.rows].max() <= shape.source_length
        assert case[1][shape.rows].max() <= shape.target_length
        assert shape.num_tokens <= budget or len(shape.rows) == 1


@given(case=lengths)
def test_example_longer_than_max_tokens_gets_own_batch(case):
    found = epoch(case, BatchingConfig(max_tokens=1))
    assert [len(shape.rows) for shape in found] == [1] * len(case[0])


@given(longest=st.integers(1, 5000))
def test_padded_lengths_are_few_and_tight(longest):
    steps = padded_lengths(longest)
    assert steps[-1] >= longest
    assert len(steps) <= 8 * max(1, longest.bit_length())
    wanted = np.arange(1, longest + 1)
    given = steps[np.searchsorted(steps, wanted)]
    assert ((given - wanted) <= np.maximum(1, wanted / 8)).all()


def test_epoch_batches_are_deterministic_and_differ_by_epoch():
    case = tuple(np.random.default_rng(0).integers(1, 30, (2, 500)))
    config = BatchingConfig(max_tokens=300)

    def rows(number):
        return [shape.rows.tolist() for shape in epoch(case, config, seed=3, number=number)]

    assert rows(0) == rows(0)
    assert rows(0) != rows(1)


@given(case=lengths, window=st.integers(1, 60), skipped=st.integers(0, 20))
def test_epoch_batches_resume_at_any_bucket(case, window, skipped):
    config = BatchingConfig(max_tokens=300, bucket_size=window)
    whole = list(epoch_batches(of_lengths(case), config, seed=1, epoch=2))
    begun = list(epoch_batches(of_lengths(case), config, seed=1, epoch=2, bucket=skipped))
    left = [each for each in whole if each.bucket >= skipped]
    assert [each.spec.rows.tolist() for each in begun] == [each.spec.rows.tolist() for each in left]
    assert [each[1:] for each in begun] == [each[1:] for each in left]


def test_batches_are_not_sorted_by_length():
    case = tuple(np.random.default_rng(0).integers(1, 30, (2, 2000)))
    seen = [shape.target_length for shape in epoch(case, BatchingConfig(max_tokens=400))]
    rising = sum(a <= b for a, b in itertools.pairwise(seen))
    assert 0.3 < rising / len(seen) < 0.7


def test_padding_is_below_ten_percent_and_shapes_recur_on_multi30k(heedful_data):
    sides = [
        gzip.decompress((heedful_data / "multi30k" / f"train.{language}.gz").read_bytes()).decode()
        for language in ("de", "en")
    ]
    words = np.array([[len(line.split()) + 1 for line in side.splitlines()] for side in sides])
    config = BatchingConfig()
    found = epoch(tuple(words), config)
    padded = sum(shape.num_tokens for shape in found)
    assert 1 - words.sum() / padded < 0.10
    shapes = {(shape.source_length, shape.target_length) for shape in found}
    assert len(shapes) < len(found) / 2


def test_padding_is_below_ten_percent_on_realistic_lengths():
    """Lengths drawn like a caption corpus: about 14 words, the sides alike but not equal."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9, 1.6, 20_000), 4, 50).astype(int)
    target = np.clip(source + random.normal(0, 2.3, 20_000), 3, 50).astype(int)
    found = epoch((source, target), BatchingConfig())
    assert 1 - (source.sum() + target.sum()) / sum(s.num_tokens for s in found) < 0.10


@pytest.mark.parametrize("name", ["max_tokens", "bucket_size"])
def test_batching_config_rejects_non_positive_sizes(name):
    with pytest.raises(ValueError, match="greater than 0"):
        BatchingConfig(**{name: 0})

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text.pair_dataset import CachedDataset, InMemoryPairDataset
from heedful.tokenization.ragged_array import RaggedArray
from tests.catalogue import store

sequences = st.lists(st.lists(st.integers(4, 1000), max_size=8), max_size=12)


@given(texts=sequences)
def test_ragged_array_round_trip(texts):
    array = RaggedArray.from_sequences(texts)
    assert len(array) == len(texts)
    assert [array.get(index) for index in range(len(texts))] == texts
    assert array.lengths.tolist() == [len(text) for text in texts]


@given(texts=sequences.filter(bool), data=st.data())
def test_padded_returns_rows_and_fill(texts, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=5)))
    width = max(len(texts[row]) for row in rows) + data.draw(st.integers(0, 3))
    matrix = RaggedArray.from_sequences(texts).select(rows).padded(width, fill=0)
    expected = [texts[row] + [0] * (width - len(texts[row])) for row in rows]
    assert matrix.tolist() == expected


@given(texts=sequences.filter(bool), data=st.data())
def test_select_keeps_requested_order(texts, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8)), dtype=int)
    pairs = InMemoryPairDataset(
        RaggedArray.from_sequences(texts), RaggedArray.from_sequences(reversed(texts))
    )
    selected = pairs.select(rows)
    assert [selected.source.get(index) for index in range(len(rows))] == [
        texts[row] for row in rows
    ]
    assert [selected.target.get(index) for index in range(len(rows))] == [
        texts[-1 - row] for row in rows
    ]
    assert [side.tolist() for side in pairs.sequence_lengths(rows)] == [
        side.lengths.tolist() for side in selected
    ]


@given(texts=sequences.filter(bool), data=st.data())
def test_cached_dataset_same_as_dataset(texts, data):
    some_rows = st.lists(st.integers(0, len(texts) - 1), max_size=8, unique=True)
    pairs = InMemoryPairDataset(
        RaggedArray.from_sequences(texts), RaggedArray.from_sequences(reversed(texts))
    )
    cached = CachedDataset(pairs)
    assert len(cached) == len(pairs)
    assert cached.for_epoch(3) is cached
    for _ in range(3):
        bucket, rows = (np.array(data.draw(some_rows), dtype=int) for _ in range(2))
        for one, other in zip(
            cached.sequence_lengths(bucket), pairs.sequence_lengths(bucket), strict=True
        ):
            assert one.tolist() == other.tolist()
        for one, other in zip(cached.select(rows), pairs.select(rows), strict=True):
            assert one.values.tolist() == other.values.tolist()
            assert one.offsets.tolist() == other.offsets.tolist()


def test_fingerprint_differs_between_corpora():
    assert store(7).fingerprint() == store(7).fingerprint()
    assert store(7).fingerprint() != store(8).fingerprint()

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.pair_dataset import CachedDataset, InMemoryPairDataset, RaggedArray

sequences = st.lists(st.lists(st.integers(4, 1000), max_size=8), max_size=12)


@given(texts=sequences)
def test_ragged_array_round_trip(texts):
    packed = RaggedArray.from_sequences(texts)
    assert len(packed) == len(texts)
    assert [packed.get(index) for index in range(len(texts))] == texts
    assert packed.lengths.tolist() == [len(text) for text in texts]


@given(texts=sequences.filter(bool), data=st.data())
def test_padded_returns_rows_and_fill(texts, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=5)))
    width = max(len(texts[row]) for row in rows) + data.draw(st.integers(0, 3))
    rectangle = RaggedArray.from_sequences(texts).padded(rows, width, fill=0)
    wanted = [texts[row] + [0] * (width - len(texts[row])) for row in rows]
    assert rectangle.tolist() == wanted


@given(texts=sequences.filter(bool), data=st.data())
def test_select_keeps_requested_order(texts, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8)), dtype=int)
    pairs = InMemoryPairDataset(
        RaggedArray.from_sequences(texts), RaggedArray.from_sequences(reversed(texts))
    )
    taken = pairs.select(rows)
    assert [taken.source.get(place) for place in range(len(rows))] == [texts[row] for row in rows]
    assert [taken.target.get(place) for place in range(len(rows))] == [
        texts[-1 - row] for row in rows
    ]
    assert [side.tolist() for side in pairs.sequence_lengths(rows)] == [
        side.lengths.tolist() for side in taken
    ]


@given(texts=sequences.filter(bool), data=st.data())
def test_cached_dataset_matches_dataset(texts, data):
    some_rows = st.lists(st.integers(0, len(texts) - 1), max_size=8, unique=True)
    pairs = InMemoryPairDataset(
        RaggedArray.from_sequences(texts), RaggedArray.from_sequences(reversed(texts))
    )
    held = CachedDataset(pairs)
    assert len(held) == len(pairs)
    assert held.for_epoch(3) is held
    for _ in range(3):
        window, rows = (np.array(data.draw(some_rows), dtype=int) for _ in range(2))
        for one, other in zip(
            held.sequence_lengths(window), pairs.sequence_lengths(window), strict=True
        ):
            assert one.tolist() == other.tolist()
        for one, other in zip(held.select(rows), pairs.select(rows), strict=True):
            assert one.values.tolist() == other.values.tolist()
            assert one.offsets.tolist() == other.offsets.tolist()

"""Duplicates pairs on disk are those pairs in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text import filtering
from heedful.data.text.filtering import DuplicateFinder, mark_duplicates
from heedful.data.text.pair_dataset import Pair, combine_hashes, hash_texts

letters = st.sampled_from("abc")
pair_lists = st.lists(st.builds(Pair, letters, letters), max_size=30)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(filtering, "_BUFFER_SIZE", 4)


@given(pairs=pair_lists, size=st.integers(1, 7), data=st.data())
def test_duplicate_finder_matches_in_memory_search(pairs, size, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hashes")
    rows = range(len(pairs))
    held_out = sorted(data.draw(st.sets(st.sampled_from(rows)))) if pairs else []
    (folder / "hashes").mkdir()
    finder = DuplicateFinder(folder / "hashes")
    for start in range(0, len(pairs), size):
        finder.add(combine_hashes(hash_texts(pairs[start : start + size])))
    finder.write_duplicate_mask(folder / "mask", held_out)
    mask = np.fromfile(folder / "mask", np.uint8)
    train_rows = [row for row in rows if row not in held_out]
    hashes = combine_hashes(hash_texts([pairs[row] for row in train_rows]))
    is_duplicate = mark_duplicates(hashes, set())
    assert np.flatnonzero(mask).tolist() == [
        row for row, duplicate in zip(train_rows, is_duplicate, strict=True) if duplicate
    ]
    assert len(mask) == len(pairs)

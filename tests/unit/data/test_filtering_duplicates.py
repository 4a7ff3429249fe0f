import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import filtering
from heedful.data.filtering import DuplicateFinder, SeenPairs, hash_pairs
from heedful.data.pair_dataset import Pair

letters = st.sampled_from("abc")
pairs = st.lists(st.builds(Pair, letters, letters), max_size=30)


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(filtering, "_BUFFER_SIZE", 4)


@given(found=pairs, size=st.integers(1, 7), data=st.data())
def test_duplicate_finder_matches_in_memory_search(found, size, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hashes")
    rows = range(len(found))
    held_out = sorted(data.draw(st.sets(st.sampled_from(rows)))) if found else []
    (folder / "hashes").mkdir()
    hashes = DuplicateFinder(folder / "hashes")
    for first in range(0, len(found), size):
        hashes.add(hash_pairs(found[first : first + size]))
    hashes.write_duplicate_mask(folder / "repeats", held_out)
    repeats = np.fromfile(folder / "repeats", np.uint8)
    learned = [row for row in rows if row not in held_out]
    again = SeenPairs().mark_duplicates(hash_pairs([found[row] for row in learned]))
    assert np.flatnonzero(repeats).tolist() == [
        row for row, is_again in zip(learned, again, strict=True) if is_again
    ]
    assert len(repeats) == len(found)

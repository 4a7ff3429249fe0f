"""Letters copied, reversed and sorted, and positions in order."""

from itertools import islice

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.toy_corpora import MAX_LENGTH

EXPECTED = {
    "copy": lambda letters: letters,
    "reverse": lambda letters: letters[::-1],
    "sort": lambda letters: "".join(sorted(letters)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sequence_targets_transformed_letters(name):
    for source, target in islice(get_corpus(name).pairs("train"), 2000):
        letters = source.replace(" ", "")
        assert " ".join(letters) == source
        assert " ".join(EXPECTED[name](letters)) == target


@pytest.mark.parametrize("name", EXPECTED)
def test_sequence_lengths_cover_range(name):
    lengths = {len(pair.source.split()) for pair in islice(get_corpus(name).pairs("train"), 2000)}
    assert lengths == set(range(1, MAX_LENGTH + 1))


@pytest.mark.parametrize("name", EXPECTED)
def test_longer_split_has_more_letters_than_any_other(name):
    lengths = {len(pair.source.split()) for pair in islice(get_corpus(name).pairs("longer"), 200)}
    assert lengths == set(range(MAX_LENGTH + 1, MAX_LENGTH + 6))


def test_argsort_targets_are_positions_that_sort_the_letters():
    for source, target in islice(get_corpus("argsort").pairs("train"), 2000):
        letters, positions = source.split(), [int(position) for position in target.split()]
        assert sorted(positions) == list(range(1, len(letters) + 1))
        assert "".join(letters[position - 1] for position in positions) == "".join(sorted(letters))

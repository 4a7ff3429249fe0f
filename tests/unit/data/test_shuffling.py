"""The order of an epoch is a permutation keyed by (seed, epoch)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.shuffling import permute_indices

sizes, keys = st.integers(1, 3000), st.integers(0, 2**62)


@given(size=sizes, seed=keys, epoch=keys)
def test_permute_indices_is_a_permutation(size, seed, epoch):
    order = permute_indices(np.arange(size), size, seed=seed, epoch=epoch)
    assert sorted(order.tolist()) == list(range(size))


@given(size=sizes, seed=keys, epoch=keys)
def test_permute_indices_is_elementwise(size, seed, epoch):
    full = permute_indices(np.arange(size), size, seed=seed, epoch=epoch)
    subset = np.arange(0, size, 7)
    assert permute_indices(subset, size, seed=seed, epoch=epoch).tolist() == full[subset].tolist()


def test_permute_indices_differs_by_seed_and_epoch():
    orders = {
        tuple(permute_indices(np.arange(50), 50, seed=seed, epoch=epoch).tolist())
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_permute_indices_mixes_well():
    """Rank correlation with the identity is within 5 standard deviations of zero."""
    size = 4000
    for seed in range(10):
        order = permute_indices(np.arange(size), size, seed=seed, epoch=0)
        correlation = np.corrcoef(np.arange(size), order)[0, 1]
        assert abs(correlation) < 5 / np.sqrt(size)

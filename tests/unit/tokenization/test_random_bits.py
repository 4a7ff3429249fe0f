"""Keyed random numbers are uniform, independent and elementwise."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.subword_regularization import UNIFORM_RESOLUTION, derive_keys, random_bits

KEYS = np.arange(20_000, dtype=np.uint64)


@given(key=st.integers(0, 2**64 - 1), index=st.integers(0, 2**40))
def test_random_bits_are_elementwise(key, index):
    keys = np.array([key, 5, key], dtype=np.uint64)
    together = random_bits(keys, np.array([index, index + 1, index]))
    assert together[0] == together[2] == random_bits(keys[:1], index)[0]
    assert (together < UNIFORM_RESOLUTION).all()


def test_random_bits_are_uniform():
    for samples in (
        random_bits(KEYS, 0),
        random_bits(KEYS, 7),
        random_bits(KEYS[:1], np.arange(20_000)),
    ):
        counts = np.bincount((samples >> np.uint64(28)).astype(np.int64), minlength=16)
        chi_square = ((counts - 1250) ** 2 / 1250).sum()
        assert chi_square < 37.7  # 15 degrees of freedom: exceeded once in 1,000


def test_random_bits_of_one_key_uncorrelated():
    first, second = (random_bits(KEYS, index) / UNIFORM_RESOLUTION - 0.5 for index in (0, 1))
    correlation = 12 * (first * second).mean()
    assert abs(correlation) < 4 / np.sqrt(len(KEYS))


def test_derived_keys_are_distinct():
    assert len(np.unique(derive_keys(KEYS, 3))) == len(KEYS)
    assert not (derive_keys(KEYS, 3) == derive_keys(KEYS, 4)).any()

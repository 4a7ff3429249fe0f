"""Id sequences for tests of subword regularization, and a chi-square test of their frequencies."""

import numpy as np
import torch

from heedful.tokenization.ragged_array import RaggedArray

MIN_P_VALUE = 1e-4
"""Counts with a smaller p-value count as wrong; keys are fixed, so tests are deterministic."""


def sequences(*rows):
    """Concatenate rows of ids."""
    return RaggedArray.from_sequences(rows)


def rows_of(sequences):
    """Return the rows of concatenated ids."""
    return [tuple(sequences.get(index)) for index in range(len(sequences))]


def keys(count):
    """Return distinct keys."""
    return np.arange(count, dtype=np.uint64)


def p_value(counts, expected):
    """Return the p-value of counts under expected probabilities (chi-square test)."""
    assert counts.keys() <= expected.keys()
    total = sum(counts.values())
    means = {item: total * prob for item, prob in expected.items() if total * prob >= 5}
    pairs = [(counts[item], mean) for item, mean in means.items()]
    rest = total - sum(means.values())
    if rest >= 5:
        pairs.append((total - sum(counts[item] for item in means), rest))
    chi_square = sum((count - mean) ** 2 / mean for count, mean in pairs)
    degrees = torch.tensor(max(1, len(pairs) - 1), dtype=torch.float64)
    return float(torch.special.gammaincc(degrees / 2, torch.tensor(chi_square).double() / 2))

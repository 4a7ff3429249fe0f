"""Texts in pieces, for tests that cut them anew, and whether they come as often as they should."""

import numpy as np
import torch

from heedful.tokenization.segments import IdSequences

TOO_RARE = 1e-4
"""Counts that chance brings about more rarely than this are thought wrong; keys are fixed."""


def sequences(*rows):
    """Rows of ids, one after the other."""
    flat = np.array([each for row in rows for each in row], dtype=np.int32)
    return IdSequences(flat, np.array([len(row) for row in rows], dtype=np.int64))


def rows_of(found):
    """The rows that sequences hold."""
    ends = found.lengths.cumsum()
    return [
        tuple(found.ids[end - length : end].tolist())
        for end, length in zip(ends, found.lengths, strict=True)
    ]


def keys(number):
    """As many unlike keys."""
    return np.arange(number, dtype=np.uint64)


def how_rare(counts, expected):
    """How often chance gives counts as far from their probabilities as these (chi-square test)."""
    assert counts.keys() <= expected.keys()
    total = sum(counts.values())
    often = {each: total * chance for each, chance in expected.items() if total * chance >= 5}
    pairs = [(counts[each], mean) for each, mean in often.items()]
    rest = total - sum(often.values())
    if rest >= 5:
        pairs.append((total - sum(counts[each] for each in often), rest))
    squares = sum((count - mean) ** 2 / mean for count, mean in pairs)
    freedom = torch.tensor(max(1, len(pairs) - 1), dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, torch.tensor(squares).double() / 2))

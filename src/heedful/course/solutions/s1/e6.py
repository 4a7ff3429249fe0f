"""Count, do not time (code, 10 minutes).

A decoder with attention writes as many words as the source has. Count calls of the recurrent cell
(encoder and decoder) and compared pairs of states, for several lengths. With which power of the
length does each number grow? An exponent is the slope of log(count) against log(length).
"""

import math


def count(length):
    """Return the calls of cells and the pairs that are scored."""
    cells = scores = 0
    for _ in range(length):
        cells += 1  # encoder
    for _ in range(length):
        scores += length  # blank
        cells += 1  # decoder
    return cells, scores


def exponents(lengths):
    """Return the exponents of cells and pairs, by the first and the last length."""
    cells, pairs = zip(*map(count, lengths), strict=True)
    span = math.log(lengths[-1] / lengths[0])
    of_cells = math.log(cells[-1] / cells[0]) / span  # blank
    of_pairs = math.log(pairs[-1] / pairs[0]) / span  # blank
    return of_cells, of_pairs

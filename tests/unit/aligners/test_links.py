"""Symmetrization against a second implementation on matrices, and the Pharaoh format."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.aligners.links import (
    Link,
    Symmetrization,
    format_pharaoh,
    parse_alignment,
    symmetrize,
)

some_links = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: Link(*pair)))
NEIGHBORS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def link_matrix(links, size=6):
    """Links as a matrix (target, source), with a margin for neighbors outside."""
    matrix = np.zeros((size + 1, size + 1), bool)
    for source, target in links:
        matrix[target, source] = True
    return matrix


def grow_diagonal(grown, union):
    """Add neighbors of every link until nothing changes, in place."""
    before = ~grown
    while (grown != before).any():
        before = grown.copy()
        for row, column in np.ndindex(grown.shape):
            for down, right in NEIGHBORS if grown[row, column] else []:
                y, x = row + down, column + right
                is_uncovered = not grown[y].any() or not grown[:, x].any()
                grown[y, x] |= union[y, x] and is_uncovered


def symmetrize_matrices(forward, backward, method):
    """Grow-diag and its final steps on matrices, as the authors describe them."""
    forward, backward = link_matrix(forward), link_matrix(backward)
    grown = forward & backward if method != "union" else forward | backward
    if method.startswith("grow"):
        grow_diagonal(grown, forward | backward)
    for direction in (forward, backward) if "final" in method else ():
        for row, column in np.argwhere(direction):
            is_free = [not grown[row].any(), not grown[:, column].any()]
            grown[row, column] |= all(is_free) if method.endswith("and") else any(is_free)
    return {Link(int(column), int(row)) for row, column in np.argwhere(grown)}


@pytest.mark.parametrize("method", get_args(Symmetrization))
@given(forward=some_links, backward=some_links)
def test_symmetrization_equals_matrix_implementation(method, forward, backward):
    links = symmetrize(set(forward), set(backward), method)
    assert links == symmetrize_matrices(forward, backward, method)
    assert forward & backward <= links <= forward | backward


@given(links=some_links)
def test_pharaoh_format_round_trips(links):
    assert parse_alignment(format_pharaoh(links)).sure == links

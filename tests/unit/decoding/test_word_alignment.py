"""Word alignments: links by hand, against a second implementation, and their invariants."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from heedful.decoding.word_alignment import (
    Link,
    argmax_links,
    extract_links,
    format_pharaoh,
    get_aligner,
    grow_diag_final_and,
    symmetrized_links,
    threshold_links,
    to_word_links,
    word_alignment,
)
from heedful.errors import ConfigError
from heedful.evaluation.annotation_metrics import parse_alignment
from tests.unit.decoding.untrained import build_translator

some_links = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: Link(*pair)))
NEIGHBORS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
shapes = st.tuples(st.integers(0, 5), st.integers(1, 5))
some_weights = arrays(np.float32, shapes, elements=st.floats(0, 1, width=32))
# Three tokens over three words and EOS.
WEIGHTS = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.3, 0.35, 0.25], [0.1, 0.2, 0.1, 0.6]])


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


def grow_on_matrices(forward, backward):
    """Grow-diag-final-and on matrices, as the authors describe it."""
    forward, backward = link_matrix(forward), link_matrix(backward)
    grown = forward & backward
    grow_diagonal(grown, forward | backward)
    for direction in (forward, backward):
        for row, column in np.argwhere(direction):
            grown[row, column] |= not grown[row].any() and not grown[:, column].any()
    return {Link(int(column), int(row)) for row, column in np.argwhere(grown)}


def test_argmax_links_to_largest_weight_but_not_to_eos():
    assert extract_links(WEIGHTS, argmax_links) == [(0, 0), (2, 1)]


def test_threshold_links_every_weight_above_it():
    assert extract_links(WEIGHTS, partial(threshold_links, threshold=0.2)) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 1),
        (1, 2),
    ]


def test_symmetrized_links_grow_from_the_intersection():
    # Rows give 0-0 and 2-1, columns 0-0, 1-1 and 2-1; 1-1 is a neighbor, and word 1 has no link.
    assert extract_links(WEIGHTS, symmetrized_links) == [(0, 0), (1, 1), (2, 1)]


def test_token_without_attention_has_no_link():
    weights = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert extract_links(weights, argmax_links) == [(1, 1)]
    assert extract_links(np.zeros((0, 3)), symmetrized_links) == []


@given(forward=some_links, backward=some_links)
def test_grow_diag_final_and_equals_matrix_implementation(forward, backward):
    assert grow_diag_final_and(forward, backward) == grow_on_matrices(forward, backward)


@given(forward=some_links, backward=some_links)
def test_symmetrized_links_lie_between_intersection_and_union(forward, backward):
    grown = grow_diag_final_and(forward, backward)
    assert forward & backward <= grown <= forward | backward


@given(weights=some_weights)
def test_links_are_sorted_and_exclude_eos(weights):
    for aligner in (argmax_links, partial(threshold_links, threshold=0.3), symmetrized_links):
        links = extract_links(weights, aligner)
        assert links == sorted(links, key=lambda link: (link.target, link.source))
        assert all(link.source < weights.shape[1] - 1 for link in links)
        assert all(link.target < len(weights) for link in links)


@given(links=some_links)
def test_pharaoh_format_round_trips(links):
    assert parse_alignment(format_pharaoh(links)).sure == links


def test_word_links_leave_out_tokens_without_word():
    links = [Link(0, 0), Link(1, 0), Link(2, 1), Link(3, 2)]
    assert to_word_links(links, [0, 0, -1, 1], [0, 1, 1]) == [(0, 0), (1, 1)]


def test_words_of_a_translation_are_linked_by_their_tokens():
    (result,) = build_translator("character", min_length=4).translate(["the dog"])
    links = word_alignment(result, partial(threshold_links, threshold=0.01))
    assert links
    assert all(link.source < 2 and link.target < len(result.text.split()) for link in links)


@pytest.mark.parametrize(
    ("name", "aligner"),
    [
        ("argmax", argmax_links),
        ("symmetrized", symmetrized_links),
        ("threshold=0.2", partial(threshold_links, threshold=0.2)),
    ],
)
def test_aligner_is_selected_by_name(name, aligner):
    assert get_aligner(name, location="--alignment-method")(WEIGHTS) == aligner(WEIGHTS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "argmin",
            "unknown alignment method 'argmin'; did you mean 'argmax'?\n"
            "  choose from: argmax, symmetrized, threshold=0.2 (or another weight)",
        ),
        *(
            (
                f"threshold{value and '='}{value}",
                f"the threshold must be above 0 and at most 1, but is {value!r}\n"
                "  write threshold=0.2, for example",
            )
            for value in ("", "2", "nan")
        ),
    ],
)
def test_invalid_aligner_is_reported(name, message):
    with pytest.raises(ConfigError) as caught:
        get_aligner(name, location="--alignment-method")
    assert str(caught.value) == f"--alignment-method: {message}"

"""Alignments: links by hand, against a slow form, and by their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from heedful.decoding.word_alignment import (
    ArgmaxAligner,
    Link,
    SymmetrizedAligner,
    ThresholdAligner,
    extract_links,
    format_pharaoh,
    get_aligner,
    grow_diag_final_and,
    parse_pharaoh,
    to_word_links,
    word_alignment,
)
from heedful.errors import ConfigError, DataError
from tests.unit.decoding.untrained import translator

LINKS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: Link(*pair)))
NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 5))
MODEL_FILE = arrays(np.float32, SHAPES, elements=st.floats(0, 1, width=32))
# Three tokens over three words and the end.
BY_HAND = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.3, 0.35, 0.25], [0.1, 0.2, 0.1, 0.6]])


def table(links, size=6):
    """Mark links in a table of targets and sources, with a margin that neighbours fall into."""
    marks = np.zeros((size + 1, size + 1), bool)
    for source, target in links:
        marks[target, source] = True
    return marks


def grow_slowly(grown, union):
    """Look at every field, and from every link at its neighbours, until nothing is new."""
    before = ~grown
    while (grown != before).any():
        before = grown.copy()
        for row, column in np.ndindex(grown.shape):
            for down, right in NEIGHBOURS if grown[row, column] else []:
                y, x = row + down, column + right
                is_unconstrained = not grown[y].any() or not grown[:, x].any()
                grown[y, x] |= union[y, x] and is_unconstrained


def slowly(one, other):
    """Grow an alignment on tables, as its authors wrote it down."""
    first, second = table(one), table(other)
    grown = first & second
    grow_slowly(grown, first | second)
    for side in (first, second):
        for row, column in np.argwhere(side):
            grown[row, column] |= not grown[row].any() and not grown[:, column].any()
    return {Link(int(column), int(row)) for row, column in np.argwhere(grown)}


def test_argmax_links_each_token_to_where_it_looked_most_but_none_to_the_end():
    assert extract_links(BY_HAND, ArgmaxAligner()) == [(0, 0), (2, 1)]


def test_a_threshold_links_wherever_there_is_weight_enough():
    assert extract_links(BY_HAND, ThresholdAligner(0.2)) == [(0, 0), (1, 0), (1, 1), (2, 1), (1, 2)]


def test_symmetrised_links_grow_from_what_both_sides_choose():
    # Rows choose 0-0 and 2-1, columns 0-0, 1-1 and 2-1; 1-1 is a neighbour, and word 1 has no link.
    assert extract_links(BY_HAND, SymmetrizedAligner()) == [(0, 0), (1, 1), (2, 1)]


def test_a_token_that_looked_nowhere_has_no_link():
    weights = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert extract_links(weights, ArgmaxAligner()) == [(1, 1)]
    assert extract_links(np.zeros((0, 3)), SymmetrizedAligner()) == []


@given(one=LINKS, other=LINKS)
def test_growing_agrees_with_a_slow_form(one, other):
    assert grow_diag_final_and(one, other) == slowly(one, other)


@given(one=LINKS, other=LINKS)
def test_grown_links_lie_between_intersection_and_union(one, other):
    assert one & other <= grow_diag_final_and(one, other) <= one | other


@given(weights=MODEL_FILE)
def test_no_link_is_to_the_end_and_links_are_sorted(weights):
    for how in (ArgmaxAligner(), ThresholdAligner(0.3), SymmetrizedAligner()):
        links = extract_links(weights, how)
        assert links == sorted(links, key=lambda link: (link.target, link.source))
        assert all(link.source < weights.shape[1] - 1 for link in links)
        assert all(link.target < len(weights) for link in links)


@given(links=LINKS)
def test_the_moses_form_reads_back(links):
    assert set(parse_pharaoh(format_pharaoh(links))) == links


def test_links_of_words_leave_out_what_belongs_to_none():
    links = [Link(0, 0), Link(1, 0), Link(2, 1), Link(3, 2)]
    assert to_word_links(links, [0, 0, -1, 1], [0, 1, 1]) == [(0, 0), (1, 1)]


def test_words_of_a_translation_are_linked_by_their_tokens():
    (result,) = translator("character", min_length=4).translate(["the dog"])
    links = word_alignment(result, ThresholdAligner(0.01))
    assert links
    assert all(link.source < 2 and link.target < len(result.text.split()) for link in links)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("argmax", ArgmaxAligner),
        ("symmetrised", SymmetrizedAligner),
        ("threshold=0.2", ThresholdAligner),
    ],
)
def test_an_aligner_is_chosen_by_its_name(name, kind):
    assert isinstance(get_aligner(name, location="--alignment-method"), kind)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "argmin",
            "--alignment-method: no alignment is called 'argmin'; did you mean 'argmax'?\n"
            "  choose from: argmax, symmetrised, threshold=0.2 (or another weight)",
        ),
        ("threshold", "--alignment-method: '' is no weight\n  give more than 0 and at most 1"),
        ("threshold=2", "--alignment-method: '2' is no weight\n  give more than 0 and at most 1"),
        (
            "threshold=nan",
            "--alignment-method: 'nan' is no weight\n  give more than 0 and at most 1",
        ),
    ],
)
def test_an_aligner_that_is_none_is_refused(name, message):
    with pytest.raises(ConfigError) as caught:
        get_aligner(name, location="--alignment-method")
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["0", "0-", "-1", "a-b", "1_1"])
def test_what_is_no_link_is_refused(word):
    with pytest.raises(DataError) as caught:
        parse_pharaoh(f"0-0 {word}", location="links:3")
    assert str(caught.value) == f'links:3: {word!r} is not a link\n  write links as "0-0 1-2"'

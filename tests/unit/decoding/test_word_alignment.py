"""Word alignments of attention weights: links by hand, and their invariants."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from heedful.aligners.links import Link
from heedful.decoding.word_alignment import (
    argmax_links,
    extract_links,
    get_aligner,
    symmetrized_links,
    threshold_links,
    to_word_links,
    word_alignment,
)
from heedful.errors import ConfigError
from tests.unit.decoding.untrained import build_translator

shapes = st.tuples(st.integers(0, 5), st.integers(1, 5))
some_weights = arrays(np.float32, shapes, elements=st.floats(0, 1, width=32))
# Three tokens over three words and EOS.
WEIGHTS = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.3, 0.35, 0.25], [0.1, 0.2, 0.1, 0.6]])


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


@given(weights=some_weights)
def test_links_sorted_and_exclude_eos(weights):
    for aligner in (argmax_links, partial(threshold_links, threshold=0.3), symmetrized_links):
        links = extract_links(weights, aligner)
        assert links == sorted(links, key=lambda link: (link.target, link.source))
        assert all(link.source < weights.shape[1] - 1 for link in links)
        assert all(link.target < len(weights) for link in links)


def test_word_links_leave_out_tokens_without_word():
    links = [Link(0, 0), Link(1, 0), Link(2, 1), Link(3, 2)]
    assert to_word_links(links, [0, 0, -1, 1], [0, 1, 1]) == [(0, 0), (1, 1)]


def test_words_of_a_translation_linked_by_tokens():
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
def test_invalid_aligner_raises(name, message):
    with pytest.raises(ConfigError) as caught:
        get_aligner(name, location="--alignment-method")
    assert str(caught.value) == f"--alignment-method: {message}"

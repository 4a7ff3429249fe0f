import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.tokenizer import join_words, split_words


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("in horto.", [" in", " horto", "."]),
        ("horto (magno)", [" horto", " (", "magno", ")"]),
        ("don't", [" don", "'", "t"]),
        ("3 times_4", [" 3", " times_4"]),
        ("", []),
        (" ", [" ", " "]),
        (" a", [" ", " a"]),
        ("a  b", [" a", " ", " b"]),
        ("a\r", [" a", "\r"]),
        ("\ta", [" ", "\t", "a"]),
        ("...", [" .", ".", "."]),
        ("<unk>", [" <", "unk", ">"]),
        ("e\u0301t", [" e\u0301t"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", [" \u0939\u093f\u0928\u094d\u0926\u0940"]),
        ("\u0645\u06cc\u200c\u0631\u0648\u0645", [" \u0645\u06cc\u200c\u0631\u0648\u0645"]),
        ("\u6211\u7231\u3002\u4eac", [" \u6211\u7231", "\u3002", "\u4eac"]),
    ],
)
def test_texts_are_cut_by_words_and_signs(text, pieces):
    assert split_words(text) == pieces


@given(text=st.text())
def test_pieces_joined_are_the_text(text):
    assert join_words(split_words(text)) == text


def test_every_combining_mark_stands_inside_words():
    marks = filter(
        lambda each: unicodedata.category(each)[0] == "M", map(chr, range(sys.maxunicode))
    )
    assert [mark for mark in marks if split_words(f"a{mark}b") != [f" a{mark}b"]] == []


def test_pieces_that_do_not_begin_with_a_space_are_joined_as_they_are():
    assert join_words([".", " horto"]) == ". horto"

"""Splitting a text into words."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.standalone import join_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
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
def test_split_words_separates_words_and_punctuation(text, words):
    assert split_words(text) == words


@given(text=st.text())
def test_join_words_inverts_split_words(text):
    assert join_words(split_words(text)) == text


def test_combining_marks_belong_to_words():
    marks = filter(
        lambda character: unicodedata.category(character)[0] == "M", map(chr, range(sys.maxunicode))
    )
    assert [mark for mark in marks if split_words(f"a{mark}b") != [f" a{mark}b"]] == []


def test_join_words_keeps_first_word_without_space():
    assert join_words([".", " horto"]) == ". horto"

"""Rules that normalize and split texts."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.standalone import (
    RESERVED_MARK,
    SPACE_MARK,
    escape,
    join_words,
    split_words,
    unescape,
)
from heedful.tokenization.tokenizer import NormalizerConfig


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


def test_combining_marks_belong_to_words():
    marks = filter(
        lambda character: unicodedata.category(character)[0] == "M", map(chr, range(sys.maxunicode))
    )
    assert [mark for mark in marks if split_words(f"a{mark}b") != [f" a{mark}b"]] == []


def test_join_words_keeps_first_word_without_space():
    assert join_words([".", " horto"]) == ". horto"


texts = st.text(st.characters(exclude_categories=["Cs"]))
configs = st.builds(
    NormalizerConfig,
    unicode=st.sampled_from(["none", "nfc", "nfkc"]),
    lowercase=st.booleans(),
    strip=st.booleans(),
    punctuation=st.sampled_from(["keep", "remove"]),
)


@given(text=texts)
def test_default_normalizer_is_identity(text):
    assert NormalizerConfig().normalize(text) == text


@given(config=configs, text=texts)
def test_normalizer_is_idempotent(config, text):
    normalizer = config.normalize
    assert normalizer(normalizer(text)) == normalizer(text)


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        (NormalizerConfig(unicode="nfc"), "e\u0301 \ufb01", "\u00e9 \ufb01"),
        (NormalizerConfig(unicode="nfkc"), "e\u0301 \ufb01", "\u00e9 fi"),
        (NormalizerConfig(lowercase=True), "ROMA \u00c9", "roma \u00e9"),
        (NormalizerConfig(strip=True), " \u00a0a b\t\r", "a b"),
        (NormalizerConfig(strip=True), "\ufeffa", "\ufeffa"),
        (NormalizerConfig(unicode="nfkc", lowercase=True), "\U0001d400", "a"),
        (NormalizerConfig(unicode="nfkc", strip=True), "\u00a8a", "\u0308a"),
    ],
)
def test_normalizer_settings(config, text, expected):
    assert config.normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man 's dog , running .", "A man 's dog running"),
        ("Stop! (he said) \u201cno\u201d...", "Stop he said no"),
        ("a t-shirt - blue -. 3.5 o'clock", "a t-shirt blue 3.5 o'clock"),
        (" . ", ""),
        ("don't  \tjump", "don't jump"),
    ],
)
def test_punctuation_outside_words_is_removed(text, expected):
    assert NormalizerConfig(punctuation="remove").normalize(text) == expected


marked_texts = st.text(st.sampled_from("a \u2581\u2585\ue000\ue001\ue002"))


@given(text=marked_texts)
def test_escape_removes_marks_and_round_trips(text):
    assert SPACE_MARK not in escape(text)
    assert RESERVED_MARK not in escape(text)
    assert unescape(escape(text)) == text


@given(one=marked_texts, other=marked_texts)
def test_escape_is_injective(one, other):
    assert (escape(one) == escape(other)) == (one == other)


def test_unescape_keeps_incomplete_escape():
    assert unescape("a\ue000") == "a\ue000"
    assert unescape("\ue000b") == "\ue000b"

"""Escaping of SentencePiece's marks is injective."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.standalone import RESERVED_MARK, SPACE_MARK, escape, unescape

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

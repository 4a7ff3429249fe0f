from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.segments import RESERVED_MARK, SPACE_MARK, escape, unescape

troublesome = st.text(st.sampled_from("a \u2581\u2585\ue000\ue001\ue002"))


@given(text=troublesome)
def test_an_escaped_text_holds_no_mark_and_comes_back(text):
    assert SPACE_MARK not in escape(text)
    assert RESERVED_MARK not in escape(text)
    assert unescape(escape(text)) == text


@given(one=troublesome, other=troublesome)
def test_two_texts_are_never_escaped_alike(one, other):
    assert (escape(one) == escape(other)) == (one == other)


def test_a_half_escape_stays_as_it_is():
    assert unescape("a\ue000") == "a\ue000"
    assert unescape("\ue000b") == "\ue000b"

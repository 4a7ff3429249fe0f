from hypothesis import given
from hypothesis import strategies as st

from heedful.text.escapes import NOT_IN_TEXT, SPACE_MARK, escape, restore

troublesome = st.text(st.sampled_from("a \u2581\u2585\ue000\ue001\ue002"))


@given(text=troublesome)
def test_an_escaped_text_holds_no_mark_and_comes_back(text):
    assert SPACE_MARK not in escape(text)
    assert NOT_IN_TEXT not in escape(text)
    assert restore(escape(text)) == text


@given(one=troublesome, other=troublesome)
def test_two_texts_are_never_escaped_alike(one, other):
    assert (escape(one) == escape(other)) == (one == other)


def test_a_half_escape_stays_as_it_is():
    assert restore("a\ue000") == "a\ue000"
    assert restore("\ue000b") == "\ue000b"

"""Requests: a plain text is a request without wishes."""

from heedful.decoding.requests import Request, as_request


def test_a_text_stands_for_a_request_without_wishes():
    assert as_request("a dog") == Request("a dog")
    assert as_request(Request("a", prefix="b")) == Request("a", prefix="b")


def test_a_request_is_free_unless_it_says_what_its_output_holds():
    assert Request("a", never=["b"]).is_free
    assert not Request("a", prefix="b").is_free
    assert not Request("a", must=["b"]).is_free
    assert not Request("a", target="").is_free

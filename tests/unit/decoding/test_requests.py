"""Requests: a plain text is a request without wishes."""

from heedful.decoding.requests import Request, to_request


def test_a_text_stands_for_a_request_without_wishes():
    assert to_request("a dog") == Request("a dog")
    assert to_request(Request("a", prefix="b")) == Request("a", prefix="b")


def test_a_request_is_free_unless_it_says_what_its_output_holds():
    assert Request("a", forbidden_phrases=["b"]).is_unconstrained
    assert not Request("a", prefix="b").is_unconstrained
    assert not Request("a", required_phrases=["b"]).is_unconstrained
    assert not Request("a", target="").is_unconstrained

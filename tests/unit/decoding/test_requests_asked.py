"""What is asked: lengths, wishes, and those that no output can fulfil."""

import pytest

from heedful.decoding.requests import Request, RequestEncoder
from heedful.errors import ConfigError, DataError
from tests.unit.decoding.untrained import build_config, text_pair

LENGTHS = {  # by settings: the shortest and the longest output of three tokens and the end
    (): (0, 9),
    (("min_output_tokens", 6),): (6, 9),
    (("min_output_tokens", 20),): (20, 20),
    (("min_output_ratio", 0.8),): (3, 9),
    (("min_output_ratio", 0.8), ("min_output_tokens", 2)): (3, 9),
    (("max_output_tokens", 5),): (0, 5),
    (("max_output_tokens", 5), ("min_output_ratio", 2.0)): (5, 5),
}


def asked(request, **given):
    asking = RequestEncoder(text_pair("word"), build_config(**given))
    (found,) = asking.encode([request], location="f.txt", start_index=7)
    return found


@pytest.mark.parametrize("given", LENGTHS)
def test_lengths_follow_from_the_source_and_bound_one_another(given):
    found = asked(Request("the dog is"), **dict(given))
    assert (found.min_length, found.max_length) == LENGTHS[given]


def test_wishes_of_a_text_come_on_top_of_the_settings():
    found = asked(
        Request("the", required_phrases=["cat"], forbidden_phrases=["in"]),
        required_phrases=["dog"],
        forbidden_phrases=["slave"],
    )
    assert len(found.constraints) == 2
    assert [phrase.text for phrase in found.forbidden_phrases.phrases] == ["slave", "in"]


def test_texts_without_wishes_share_one_rule():
    asking = RequestEncoder(text_pair("word"), build_config(forbidden_phrases=["slave"]))
    one, other = asking.encode(
        [Request("the"), Request("a", prefix="the")], location="x", start_index=1
    )
    assert one.forbidden_phrases is other.forbidden_phrases
    assert other.prefix == text_pair("word").target.encode("the")


REFUSED = {
    "too long a text": (
        Request("the dog is"),
        {"max_source_length": 2},
        "the text has 3 tokens, and this model takes at most 2\n"
        "  split the text into sentences, or raise the limit with "
        "--set decoding.max_source_length=N",
    ),
    "wishes of what is given": (
        Request("the", target="a", prefix="a"),
        {},
        "its output is given, and nothing can be wished of it\n"
        "  leave out prefix, must and never, or the target",
    ),
    "an empty phrase to say": (
        Request("the", required_phrases=["dog", ["cat", " "]]),
        {},
        "an empty phrase says nothing\n  leave it out",
    ),
    "no phrase to say": (
        Request("the", required_phrases=[[]]),
        {},
        "an empty phrase says nothing\n  leave it out",
    ),
    "an empty phrase not to say": (
        Request("the", forbidden_phrases=[""]),
        {},
        "an empty phrase says nothing\n  leave it out",
    ),
    "a phrase to say, drawn": (
        Request("the", required_phrases=["dog"]),
        {"sampling": {}},
        "only a beam can say what it must, and outputs are drawn (decoding.sampling)\n"
        "  ask for nothing that must be said, or set decoding.sampling to null",
    ),
    "a phrase to say and not to say": (
        Request("the", required_phrases=["the dog"]),
        {"forbidden_phrases": ["dog"]},
        "'the dog' is to be said, and 'dog' never\n  leave out one of them",
    ),
    "a beginning not to say": (
        Request("the", prefix="the dog", forbidden_phrases=["dog"]),
        {},
        "'the dog' is to be said, and 'dog' never\n  leave out one of them",
    ),
    "more than fits": (
        Request("the", prefix="the dog", required_phrases=["dog", "a cat"]),
        {"max_length": 3},
        "what its output must say takes 4 tokens, and it may have 3\n"
        "  ask for less, or raise decoding.max_length_offset and decoding.max_length",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_refused_by_the_number_of_its_text(case):
    request, given, message = REFUSED[case]
    with pytest.raises(DataError) as caught:
        asked(request, **given)
    assert str(caught.value) == f"f.txt:7: {message}"


def test_an_empty_text_is_asked_for_nothing_and_needs_no_room():
    assert asked(Request(""), required_phrases=["the dog is"], max_length=2).is_empty


def test_one_of_several_may_hold_what_is_never_said():
    found = asked(Request("the", required_phrases=[["the dog", "cat"]], forbidden_phrases=["dog"]))
    assert len(found.constraints) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"required_phrases": ["the dog"], "forbidden_phrases": ["the"]},
            "'the dog' is to be said, and 'the' never\n  leave out one of them",
        ),
        (
            {"required_phrases": ["the xyz"]},
            "the model has no tokens to say 'the xyz' with\n"
            "  use words that it was trained on, or train with `type: subword`, which knows all",
        ),
    ],
)
def test_settings_that_no_output_can_fulfil_are_refused_before_any_text(given, message):
    with pytest.raises(ConfigError) as caught:
        RequestEncoder(text_pair("word"), build_config(**given))
    assert str(caught.value) == f"decoding.required_phrases: {message}"

"""Requests: length limits, constraints, and errors for what no output can satisfy."""

import pytest

from heedful.decoding.requests import (
    Request,
    RequestEncoder,
    to_request,
    tokenize_constraints,
    tokenize_prefix,
)
from heedful.errors import ConfigError, DataError
from heedful.tokenization.tokenizer import WordTokenizerConfig
from tests.unit.decoding.untrained import TOKENIZER_TYPES, build_config, train_tokenizers

each_tokenizer = pytest.mark.parametrize("tokenizer_type", TOKENIZER_TYPES)


def encode(request, **settings):
    encoder = RequestEncoder(train_tokenizers("word"), build_config(**settings))
    (encoded,) = encoder.encode([request], location="f.txt", start_index=7)
    return encoded


def test_plain_text_is_a_request_without_constraints():
    assert to_request("a dog") == Request("a dog")
    assert to_request(Request("a", prefix="b")) == Request("a", prefix="b")


@pytest.mark.parametrize(
    ("request_", "is_empty"),
    [
        (Request(""), True),
        (Request("", forbidden_phrases=["dog"]), True),
        (Request("", prefix="dog"), False),
        (Request("", required_phrases=["dog"]), False),
        (Request("", target=""), False),
        (Request("dog"), False),
    ],
)
def test_empty_request_has_no_text_and_requires_nothing(request_, is_empty):
    assert encode(request_).is_empty is is_empty


@pytest.mark.parametrize(
    ("settings", "limits"),
    [  # for three tokens and EOS
        ({}, (0, 9)),
        ({"min_length": 6}, (6, 9)),
        ({"min_length": 20}, (20, 20)),
        ({"min_length_ratio": 0.8}, (3, 9)),
        ({"min_length_ratio": 0.8, "min_length": 2}, (3, 9)),
        ({"max_length": 5}, (0, 5)),
        ({"max_length": 5, "min_length_ratio": 2.0}, (5, 5)),
    ],
)
def test_length_limits_follow_from_settings_and_source_length(settings, limits):
    encoded = encode(Request("the dog is"), **settings)
    assert (encoded.min_length, encoded.max_length) == limits


def test_constraints_of_a_request_added_to_the_settings():
    encoded = encode(
        Request("the", required_phrases=["cat"], forbidden_phrases=["in"]),
        required_phrases=["dog"],
        forbidden_phrases=["slave"],
    )
    assert len(encoded.constraints) == 2
    assert [phrase.text for phrase in encoded.forbidden_phrases.phrases] == ["slave", "in"]


def test_requests_without_forbidden_phrases_share_one_processor():
    tokenizers = train_tokenizers("word")
    encoder = RequestEncoder(tokenizers, build_config(forbidden_phrases=["slave"]))
    requests = [Request("the"), Request("a", prefix="the")]
    first, second = encoder.encode(requests, location="x", start_index=1)
    assert first.forbidden_phrases is second.forbidden_phrases
    assert second.prefix == tokenizers.target.encode("the")


@pytest.mark.parametrize("tokenizer", ["word", "character"])
@pytest.mark.parametrize(
    "text", ["the dog is in the garden", "thedogisinthegarden", " the  dog \u3000 is", "x" * 40]
)
@pytest.mark.parametrize("limit", [1, 2, 5, 17])
def test_text_is_cut_to_the_limit_in_whole_words(tokenizer, text, limit):
    encoder = RequestEncoder(train_tokenizers(tokenizer), build_config(max_source_length=limit))
    reports = []
    (encoded,) = encoder.encode(
        [Request(text)], location="x", start_index=7, too_long="cut", report=reports.append
    )
    (whole,) = encoder.encode_sources([Request(text)])
    cut = encoded.request.text
    assert len(encoded.source) == len(encoder.encode_sources([Request(cut)])[0]) <= limit
    assert text.startswith(cut)
    assert bool(reports) == (len(whole) > limit)
    assert all(report.startswith(f"x:7: the text has {len(whole)} tokens") for report in reports)
    assert text == cut or " " not in cut.strip() or text[len(cut)].isspace()


EMPTY_PHRASE = "a phrase is empty\n  remove the empty phrase"
CONTRADICTION = "'the dog' is required, but 'dog' is forbidden\n  remove one of them"
INVALID_REQUESTS = {
    "long source": (
        Request("the dog is"),
        {"max_source_length": 2},
        "the text has 3 tokens, but max_source_length is 2\n"
        "  split the text into sentences, or raise the limit with "
        "--set decoding.max_source_length=N",
    ),
    "target with constraints": (
        Request("the", target="a", prefix="a"),
        {},
        "a given target cannot have constraints\n"
        "  remove prefix, required_phrases and forbidden_phrases, or the target",
    ),
    "empty required phrase": (
        Request("the", required_phrases=["dog", ["cat", " "]]),
        {},
        EMPTY_PHRASE,
    ),
    "no alternative": (Request("the", required_phrases=[[]]), {}, EMPTY_PHRASE),
    "empty forbidden phrase": (Request("the", forbidden_phrases=[""]), {}, EMPTY_PHRASE),
    "required phrase with sampling": (
        Request("the", required_phrases=["dog"]),
        {"sampling": {}},
        "required_phrases work only with beam search, but decoding.sampling is set\n"
        "  remove required_phrases, or set decoding.sampling to null",
    ),
    "required and forbidden": (
        Request("the", required_phrases=["the dog"]),
        {"forbidden_phrases": ["dog"]},
        CONTRADICTION,
    ),
    "forbidden prefix": (
        Request("the", prefix="the dog", forbidden_phrases=["dog"]),
        {},
        CONTRADICTION,
    ),
    "more than max_length": (
        Request("the", prefix="the dog", required_phrases=["dog", "a cat"]),
        {"max_length": 3},
        "prefix and required phrases need 4 tokens, but the limit is 3\n"
        "  require less, or raise decoding.max_length_offset and decoding.max_length",
    ),
}


@pytest.mark.parametrize("case", INVALID_REQUESTS)
def test_invalid_request_raises_with_the_index(case):
    request, settings, message = INVALID_REQUESTS[case]
    with pytest.raises(DataError) as caught:
        encode(request, **settings)
    assert str(caught.value) == f"f.txt:7: {message}"


def test_empty_text_ignores_constraints_of_the_settings():
    assert encode(Request(""), required_phrases=["the dog is"], max_length=2).is_empty


def test_one_of_several_alternatives_may_contain_a_forbidden_phrase():
    request = Request("the", required_phrases=[["the dog", "cat"]], forbidden_phrases=["dog"])
    assert len(encode(request).constraints) == 1


NO_TOKENS = (
    "the vocabulary has no tokens for 'the xyz'\n"
    "  use words of the training data, or train with `type: subword`"
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"required_phrases": ["the dog"], "forbidden_phrases": ["the"]},
            "'the dog' is required, but 'the' is forbidden\n  remove one of them",
        ),
        ({"required_phrases": ["the xyz"]}, NO_TOKENS),
    ],
)
def test_settings_that_no_output_can_satisfy_reported(settings, message):
    with pytest.raises(ConfigError) as caught:
        RequestEncoder(train_tokenizers("word"), build_config(**settings))
    assert str(caught.value) == f"decoding.required_phrases: {message}"


@pytest.mark.parametrize("tokenizer_type", ["character", "subword"])
def test_unk_replacement_without_word_tokenizer_raises(tokenizer_type):
    with pytest.raises(ConfigError) as caught:
        RequestEncoder(train_tokenizers(tokenizer_type), build_config(unk_replacement="copy"))
    assert str(caught.value) == (
        "decoding.unk_replacement: needs unknown words, and the target tokenizer has none\n"
        "  set decoding.unk_replacement to keep, or use a target tokenizer of `type: word`"
    )


@each_tokenizer
def test_phrase_is_tokenized_like_a_text(tokenizer_type):
    tokenizer = train_tokenizers(tokenizer_type).target
    phrases = ["the dog", ["cat", "slave"]]
    single, several = tokenize_constraints(tokenizer, phrases, location="x")
    assert single.phrases == (tuple(tokenizer.encode("the dog")),)
    assert several.phrases == (tuple(tokenizer.encode("cat")), tuple(tokenizer.encode("slave")))


def test_phrase_that_starts_with_punctuation_may_follow_without_space():
    tokenizer = train_tokenizers("word").target
    (constraint,) = tokenize_constraints(tokenizer, [", and"], location="x")
    dog = tokenizer.encode("dog")
    texts = [tokenizer.decode([*dog, *phrase]) for phrase in constraint.phrases]
    assert texts == ["dog, and"]
    (constraint,) = tokenize_constraints(
        train_tokenizers("subword").target, [", and"], location="x"
    )
    assert len(constraint.phrases) == 2


def test_combining_character_has_one_tokenization():
    # A combining accent becomes part of the word before it.
    tokenizer = WordTokenizerConfig().train(["\u0301 a\u0301 a"])
    (constraint,) = tokenize_constraints(tokenizer, ["\u0301"], location="x")
    assert constraint.phrases == (tuple(tokenizer.encode("\u0301")),)


@each_tokenizer
def test_whitespace_after_prefix_is_left_to_the_next_token(tokenizer_type):
    tokenizer = train_tokenizers(tokenizer_type).target
    prefix = "the " if tokenizer_type == "character" else "the"
    assert tokenize_prefix(tokenizer, "the ", location="x") == tokenizer.encode(prefix)
    assert tokenize_prefix(tokenizer, "", location="x") == []


def tokenize_phrase(tokenizer, phrase, *, location):
    return tokenize_constraints(tokenizer, [phrase], location=location)


@pytest.mark.parametrize("tokenize", [tokenize_phrase, tokenize_prefix])
def test_text_without_tokens_raises(tokenize):
    with pytest.raises(DataError) as caught:
        tokenize(train_tokenizers("word").target, "the xyz", location="file:3")
    assert str(caught.value) == f"file:3: {NO_TOKENS}"

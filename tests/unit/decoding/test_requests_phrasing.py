"""Phrasing: a phrase is cut as the tokenizer cuts a text of its own."""

import pytest

from heedful.decoding.requests import tokenize_constraints, tokenize_prefix
from heedful.errors import DataError
from tests.unit.decoding.untrained import KINDS, text_pair

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_a_phrase_is_cut_as_a_text(kind):
    tokenizer = text_pair(kind).target
    one, several = tokenize_constraints(tokenizer, ["the dog", ["cat", "slave"]], location="x")
    assert one.phrases == (tuple(tokenizer.encode("the dog")),)
    assert several.phrases == (tuple(tokenizer.encode("cat")), tuple(tokenizer.encode("slave")))


def test_a_phrase_that_begins_with_a_sign_may_stand_without_a_space():
    tokenizer = text_pair("word").target
    (must,) = tokenize_constraints(tokenizer, [", and"], location="x")
    assert [tokenizer.decode([*tokenizer.encode("dog"), *cut]) for cut in must.phrases] == [
        "dog, and"
    ]
    (must,) = tokenize_constraints(text_pair("subword").target, [", and"], location="x")
    assert len(must.phrases) == 2


def test_a_sign_that_melts_into_the_word_before_it_has_one_cut():
    from heedful.tokenization.tokenizer import WordTokenizerConfig

    tokenizer = WordTokenizerConfig().train(
        ["\u0301 a\u0301 a"]
    )  # a combining accent is part of a word
    (must,) = tokenize_constraints(tokenizer, ["\u0301"], location="x")
    assert must.phrases == (tuple(tokenizer.encode("\u0301")),)


@each_kind
def test_white_space_after_a_prefix_is_left_to_the_next_word(kind):
    tokenizer = text_pair(kind).target
    kept = "the " if kind == "character" else "the"
    assert tokenize_prefix(tokenizer, "the ", location="x") == tokenizer.encode(kept)
    assert tokenize_prefix(tokenizer, "", location="x") == []


@pytest.mark.parametrize(
    "cut", [lambda *a, **k: tokenize_constraints(a[0], [a[1]], **k), tokenize_prefix]
)
def test_what_no_token_can_say_is_refused(cut):
    with pytest.raises(DataError) as caught:
        cut(text_pair("word").target, "the xyz", at="file:3")
    assert str(caught.value) == (
        "file:3: the model has no tokens to say 'the xyz' with\n"
        "  use words that it was trained on, or train with `type: subword`, which knows all"
    )

"""Phrasing: a phrase is cut as the tokenizer cuts a text of its own."""

import pytest

from heedful.decoding.phrasing import cut_musts, cut_prefix
from heedful.errors import DataError
from tests.unit.decoding.untrained import KINDS, text_pair

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_a_phrase_is_cut_as_a_text(kind):
    tokenizer = text_pair(kind).target
    one, several = cut_musts(tokenizer, ["the dog", ["cat", "slave"]], at="x")
    assert one.phrases == (tuple(tokenizer.encode("the dog")),)
    assert several.phrases == (tuple(tokenizer.encode("cat")), tuple(tokenizer.encode("slave")))


def test_a_phrase_that_begins_with_a_sign_may_stand_without_a_space():
    tokenizer = text_pair("word").target
    (must,) = cut_musts(tokenizer, [", and"], at="x")
    assert [tokenizer.decode([*tokenizer.encode("dog"), *cut]) for cut in must.phrases] == [
        "dog, and"
    ]
    (must,) = cut_musts(text_pair("subword").target, [", and"], at="x")
    assert len(must.phrases) == 2


def test_a_sign_that_melts_into_the_word_before_it_has_one_cut():
    from heedful.text.config import WordConfig

    tokenizer = WordConfig().train(["\u0301 a\u0301 a"])  # a combining accent is part of a word
    (must,) = cut_musts(tokenizer, ["\u0301"], at="x")
    assert must.phrases == (tuple(tokenizer.encode("\u0301")),)


@each_kind
def test_white_space_after_a_prefix_is_left_to_the_next_word(kind):
    tokenizer = text_pair(kind).target
    kept = "the " if kind == "character" else "the"
    assert cut_prefix(tokenizer, "the ", at="x") == tokenizer.encode(kept)
    assert cut_prefix(tokenizer, "", at="x") == []


@pytest.mark.parametrize("cut", [lambda *a, **k: cut_musts(a[0], [a[1]], **k), cut_prefix])
def test_what_no_token_can_say_is_refused(cut):
    with pytest.raises(DataError) as caught:
        cut(text_pair("word").target, "the xyz", at="file:3")
    assert str(caught.value) == (
        "file:3: the model has no tokens to say 'the xyz' with\n"
        "  use words that it was trained on, or train with `kind: subword`, which knows all"
    )

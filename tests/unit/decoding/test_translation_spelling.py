"""Spelling: every token stands for a part of the text, and belongs to the word it begins in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.translation import (
    TokenTextMapper,
    vocabulary_texts,
    whitespace_words,
    word_ids,
)
from heedful.tokenization.vocabulary import UNK
from tests.unit.decoding.untrained import CORPUS, KINDS, text_pair

TEXTS = [*CORPUS[:4], "", "  two  spaces ", "caf\u00e9 \U0001f600\u20ac!", "xyz the xyz.xyz"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def counted(pieces):
    """Which word each piece belongs to, by counting the words of the text up to its letters."""
    text, found, place = "".join(pieces), [], 0
    for piece in pieces:
        letters = piece.lstrip()
        first = place + len(piece) - len(letters)
        found.append(len(text[: first + 1].split()) - 1 if letters else -1)
        place += len(piece)
    return found


@each_kind
@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_of_a_source_put_together_are_the_source(kind, text):
    tokenizer = text_pair(kind).source
    ids = tokenizer.encode(text)
    pieces = TokenTextMapper(tokenizer).source_token_texts(ids, text)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


@each_kind
@given(data=st.data())
def test_the_pieces_of_any_output_put_together_are_its_text(kind, data):
    tokenizer = text_pair(kind).target
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    pieces = TokenTextMapper(tokenizer).token_texts(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == tokenizer.decode(ids)


@each_kind
@pytest.mark.parametrize("text", TEXTS)
def test_a_token_belongs_to_the_word_it_begins_in(kind, text):
    tokenizer = text_pair(kind).source
    pieces = TokenTextMapper(tokenizer).source_token_texts(tokenizer.encode(text), text)
    whole = [piece for piece in pieces if piece]  # what completes a character is spelled by nothing
    assert word_ids(whole, whitespace_words(text)) == counted(whole)


def test_bytes_that_complete_a_character_belong_to_its_word():
    tokenizer = text_pair("subword").source
    ids = tokenizer.encode("a \u20ac!")
    pieces = TokenTextMapper(tokenizer).source_token_texts(ids, "a \u20ac!")
    assert tokenizer.ids_to_tokens(ids) == ["a", " ", "<0xE2>", "<0x82>", "<0xAC>", "<0x21>"]
    assert word_ids(pieces, whitespace_words("a \u20ac!")) == [0, -1, 1, 1, 1, 1]


def test_a_byte_before_any_word_belongs_to_none():
    assert word_ids(["", "a"], ["a"]) == [-1, 0]


def test_unknown_words_of_a_source_keep_their_places():
    tokenizer = text_pair("word").source
    ids = tokenizer.encode("the xyz.xyz")
    assert ids.count(UNK) == 2
    pieces = TokenTextMapper(tokenizer).source_token_texts(ids, "the xyz.xyz")
    assert pieces == ["the", " xyz", ".", "xyz"]
    assert word_ids(pieces, whitespace_words("the xyz.xyz")) == [0, 1, 1, 1]


@each_kind
def test_every_entry_of_a_vocabulary_is_spelled_as_within_a_text(kind):
    tokenizer = text_pair(kind).target
    spelled, (the,) = vocabulary_texts(tokenizer), tokenizer.encode("the")[:1]
    assert len(spelled) == len(tokenizer)
    assert tokenizer.decode([the, the]) == tokenizer.decode([the]) + spelled[the]

"""Token texts: every token stands for a part of the text and belongs to the word it starts in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.forbidden_text import vocabulary_texts
from heedful.decoding.translation import TokenTextMapper, whitespace_words, word_ids
from heedful.tokenization.vocabulary import UNK
from tests.unit.decoding.untrained import CORPUS, TOKENIZER_TYPES, train_tokenizers

TEXTS = [*CORPUS[:4], "", "  two  spaces ", "caf\u00e9 \U0001f600\u20ac!", "xyz the xyz.xyz"]
each_tokenizer = pytest.mark.parametrize("tokenizer_type", TOKENIZER_TYPES)


def count_words(token_texts):
    """Word index of each token, by counting the words of the text up to its first letter."""
    text, ids, position = "".join(token_texts), [], 0
    for token_text in token_texts:
        letters = token_text.lstrip()
        start = position + len(token_text) - len(letters)
        ids.append(len(text[: start + 1].split()) - 1 if letters else -1)
        position += len(token_text)
    return ids


@each_tokenizer
@pytest.mark.parametrize("text", TEXTS)
def test_source_token_texts_concatenate_to_the_source(tokenizer_type, text):
    tokenizer = train_tokenizers(tokenizer_type).source
    ids = tokenizer.encode(text)
    token_texts = TokenTextMapper(tokenizer).source_token_texts(ids, text)
    assert len(token_texts) == len(ids)
    assert "".join(token_texts) == text


@each_tokenizer
@given(data=st.data())
def test_token_texts_concatenate_to_the_decoded_output(tokenizer_type, data):
    tokenizer = train_tokenizers(tokenizer_type).target
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    token_texts = TokenTextMapper(tokenizer).token_texts(ids)
    assert len(token_texts) == len(ids)
    assert "".join(token_texts) == tokenizer.decode(ids)


@each_tokenizer
@pytest.mark.parametrize("text", TEXTS)
def test_token_belongs_to_the_word_it_starts_in(tokenizer_type, text):
    tokenizer = train_tokenizers(tokenizer_type).source
    token_texts = TokenTextMapper(tokenizer).source_token_texts(tokenizer.encode(text), text)
    nonempty = [part for part in token_texts if part]  # a byte that completes a character is empty
    assert word_ids(nonempty, whitespace_words(text)) == count_words(nonempty)


def test_bytes_of_a_character_belong_to_the_word():
    tokenizer = train_tokenizers("subword").source
    ids = tokenizer.encode("a \u20ac!")
    token_texts = TokenTextMapper(tokenizer).source_token_texts(ids, "a \u20ac!")
    shown = ["\u2581a", "\u2581", "<0xE2>", "<0x82>", "<0xAC>", "<0x21>"]
    assert tokenizer.ids_to_tokens(ids) == shown
    assert word_ids(token_texts, whitespace_words("a \u20ac!")) == [0, -1, 1, 1, 1, 1]


def test_byte_before_any_word_belongs_to_no_word():
    assert word_ids(["", "a"], ["a"]) == [-1, 0]


def test_unknown_words_keep_source_text():
    tokenizer = train_tokenizers("word").source
    ids = tokenizer.encode("the xyz.xyz")
    assert ids.count(UNK) == 2
    token_texts = TokenTextMapper(tokenizer).source_token_texts(ids, "the xyz.xyz")
    assert token_texts == ["the", " xyz", ".", "xyz"]
    assert word_ids(token_texts, whitespace_words("the xyz.xyz")) == [0, 1, 1, 1]


@each_tokenizer
def test_vocabulary_texts_are_those_within_a_text(tokenizer_type):
    tokenizer = train_tokenizers(tokenizer_type).target
    texts, (the,) = vocabulary_texts(tokenizer), tokenizer.encode("the")[:1]
    assert len(texts) == len(tokenizer)
    assert tokenizer.decode([the, the]) == tokenizer.decode([the]) + texts[the]

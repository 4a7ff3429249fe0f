"""Tokenizers of words that are separated by spaces."""

import pytest

from heedful.tokenization.vocabulary import UNK
from heedful.tokenization.whitespace import (
    MAX_CHARACTERS,
    NUM_CHARACTERS,
    WhitespaceTokenizerConfig,
    WordCharacterTokenizerConfig,
    join_spaces,
    split_spaces,
)


@pytest.fixture
def tokenizer():
    normalization = {"lowercase": True}
    return WordCharacterTokenizerConfig(normalization=normalization).train(["b a a", "A c"])


def test_tags_are_tokens_between_spaces():
    tokenizer = WhitespaceTokenizerConfig().train(["B-X O O", "NOUN|Case=Nom"])
    ids = tokenizer.encode("  O   NOUN|Case=Nom ?")
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "O NOUN|Case=Nom <unk>"


def test_each_word_is_followed_by_its_characters(tokenizer):
    size = len(tokenizer)
    known, unknown = tokenizer.vocabulary.tokens_to_ids(["a", "Ab"])
    assert unknown == UNK
    assert tokenizer.encode("A Ab") == [known, size + 65, unknown, size + 65, size + 98]
    assert tokenizer.decode(tokenizer.encode("A C zz")) == "a c <unk>"


def test_number_of_words_is_the_number_of_ids_in_the_vocabulary(tokenizer):
    for text in ("", "a", "x \u4e00\u4e8c a", "y" * 100):
        ids = tokenizer.encode(text)
        assert sum(token < len(tokenizer) for token in ids) == len(split_spaces(text))
        assert all(0 < token < tokenizer.id_bound for token in ids)
    assert tokenizer.id_bound == len(tokenizer) + NUM_CHARACTERS


def test_long_words_keep_their_start_and_end(tokenizer):
    word = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokens = tokenizer.ids_to_tokens(tokenizer.encode(word)[1:])
    assert "".join(tokens) == word[: MAX_CHARACTERS // 2] + word[-MAX_CHARACTERS // 2 :]


def test_saved_tokenizer_encodes_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = WordCharacterTokenizerConfig(normalization={"lowercase": True}).load(tmp_path)
    assert loaded.encode_batch(["A b", "zz"]) == tokenizer.encode_batch(["A b", "zz"])


def test_words_with_spaces_stay_one_word():
    assert split_spaces(join_spaces(["1 000", "men"])) == ["1\u00a0000", "men"]

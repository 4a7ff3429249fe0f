"""Tokenizers by word, by character and by label."""

from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizerConfig,
    WordTokenizerConfig,
)
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, UNK


def test_word_is_same_token_at_start_and_within():
    tokenizer = WordTokenizerConfig().train(["horto in horto"])
    first, _, last = tokenizer.encode("horto in horto")
    assert first == last


def test_unknown_word_decodes_with_leading_space():
    tokenizer = WordTokenizerConfig().train(["puella in horto."])
    assert tokenizer.decode(tokenizer.encode("puella in silva.")) == "puella in <unk>."
    assert tokenizer.ids_to_tokens(tokenizer.encode("in silva.")) == ["in", "<unk>", "."]


def test_unknown_character_decodes_without_space():
    tokenizer = CharacterTokenizerConfig().train(["abc"])
    assert tokenizer.encode("axb")[1] == UNK
    assert tokenizer.decode(tokenizer.encode("axb")) == "a<unk>b"


def test_ids_to_tokens_shows_spaces():
    words = WordTokenizerConfig().train(["a  b"])
    assert words.ids_to_tokens(words.encode("a  b")) == ["a", " ", "b"]
    characters = CharacterTokenizerConfig().train(["a b"])
    assert characters.ids_to_tokens(characters.encode("a b")) == ["a", " ", "b"]


def test_character_tokenizer_splits_code_points():
    tokenizer = CharacterTokenizerConfig().train(["e\u0301"])
    assert len(tokenizer.encode("e\u0301")) == 2


def test_words_below_min_frequency_are_unknown():
    tokenizer = WordTokenizerConfig(min_frequency=2).train(["a a b"])
    assert tokenizer.decode(tokenizer.encode("a b")) == "a <unk>"


def test_vocabulary_respects_max_vocab_size():
    texts = [f"word{index}" for index in range(50)]
    assert len(WordTokenizerConfig(max_vocab_size=20).train(texts)) == 20
    assert len(CharacterTokenizerConfig(max_vocab_size=7).train(texts)) == 7


def test_words_counted_after_normalization():
    tokenizer = WordTokenizerConfig(normalization={"lowercase": True}).train(["Roma roma ROMA"])
    assert tokenizer.vocabulary.tokens == (" roma",)


def test_label_tokenizer_has_one_token_per_text():
    tokenizer = LabelTokenizerConfig().train(["new york", "rome ", "rome"])
    assert len(tokenizer) == NUM_SPECIAL_TOKENS + 2
    assert [len(ids) for ids in tokenizer.encode_batch(["rome", " new york", "paris"])] == [1, 1, 1]
    assert tokenizer.decode(tokenizer.encode("new york ")) == "new york"
    assert tokenizer.encode("paris") == [UNK]

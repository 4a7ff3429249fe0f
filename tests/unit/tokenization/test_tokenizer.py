"""Vocabularies, and tokenizers by word, by character and by label."""

from random import Random

import pytest

from heedful.errors import CorruptRunError
from heedful.tokenization import vocabulary as vocabulary_module
from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizerConfig,
    WordTokenizerConfig,
)
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, PAD, UNK, Vocabulary


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


def test_special_tokens_have_first_ids_and_no_spelling():
    vocabulary = Vocabulary(["a", "<unk>", "<s>"])
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert vocabulary.tokens_to_ids(["a", "<unk>", "<s>", "<pad>", "</s>"]) == [4, 5, 6, UNK, UNK]
    assert len(vocabulary) == 7


def test_vocabulary_sorts_by_count_then_code_points():
    counts = {"b": 2, "a": 2, "c": 3, "d": 1}
    assert Vocabulary.from_counts(counts).tokens == ("c", "a", "b", "d")


def test_vocabulary_does_not_depend_on_counting_order():
    counts = [(f"word{index}", index % 7 + 1) for index in range(100)]
    shuffled = Random(0).sample(counts, k=len(counts))
    assert (
        Vocabulary.from_counts(dict(counts)).tokens == Vocabulary.from_counts(dict(shuffled)).tokens
    )


def test_vocabulary_drops_rare_tokens():
    assert Vocabulary.from_counts({"a": 5, "b": 2, "c": 1}, min_count=2).tokens == ("a", "b")


def test_max_size_includes_special_tokens():
    counts = {"a": 3, "b": 2, "c": 1}
    assert len(Vocabulary.from_counts(counts, max_size=6)) == 6
    assert Vocabulary.from_counts(counts, max_size=6).tokens == ("a", "b")
    assert len(Vocabulary.from_counts(counts, max_size=NUM_SPECIAL_TOKENS)) == NUM_SPECIAL_TOKENS


def test_vocabulary_round_trips_any_characters(tmp_path):
    tokens = [*'"\\\n\r\0\u2028\u2581\ufeff\U0010ffff 漢', ""]
    Vocabulary(tokens).save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json").tokens == tuple(tokens)


def test_vocabulary_file_has_one_token_per_line(tmp_path):
    Vocabulary([" horto", "漢"]).save(tmp_path / "vocabulary.json")
    assert (tmp_path / "vocabulary.json").read_bytes().decode() == (
        '{\n"tokens": [\n" horto",\n"漢"\n]\n}\n'
    )


def test_oversized_vocabulary_file_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "vocabulary.json"
    Vocabulary(["a" * 100]).save(path)
    monkeypatch.setattr(vocabulary_module, "MAX_BYTES", 100)
    with pytest.raises(CorruptRunError, match="more than the maximum of 100"):
        Vocabulary.load(path)

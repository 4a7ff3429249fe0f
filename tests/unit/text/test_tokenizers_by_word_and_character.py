from heedful.text.config import CharacterConfig, WordConfig
from heedful.text.vocabulary import UNK


def test_a_word_is_one_token_at_the_start_and_within():
    tokenizer = WordConfig().train(["horto in horto"])
    first, _, last = tokenizer.encode("horto in horto")
    assert first == last


def test_an_unknown_word_is_shown_with_a_space_before_it():
    tokenizer = WordConfig().train(["puella in horto."])
    assert tokenizer.decode(tokenizer.encode("puella in silva.")) == "puella in <unk>."
    assert tokenizer.pieces(tokenizer.encode("in silva.")) == ["in", "<unk>", "."]


def test_an_unknown_character_stands_alone():
    tokenizer = CharacterConfig().train(["abc"])
    assert tokenizer.encode("axb")[1] == UNK
    assert tokenizer.decode(tokenizer.encode("axb")) == "a<unk>b"


def test_spaces_are_shown_as_spaces():
    words = WordConfig().train(["a  b"])
    assert words.pieces(words.encode("a  b")) == ["a", " ", "b"]
    characters = CharacterConfig().train(["a b"])
    assert characters.pieces(characters.encode("a b")) == ["a", " ", "b"]


def test_a_character_is_a_code_point():
    tokenizer = CharacterConfig().train(["e\u0301"])
    assert len(tokenizer.encode("e\u0301")) == 2


def test_rare_words_are_unknown():
    tokenizer = WordConfig(min_count=2).train(["a a b"])
    assert tokenizer.decode(tokenizer.encode("a b")) == "a <unk>"


def test_the_vocabulary_is_no_larger_than_asked():
    texts = [f"word{number}" for number in range(50)]
    assert len(WordConfig(max_size=20).train(texts)) == 20
    assert len(CharacterConfig(max_size=7).train(texts)) == 7


def test_words_are_counted_after_normalisation():
    tokenizer = WordConfig(normalisation={"lowercase": True}).train(["Roma roma ROMA"])
    assert tokenizer.vocabulary.tokens == (" roma",)

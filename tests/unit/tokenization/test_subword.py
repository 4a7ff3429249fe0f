"""Training and loading of subword tokenizers."""

import io

import pytest
from sentencepiece import SentencePieceTrainer

from heedful.errors import CorruptRunError
from heedful.tokenization.standalone import MODEL_FILE
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS

ANIMALS = ["dog", "cat", "lion", "horse", "bird", "wolf", "mouse"]
TEXTS = [f"the {one} sees the {other} in the garden" for one in ANIMALS for other in ANIMALS]
each_model_type = pytest.mark.parametrize("model_type", ["unigram", "bpe"])


@each_model_type
def test_frequent_words_become_subwords(model_type):
    tokenizer = SubwordTokenizerConfig(model_type=model_type).train(TEXTS)
    assert tokenizer.ids_to_tokens(tokenizer.encode("the garden")) == ["\u2581the", "\u2581garden"]


@each_model_type
def test_small_corpus_returns_fewer_subwords(model_type):
    assert (
        NUM_SPECIAL_TOKENS + 256
        < len(SubwordTokenizerConfig(vocab_size=8000, model_type=model_type).train(TEXTS))
        < 500
    )


@each_model_type
def test_subword_vocabulary_respects_vocab_size(model_type):
    assert len(SubwordTokenizerConfig(vocab_size=290, model_type=model_type).train(TEXTS)) <= 290


@each_model_type
def test_subwords_train_on_long_line(model_type):
    tokenizer = SubwordTokenizerConfig(model_type=model_type).train([*TEXTS, "zebra " * 2000])
    assert "z" in tokenizer.ids_to_tokens(range(len(tokenizer)))


@each_model_type
def test_repeated_lines_do_not_slow_training(model_type):
    repeated = SubwordTokenizerConfig(model_type=model_type).train(
        [*TEXTS, "x"] * 2000
    )  # would take hours if quadratic
    assert (
        repeated.model == SubwordTokenizerConfig(model_type=model_type).train([*TEXTS, "x"]).model
    )


@each_model_type
def test_subwords_train_on_sentencepiece_marks(model_type):
    tokenizer = SubwordTokenizerConfig(model_type=model_type).train([*TEXTS, "\u2585 zebra \u2581"])
    assert "z" in tokenizer.ids_to_tokens(range(len(tokenizer)))


def test_unseen_character_becomes_bytes():
    tokenizer = SubwordTokenizerConfig().train(TEXTS)
    ids = tokenizer.encode("\u6f22")
    assert tokenizer.ids_to_tokens(ids) == ["\u2581", "<0xE6>", "<0xBC>", "<0xA2>"]
    assert tokenizer.decode(ids[:-1]) == "\ufffd"


def test_lower_coverage_leaves_rare_characters_to_bytes():
    texts = [*TEXTS, "\u6f22"]
    covered = SubwordTokenizerConfig(character_coverage=1.0).train(texts)
    uncovered = SubwordTokenizerConfig(character_coverage=0.99).train(texts)
    assert "\u6f22" in covered.ids_to_tokens(covered.encode("\u6f22"))
    assert "<0xE6>" in uncovered.ids_to_tokens(uncovered.encode("\u6f22"))


def test_typed_space_mark_is_shown_as_typed():
    tokenizer = SubwordTokenizerConfig(model_type="bpe").train(["\u2581 a"])
    assert "\u2581" in "".join(tokenizer.ids_to_tokens(tokenizer.encode("\u2581")))


def test_subword_training_prints_nothing(capfd):
    SubwordTokenizerConfig().train(TEXTS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["empty", "truncated", "noise", "foreign"])
def test_corrupt_subword_model_raises(name, tmp_path):
    path = tmp_path / MODEL_FILE
    whole = SubwordTokenizerConfig().train(TEXTS).model
    contents = {
        "empty": b"",
        "truncated": whole[:-5],
        "noise": b"\x80" * 100,
        "foreign": _foreign_model(),
    }
    path.write_bytes(contents[name])
    with pytest.raises(CorruptRunError) as caught:
        SubwordTokenizerConfig().load(tmp_path)
    assert caught.value.location == str(path)
    assert caught.value.message == "not a subword model trained by heedful"


def _foreign_model():
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    return model.getvalue()

"""Tokenizers of pretrained models: saved and loaded, marked words, and files in either layout."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.conversion.hf_folder import HFFolder
from heedful.conversion.hf_tokenizers import read_hf_tokenizer
from heedful.errors import ConfigError, CorruptRunError, DataError
from heedful.tokenization.byte_level_bpe import (
    ByteLevelBPETokenizer,
    ByteLevelBPETokenizerConfig,
    byte_characters,
)
from heedful.tokenization.standalone import split_spaces
from heedful.tokenization.vocabulary import UNK, Vocabulary
from heedful.tokenization.wordpiece import WordPieceTokenizer, WordPieceTokenizerConfig

PIECES = ["un", "##aff", "##able", "walk", "##s", "a", ",", "'", "t", "don"]
MERGES = [("l", "o"), ("lo", "w"), ("e", "r"), ("\u0120", "low"), ("low", "er")]
BPE_TOKENS = [*byte_characters(), *("".join(pair) for pair in MERGES)]
CONFIGS = {
    "wordpiece": WordPieceTokenizerConfig(),
    "byte-level-bpe": ByteLevelBPETokenizerConfig(),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
TEXT = "Unaffable, lower LOWER walks don't \u00e9\U0001f600 \u200b"


def build(config):
    if isinstance(config, WordPieceTokenizerConfig):
        return WordPieceTokenizer(Vocabulary(PIECES), config)
    return ByteLevelBPETokenizer(Vocabulary(BPE_TOKENS), MERGES, config)


def test_wordpiece_takes_the_longest_pieces():
    tokenizer = build(WordPieceTokenizerConfig())
    tokens = tokenizer.ids_to_tokens(tokenizer.encode("Unaffable walks, xa don't"))
    assert tokens == ["un", "##aff", "##able", "walk", "##s", ",", "<unk>", "don", "'", "t"]


def test_merges_applied_by_rank():
    tokenizer = build(ByteLevelBPETokenizerConfig())
    assert tokenizer.tokenize("lower low slower") == ["lower", "\u0120low", "\u0120", "s", "lower"]
    assert tokenizer.ids_to_tokens(tokenizer.encode("low low\u00e9")) == [
        *("low", "\u2581low", "<0xC3>", "<0xA9>"),
    ]


@each_config
@pytest.mark.parametrize("mark_words", [False, True])
def test_saved_tokenizer_encodes_the_same(config, mark_words, tmp_path):
    config = config.model_copy(update={"mark_words": mark_words})
    tokenizer = build(config)
    tokenizer.save(tmp_path)
    loaded = config.load(tmp_path)
    assert loaded.encode(TEXT) == tokenizer.encode(TEXT)
    assert loaded.decode(loaded.encode(TEXT)) == tokenizer.decode(tokenizer.encode(TEXT))


@each_config
@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5))
@settings(deadline=None)
def test_as_many_ids_as_words_are_below_the_vocabulary(config, words):
    tokenizer = build(config.model_copy(update={"mark_words": True}))
    text = " ".join(words)
    ids = tokenizer.encode(text)
    assert sum(token < len(tokenizer) for token in ids) == len(split_spaces(text))
    assert all(token < tokenizer.id_bound for token in ids)


def test_word_without_pieces_is_unknown():
    tokenizer = build(WordPieceTokenizerConfig(mark_words=True))
    walk, s = (token for token in tokenizer.encode("walks"))
    assert tokenizer.encode("walks \u200b a") == [walk, s, UNK, *tokenizer.encode("a")]
    assert s >= len(tokenizer) > walk
    assert tokenizer.decode([walk, s]) == "walks"


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None)
def test_byte_level_bpe_round_trips_any_text(text):
    tokenizer = build(ByteLevelBPETokenizerConfig())
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert UNK not in ids


@each_config
def test_tokenizer_is_not_trained(config):
    with pytest.raises(ConfigError) as error:
        config.train(["a"])
    assert str(error.value) == (
        f"tokenizers.type: '{config.type}' comes with a pretrained model and is not trained\n"
        "  name the model in model.encoder.path, or use `type: subword`"
    )


def test_damaged_merges_reported(tmp_path):
    config = ByteLevelBPETokenizerConfig()
    build(config).save(tmp_path)
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(CorruptRunError) as error:
        config.load(tmp_path)
    assert str(error.value) == (
        f"{tmp_path / 'merges.txt'}: contains a line that is not a pair of tokens\n"
        "  restore the file from a copy, or train again"
    )


def folder_with(path, **files):
    """Write files of a tokenizer, and return the folder."""
    (path / "config.json").write_text("{}")
    for name, contents in files.items():
        text = contents if isinstance(contents, str) else json.dumps(contents)
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return HFFolder(path)


def test_vocab_txt_loads_like_tokenizer_json(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    settings = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    folder = folder_with(old, vocab__txt="\n".join(tokens) + "\n", tokenizer_config__json=settings)
    normalizer = {"type": "BertNormalizer", "lowercase": False, "strip_accents": True}
    normalizer |= {"handle_chinese_chars": False, "clean_text": True}
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(tokens)}}
    parts = {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    other = folder_with(new, tokenizer__json={**parts, "model": model})
    size = len(tokens)
    assert read_hf_tokenizer(folder, vocab_size=size) == read_hf_tokenizer(other, vocab_size=size)


def test_vocab_json_and_merges_load_like_tokenizer_json(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    ids = {token: index for index, token in enumerate(["<|endoftext|>", *BPE_TOKENS])}
    lines = "".join(f"{left} {right}\n" for left, right in MERGES)
    folder = folder_with(old, vocab__json=ids, merges__txt="#version: 0.2\n" + lines)
    model = {"type": "BPE", "vocab": ids, "merges": [list(pair) for pair in MERGES]}
    pre_tokenizer = {"type": "ByteLevel", "add_prefix_space": False}
    other = folder_with(new, tokenizer__json={"pre_tokenizer": pre_tokenizer, "model": model})
    read = read_hf_tokenizer(folder, vocab_size=len(ids))
    assert read == read_hf_tokenizer(other, vocab_size=len(ids))
    assert read.special_ids == {"bos_token": 0, "eos_token": 0}


BERT_STEPS = {
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
REFUSED = {
    "unigram": ({"model": {"type": "Unigram", "vocab": {}}}, "has a model of type 'Unigram'"),
    "normalizer": (
        {**BERT_STEPS, "normalizer": {"type": "NFC"}, "model": {"type": "WordPiece", "vocab": {}}},
        "has 'NFC' in place of 'BertNormalizer'",
    ),
    "prefix": (
        {
            **BERT_STEPS,
            "model": {"type": "WordPiece", "continuing_subword_prefix": "@", "vocab": {}},
        },
        "has pieces that begin with '@'",
    ),
    "pre-tokenizer": (
        {"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "BPE", "vocab": {}}},
        "has 'Whitespace' in place of 'ByteLevel'",
    ),
    "byte fallback": (
        {
            "pre_tokenizer": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {}, "byte_fallback": True},
        },
        "has byte_fallback True",
    ),
}


@pytest.mark.parametrize(("contents", "message"), REFUSED.values(), ids=REFUSED)
def test_unknown_step_of_a_tokenizer_is_reported_by_name(contents, message, tmp_path):
    folder = folder_with(tmp_path, tokenizer__json=contents)
    with pytest.raises(DataError) as error:
        read_hf_tokenizer(folder, vocab_size=0)
    assert str(error.value) == (
        f"{tmp_path / 'tokenizer.json'}: {message}, which is not known here\n"
        "  only WordPiece and byte-level BPE, as BERT, RoBERTa and GPT-2 have them, are read"
    )


def test_folder_without_a_tokenizer_and_ids_with_gaps_reported(tmp_path):
    with pytest.raises(DataError) as error:
        read_hf_tokenizer(folder_with(tmp_path), vocab_size=1)
    assert str(error.value) == (
        f"{tmp_path}: has no tokenizer\n"
        "  add tokenizer.json, vocab.txt, or vocab.json with merges.txt"
    )
    model = {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}
    folder = folder_with(tmp_path, tokenizer__json={**BERT_STEPS, "model": model})
    with pytest.raises(DataError) as error:
        read_hf_tokenizer(folder, vocab_size=2)
    assert str(error.value) == (
        f"{tmp_path / 'tokenizer.json'}: the ids of its tokens are not 0, 1, 2 ... without gaps\n"
        "  download or write the folder again; nothing was written"
    )

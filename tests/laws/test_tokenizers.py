"""Invariants of every tokenizer."""

from functools import cache
from typing import get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.tokenization.imported import ImportedTokenizerConfig
from heedful.tokenization.pretrained import PretrainedTokenizerConfig
from heedful.tokenization.standalone import (
    SPACE_MARK,
    STANDALONE_TYPES,
    TextTokenizer,
    split_spaces,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import NormalizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerConfig
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK

# Read from the union, so that a new tokenizer is tested as soon as it is listed.
# Those of imported and pretrained models are not trained; tests/conformance covers them.
UNTRAINED = (ImportedTokenizerConfig, PretrainedTokenizerConfig)
MEMBERS = [config() for config in get_args(get_args(TokenizerConfig)[0])]
CONFIGS = {config.type: config for config in MEMBERS if not isinstance(config, UNTRAINED)}
CONFIGS["subword-bpe"] = SubwordTokenizerConfig(model_type="bpe")
CONFIGS = {
    name: config.model_copy(update={"vocab_size": 400}) if hasattr(config, "vocab_size") else config
    for name, config in CONFIGS.items()
}
# Labels are stripped by default; the invariants are those of the text after normalization.
CONFIGS["label"] = CONFIGS["label"].model_copy(update={"normalization": NormalizerConfig()})
# SMILES rejects the texts of these tests by default.
CONFIGS["smiles"] = CONFIGS["smiles"].model_copy(update={"strict": False})
# Positions are numbers that depend on a source; tests/unit/tasks/translation covers them.
del CONFIGS["position"]
each_tokenizer = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def each_but(*names):
    configs = {name: config for name, config in CONFIGS.items() if name not in names}
    return pytest.mark.parametrize("config", configs.values(), ids=configs)


# A label is one token, so a part of a label is unknown; a word comes with its characters.
each_composing_tokenizer = each_but("label", "word-character")
# Each word of these is normalized on its own.
each_text_normalizing_tokenizer = each_but("word-character")


def restored(config, text):
    """The text that decoding gives: single spaces, if spaces are what separates tokens."""
    return " ".join(split_spaces(text)) if config.type in ("whitespace", "word-character") else text


CORPUS = ["puella in horto ambulat.", "the girl walks in the garden", "vidit leonem  magnum"]

EDGE_CASES = {
    "empty": "",
    "one space": " ",
    "three spaces": "   ",
    "spaces on both ends": "  a  b ",
    "carriage return": "one line of Windows\r",
    "newline within": "a\r\nb\n",
    "other line ends": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "tab": "a\tb",
    "byte order mark": "\ufeffa\ufeffb",
    "control characters": "\x01\x02\x1b[31m\x7f",
    "NUL": "a\0b",
    "decomposed": "e\u0301",
    "ligature": "\ufb01n",
    "replacement character": "a\ufffdb",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u200fabc\u200e",
    "right-to-left override": "abc\u202edef\u202c",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "unassigned plane": "\U000e0fff\U0010fffe",
    "noncharacter": "\uffff\ufdd0",
    "mark of a space": "a\u2581b \u2581",
    "mark of sentencepiece's trainer": "\u2585 a",
    "private use": "\ue000\ue001\ue000\ue000\ue002",
    "devanagari": "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e",
    "no spaces": "\u6211\u7231\u5317\u4eac\u5929\u5b89\u95e8\u3002",
    "special symbols": "<unk> <s></s> <pad>[SEP] [PAD] </s>",
    "byte names": "<0x41><0x00> <0xE2>",
}
each_edge_case = pytest.mark.parametrize("text", EDGE_CASES.values(), ids=EDGE_CASES)

texts_with_edge_cases = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.sampled_from([*EDGE_CASES.values(), *CORPUS]),
    ),
    max_size=4,
).map("".join)


@cache
def trained(config):
    """A tokenizer trained on the corpus, once per config."""
    return config.train(CORPUS)


@each_tokenizer
@given(text=texts_with_edge_cases.filter(bool))
@settings(deadline=None, max_examples=20)
def test_training_text_round_trips(config, text):
    assume(restored(config, text))
    tokenizer = config.train([text])
    assert tokenizer.decode(tokenizer.encode(text)) == restored(config, text)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@given(text=texts_with_edge_cases)
@settings(deadline=None)
def test_subword_tokenizer_round_trips_any_text(model_type, text):
    tokenizer = trained(SubwordTokenizerConfig(vocab_size=400, model_type=model_type))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert UNK not in ids


@each_tokenizer
@each_edge_case
def test_edge_cases_round_trip(config, text):
    tokenizer = config.train([*CORPUS, text])
    assert tokenizer.decode(tokenizer.encode(text)) == restored(config, text)


@each_text_normalizing_tokenizer
@pytest.mark.parametrize("unicode", ["none", "nfc", "nfkc"])
@given(text=texts_with_edge_cases, lowercase=st.booleans(), strip=st.booleans())
@settings(deadline=None, max_examples=10)
def test_decoded_text_is_normalized_text(config, unicode, text, lowercase, strip):
    normalization = NormalizerConfig(unicode=unicode, lowercase=lowercase, strip=strip)
    tokenizer = config.model_copy(update={"normalization": normalization}).train([*CORPUS, text])
    expected = restored(config, normalization.normalize(text))
    assert tokenizer.decode(tokenizer.encode(text)) == expected


standalone_configs = {
    name: config for name, config in CONFIGS.items() if config.type in STANDALONE_TYPES
}


@pytest.mark.parametrize("config", standalone_configs.values(), ids=standalone_configs)
@pytest.mark.parametrize("lowercase", [True, False])
def test_standalone_tokenizer_matches(config, lowercase, tmp_path):
    """The file that exports carry encodes and decodes as heedful does."""
    normalization = NormalizerConfig(
        lowercase=lowercase, punctuation="remove" * lowercase or "keep"
    )
    config = config.model_copy(update={"normalization": normalization})
    ours = config.train([*CORPUS, *list(EDGE_CASES.values())[::2]])
    ours.save(tmp_path)
    alone = TextTokenizer(tmp_path, config.model_dump())
    for text in [*CORPUS, *EDGE_CASES.values(), "LEONEM vidit , quem"]:
        assert alone.encode(text) == ours.encode(text)
        assert alone.decode([BOS, *ours.encode(text), EOS]) == ours.decode(ours.encode(text))
    ids = list(range(len(ours)))
    assert alone.decode(ids) == ours.decode(ids)


@each_tokenizer
@given(text=texts_with_edge_cases)
@settings(deadline=None)
def test_no_text_encodes_to_bos_eos_or_pad(config, text):
    assert not {PAD, BOS, EOS} & set(trained(config).encode(text))


@each_tokenizer
def test_typed_special_tokens_are_plain_text(config):
    text = EDGE_CASES["special symbols"]
    ids = config.train([text]).encode(text)
    assert min(ids) > EOS


@each_tokenizer
@given(texts=st.lists(texts_with_edge_cases, max_size=5))
@settings(deadline=None)
def test_encode_batch_same_as_encode(config, texts):
    tokenizer = trained(config)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


@each_tokenizer
@given(text=texts_with_edge_cases)
@settings(deadline=None)
def test_ids_are_in_vocabulary_and_displayable(config, text):
    tokenizer = trained(config)
    ids = tokenizer.encode(text)
    assert all(0 <= token < tokenizer.id_bound for token in ids)
    assert len(tokenizer.ids_to_tokens(ids)) == len(ids)
    assert all(tokenizer.ids_to_tokens(range(len(tokenizer))))


@each_composing_tokenizer
def test_tokens_show_the_text(config):
    tokenizer = config.train(["horto. horto. horto. horto."] * 9)
    shown = tokenizer.ids_to_tokens(tokenizer.encode("horto."))
    assert "".join(shown).replace(SPACE_MARK, " ").strip() == "horto."


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_subwords_marked_where_a_word_begins(model_type):
    config = SubwordTokenizerConfig(model_type=model_type, vocab_size=280)
    tokenizer = config.train(["in horto est", "hortus in via"] * 9)
    for text in ("in horto est", "hortus", "est est  in"):
        shown = tokenizer.ids_to_tokens(tokenizer.encode(text))
        assert "".join(shown) == SPACE_MARK + text.replace(" ", SPACE_MARK)


@each_composing_tokenizer
def test_bos_eos_and_pad_decode_to_nothing(config):
    tokenizer = trained(config)
    ids = tokenizer.encode("in horto")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "in horto"
    assert tokenizer.ids_to_tokens([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


@each_tokenizer
def test_unk_decodes_to_the_name(config):
    assert trained(config).decode([UNK]) == "<unk>"


@each_tokenizer
def test_empty_text_has_no_tokens(config):
    tokenizer = trained(config)
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_batch([]) == []


@each_tokenizer
def test_loaded_tokenizer_encodes_the_same(config, tmp_path):
    texts = [*CORPUS, *EDGE_CASES.values()]
    tokenizer = config.train(texts)
    tokenizer.save(tmp_path)
    loaded = config.load(tmp_path)
    ids = tokenizer.encode_batch(texts)
    assert len(loaded) == len(tokenizer)
    assert loaded.encode_batch(texts) == ids
    assert [loaded.decode(row) for row in ids] == [restored(config, text) for text in texts]
    assert [loaded.ids_to_tokens(row) for row in ids] == [
        tokenizer.ids_to_tokens(row) for row in ids
    ]


@each_tokenizer
def test_training_is_deterministic(config, tmp_path):
    texts = [f"{line} {index}" for index in range(200) for line in CORPUS]
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        config.train(iter(texts)).save(tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]
    assert len(files[0]) == 1


@each_tokenizer
@pytest.mark.parametrize("text", ["a", "\u6f22", " ", "ab. ", "\u2581"])
@pytest.mark.parametrize("length", [10**5, pytest.param(10**6, marks=pytest.mark.wide)])
def test_long_line_round_trips(config, text, length):
    line = (text * length)[:length]
    tokenizer = config.train([*CORPUS, line])
    assert tokenizer.decode(tokenizer.encode(line)) == restored(config, line)


@each_tokenizer
@given(before=st.text("ab\u6f22", max_size=5), surrogate=st.characters(categories=["Cs"]))
@settings(deadline=None)
def test_lone_surrogate_raises_with_position(config, before, surrogate):
    with pytest.raises(DataError) as caught:
        trained(config).encode(before + surrogate + "b")
    assert caught.value.location == "text"
    assert caught.value.message.startswith(
        f"character {len(before) + 1} is U+{ord(surrogate):04X}, half of a surrogate pair"
    )


@each_tokenizer
def test_lone_surrogate_in_batch_is_numbered(config):
    for function in (trained(config).encode_batch, config.train):
        with pytest.raises(DataError) as caught:
            function(["a", "b", "c\udfff"])
        assert caught.value.location == "text 3"

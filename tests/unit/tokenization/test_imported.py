"""Tokenizers of imported models: subword-nmt by hand, SentencePiece by its own package."""

import io
from itertools import islice

import pytest
import sentencepiece

from heedful.data.synthetic import get_corpus
from heedful.errors import ConfigError, CorruptRunError
from heedful.tokenization.imported import (
    SentencePieceTokenizerConfig,
    SubwordNMTTokenizerConfig,
    use_only_pieces,
)
from heedful.tokenization.tokenizer import NormalizerConfig
from heedful.tokenization.vocabulary import UNK, Vocabulary

TEXTS = ["the lower tower", "lowest of the low", "a new tower is newer", "the widest river flows"]
# Pairs in the order of their merges: lo, low, low</w>, er</w>, th, the</w>, we, tow
CODES = b"#version: 0.2\nl o\nlo w</w>\nlo w\ne r</w>\nt h\nth e</w>\nt o\nto w\n"
PIECES = ["low", "low@@", "er", "the", "tow@@", "e@@", "s@@", "t", "n@@", "w@@", "r@@", "o@@", "w"]


def subword_nmt(codes=CODES, pieces=PIECES, **settings):
    return SubwordNMTTokenizerConfig(**settings).build(Vocabulary(pieces), codes)


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("low", ["low"]),  # l o -> lo, then lo w</w>
        ("lower", ["low@@", "er"]),
        ("the", ["the"]),
        ("tower", ["tow@@", "er"]),
        ("lowest", ["low@@", "e@@", "s@@", "t"]),
        ("t", ["t"]),  # no merge of a single character
        ("lolo", ["lo@@", "l@@", "o"]),  # o</w> is another symbol than o
    ],
)
def test_merges_by_hand(word, pieces):
    assert subword_nmt().tokenize(word) == pieces


def test_repeated_codes_have_no_effect():
    header, *lines = CODES.splitlines(keepends=True)
    repeated = subword_nmt(header + b"".join(line * 3 for line in lines))
    assert [repeated.tokenize(text) for text in TEXTS] == list(map(subword_nmt().tokenize, TEXTS))


def test_version_1_has_a_separate_end_mark():
    """l o w </w>: low is merged first, and then with the end."""
    codes = b"l o\nlo w\nlow </w>\n"
    assert subword_nmt(codes).tokenize("low lowl") == ["low", "low@@", "l"]


def test_unlisted_pieces_split_by_undoing_merges():
    pieces = ["lo@@", "w", "er", "t@@", "h@@", "e"]
    tokenizer = subword_nmt(pieces=pieces, only_listed_pieces=True)
    # low</w> = lo w</w>; the</w> = th e</w>, and th is not listed: t h.
    assert tokenizer.tokenize("low the") == ["lo@@", "w", "t@@", "h@@", "e"]
    assert subword_nmt(pieces=pieces).tokenize("low the") == ["low", "the"]


def test_subword_nmt_decodes_what_it_encodes(tmp_path):
    pieces = dict.fromkeys(piece for text in TEXTS for piece in subword_nmt().tokenize(text))
    config = SubwordNMTTokenizerConfig(normalization=NormalizerConfig(lowercase=True))
    tokenizer = config.build(Vocabulary(pieces), CODES)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(f" {text.upper()}  ")) == text
    tokenizer.save(tmp_path)
    assert config.load(tmp_path).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])
    assert tokenizer.encode("zz") == [UNK, UNK]
    assert tokenizer.decode([UNK, *tokenizer.encode("tower")]) == "<unk> tower"


def test_damaged_codes_reported(tmp_path):
    subword_nmt().save(tmp_path)
    path = tmp_path / "codes.txt"
    for data, message in (
        (b"#version: 0.2\na b\na b c\n", "line 3 is not a pair of pieces"),
        (b"#version: 7.1\na b\n", "codes of the unknown version '7.1' of subword-nmt"),
        (b"\xff\xfe", "not UTF-8, so no codes of subword-nmt"),
    ):
        path.write_bytes(data)
        with pytest.raises(CorruptRunError) as caught:
            SubwordNMTTokenizerConfig().load(tmp_path)
        assert caught.value.message == message


def test_imported_tokenizers_not_trained():
    with pytest.raises(ConfigError) as caught:
        SubwordNMTTokenizerConfig().train(TEXTS)
    assert str(caught.value) == (
        "tokenizers.type: 'subword-nmt' comes with an imported model and is not trained\n"
        "  use `type: subword`"
    )


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def sentencepiece_model(request):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(latin(300)),
        model_writer=model,
        model_type=request.param,
        vocab_size=120,
        minloglevel=2,
    )
    return model.getvalue()


def latin(count):
    return [pair.source for pair in islice(get_corpus("latin").pairs("train", seed=0), count)]


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return processor, [processor.IdToPiece(index) for index in range(len(processor))]


def test_sentencepiece_returns_the_pieces_of_the_package(sentencepiece_model, tmp_path):
    processor, pieces = pieces_of(sentencepiece_model)
    listed = sorted(set(pieces) - {"<unk>", "<s>", "</s>"})
    tokenizer = SentencePieceTokenizerConfig().build(Vocabulary(listed), sentencepiece_model)
    for text in (texts := latin(20)):
        ids = tokenizer.encode(text)
        assert tokenizer.ids_to_tokens(ids) == processor.encode(text, out_type=str)
        assert tokenizer.decode(ids) == text
    tokenizer.save(tmp_path)
    loaded = SentencePieceTokenizerConfig().load(tmp_path)
    assert loaded.encode(texts[1]) == tokenizer.encode(texts[1])
    assert loaded.decode([*ids, UNK, *ids]) == f"{texts[-1]} <unk> {texts[-1]}"
    (tmp_path / "subwords.model").write_bytes(b"none")
    with pytest.raises(CorruptRunError, match="not a SentencePiece model"):
        SentencePieceTokenizerConfig().load(tmp_path)


def test_restricted_sentencepiece_uses_only_listed_pieces(sentencepiece_model):
    processor, pieces = pieces_of(sentencepiece_model)
    used = {piece for text in latin(20) for piece in processor.encode(text, out_type=str)}
    dropped = {piece for piece in used if 1 < len(piece) < 5}
    assert dropped
    model = use_only_pieces(sentencepiece_model, set(pieces) - dropped)
    processor, same_pieces = pieces_of(model)
    assert same_pieces == pieces
    for text in latin(20):
        encoded = processor.encode(text, out_type=str)
        assert not dropped & set(encoded)
        assert processor.decode(encoded) == text
    assert use_only_pieces(sentencepiece_model, set(pieces)) == sentencepiece_model

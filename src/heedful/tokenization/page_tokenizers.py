"""Tokenizers as data for a page, whose JavaScript gives the ids that Python gives.

What counts as part of a word is written out, since versions of Unicode differ between Python and
browsers. Invariant: each type here has its rule in `plotting/page/tokenizers.js`.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from heedful.tokenization.byte_level_bpe import (
    BartTokenizerConfig,
    ByteLevelBPETokenizer,
    byte_characters,
    is_letter,
)
from heedful.tokenization.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from heedful.tokenization.special_texts import MAX_CHARACTERS, NUM_CHARACTERS
from heedful.tokenization.standalone import word_character
from heedful.tokenization.subword import NUM_BYTES, SubwordTokenizer, SubwordTokenizerConfig
from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK
from heedful.tokenization.wordpiece import WordPieceTokenizerConfig, is_chinese, is_punctuation

_TYPES = (
    *("word", "character", "label", "smiles", "whitespace", "word-character", "subword"),
    *("byte-level-bpe", "bart", "wordpiece"),
)
_UNKNOWN_PENALTY = 10.0  # of a character without a piece, as in SentencePiece
_MAX_CODE = 0x110000


def unsupported_tokenizer(settings: TokenizersConfig, tokenizers: TokenizerPair) -> str | None:
    """Return why a page cannot encode texts as these tokenizers do; None if it can."""
    for config in _configs(settings, tokenizers).values():
        if config.type not in _TYPES:
            types = ", ".join(_TYPES)
            return f"pages have no tokenizers of the type '{config.type}', only: {types}"
        if getattr(config, "mark_words", False):
            return "its tokenizer marks the first piece of each word"
    return None


def describe_tokenizers(settings: TokenizersConfig, tokenizers: TokenizerPair) -> dict[str, Any]:
    """Return the tokenizers by side, or one that is shared, as JSON values."""
    by_side = {"shared": tokenizers.source, **tokenizers._asdict()}
    configs = _configs(settings, tokenizers)
    return {side: _describe(by_side[side], config) for side, config in configs.items()}


def _configs(settings: Any, tokenizers: TokenizerPair) -> dict[str, Any]:
    if tokenizers.source is tokenizers.target:
        return {"shared": settings.source_config}
    return {"source": settings.source, "target": settings.target}


def _describe(tokenizer: Tokenizer, config: Any) -> dict[str, Any]:
    if isinstance(config, SubwordTokenizerConfig):
        assert isinstance(tokenizer, SubwordTokenizer)
        described = {**_describe_normalization(config), **_describe_subwords(tokenizer, config)}
    elif isinstance(config, PretrainedTokenizerConfig):
        assert isinstance(tokenizer, PretrainedTokenizer)
        described = _describe_pretrained(tokenizer, config)
    else:
        assert isinstance(tokenizer, VocabularyTokenizer)
        described = {**_describe_normalization(config), **_describe_vocabulary(tokenizer, config)}
    described["has_line_breaks"] = tokenizer.has_line_breaks
    displayed = tokenizer.ids_to_tokens(range(len(tokenizer)))
    pairs = enumerate(zip(described["tokens"], displayed, strict=True))
    described["displayed"] = {
        str(index): shown for index, (token, shown) in pairs if token != shown
    }
    return described


def _describe_normalization(config: Any) -> dict[str, Any]:
    normalization = config.normalization.model_dump(mode="json")
    described = {"type": config.type, "normalization": normalization}
    if normalization["punctuation"] == "remove":
        described["alphanumeric"] = _word_class(joins_marks=False)
    return described


def _describe_vocabulary(tokenizer: VocabularyTokenizer, config: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tokens": ["", tokenizer.unk_token, "", "", *tokenizer.vocabulary.tokens],
        "first_id": NUM_SPECIAL_TOKENS,
    }
    if config.type == "word":
        described["word"] = _word_class(joins_marks=True)
    if config.type == "word-character":
        described |= {"max_characters": MAX_CHARACTERS, "num_characters": NUM_CHARACTERS}
    return described


def _describe_pretrained(tokenizer: PretrainedTokenizer, config: Any) -> dict[str, Any]:
    described = {
        "type": config.type,
        "tokens": ["", SPECIAL_TOKENS[UNK], "", "", *tokenizer.vocabulary.tokens],
        "first_id": NUM_SPECIAL_TOKENS,
    }
    if isinstance(config, WordPieceTokenizerConfig):
        names = ("lowercase", "strip_accents", "clean_text", "split_chinese", "max_word_length")
        return {
            **described,
            **{name: getattr(config, name) for name in names},
            "spaces": _category_class("Zs"),
            "controls": _category_class("Cc", "Cf", "Co", "Cs"),
            "marks": _category_class("Mn"),
            "chinese": _character_class(is_chinese),
            "punctuation": _character_class(is_punctuation),
        }
    assert isinstance(tokenizer, ByteLevelBPETokenizer)
    described |= {
        "add_prefix_space": config.add_prefix_space,
        "merges": [" ".join(merge) for merge in tokenizer.merges],
        "bytes": byte_characters(),
        "letter": _character_class(is_letter),
        "number": _category_class("Nd", "Nl", "No"),
        "word": _word_class(joins_marks=False),
    }
    if isinstance(config, BartTokenizerConfig):
        special_tokens = (config.prefix_token, *config.special_tokens)
        described["special_ids"] = tokenizer.vocabulary.tokens_to_ids(special_tokens)
    return described


def _describe_subwords(
    tokenizer: SubwordTokenizer, config: SubwordTokenizerConfig
) -> dict[str, Any]:
    pieces = tokenizer.learned_pieces
    scores = [piece.score for piece in pieces.values()]
    first = ["", SPECIAL_TOKENS[UNK], "", "", *[""] * NUM_BYTES]
    unknown = np.float32(min(scores, default=0.0)) - np.float32(_UNKNOWN_PENALTY)
    return {
        "type": config.model_type,
        "tokens": [*first, *pieces],
        "first_id": len(first),
        "scores": scores,
        "unk_score": float(unknown),
    }


@cache
def _word_class(*, joins_marks: bool) -> str:
    r"""Return what is in a class of characters of a JavaScript pattern: \w, or parts of words."""
    pattern = re.compile(word_character() if joins_marks else r"\w")
    return _character_class(lambda char: bool(pattern.match(char)))


@cache
def _category_class(*categories: str) -> str:
    return _character_class(lambda char: unicodedata.category(char) in categories)


@cache
def _character_class(is_member: Callable[[str], bool]) -> str:
    """Return the characters with a property as the ranges of a JavaScript pattern."""
    codes = [code for code in range(_MAX_CODE) if is_member(chr(code))]
    members = set(codes)
    starts = [code for code in codes if code - 1 not in members]
    ends = [code for code in codes if code + 1 not in members]
    return "".join(
        f"\\u{{{start:x}}}-\\u{{{end:x}}}" for start, end in zip(starts, ends, strict=True)
    )

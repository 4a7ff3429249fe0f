"""Tokenizers as data for a page, whose JavaScript gives the ids that Python gives.

What counts as part of a word is written out, since versions of Unicode differ between Python and
browsers. Invariant: each type here has its rule in `plotting/page/tokenizers.js`.
"""

import re
from functools import cache
from typing import Any

import numpy as np

from heedful.tokenization.standalone import word_character
from heedful.tokenization.subword import NUM_BYTES, SubwordTokenizer, SubwordTokenizerConfig
from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair, TokenizersConfig
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK

_TYPES = ("word", "character", "label", "smiles", "whitespace", "subword")
_UNKNOWN_PENALTY = 10.0  # of a character without a piece, as in SentencePiece
_MAX_CODE = 0x110000


def unsupported_tokenizer(settings: TokenizersConfig, tokenizers: TokenizerPair) -> str | None:
    """Return why a page cannot encode texts as these tokenizers do; None if it can."""
    for config in _configs(settings, tokenizers).values():
        if config.type not in _TYPES:
            types = ", ".join(_TYPES)
            return f"pages have no tokenizers of the type '{config.type}', only: {types}"
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
    normalization = config.normalization.model_dump(mode="json")
    described = {"type": config.type, "normalization": normalization}
    if normalization["punctuation"] == "remove":
        described["alphanumeric"] = _character_class(joins_marks=False)
    if isinstance(config, SubwordTokenizerConfig):
        assert isinstance(tokenizer, SubwordTokenizer)
        described |= _describe_subwords(tokenizer, config)
    else:
        assert isinstance(tokenizer, VocabularyTokenizer)
        described["tokens"] = ["", tokenizer.unk_token, "", "", *tokenizer.vocabulary.tokens]
        described["first_id"] = NUM_SPECIAL_TOKENS
        if config.type == "word":
            described["word"] = _character_class(joins_marks=True)
    displayed = tokenizer.ids_to_tokens(range(len(tokenizer)))
    pairs = enumerate(zip(described["tokens"], displayed, strict=True))
    described["displayed"] = {
        str(index): shown for index, (token, shown) in pairs if token != shown
    }
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
def _character_class(*, joins_marks: bool) -> str:
    r"""Return what is in a class of characters of a JavaScript pattern: \w, or parts of words."""
    pattern = re.compile(word_character() if joins_marks else r"\w")
    codes = [code for code in range(_MAX_CODE) if pattern.match(chr(code))]
    members = set(codes)
    starts = [code for code in codes if code - 1 not in members]
    ends = [code for code in codes if code + 1 not in members]
    return "".join(
        f"\\u{{{start:x}}}-\\u{{{end:x}}}" for start, end in zip(starts, ends, strict=True)
    )

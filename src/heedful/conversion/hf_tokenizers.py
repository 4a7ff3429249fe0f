"""Tokenizer files of Hugging Face: WordPiece and byte-level BPE, from either of their two layouts.

`tokenizer.json` has all of a tokenizer; older folders have `vocab.txt`, or `vocab.json` and
`merges.txt`, with `tokenizer_config.json`. A step that is not known is refused by name. Invariant:
a text gets the ids that the library gives it, except for special tokens that a text spells.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.conversion.hf_folder import CONFIG, HFFolder
from heedful.conversion.registry import explain_odd_values
from heedful.errors import DataError, check, format_count
from heedful.tokenization.byte_level_bpe import (
    MERGES_FILE,
    ByteLevelBPETokenizer,
    ByteLevelBPETokenizerConfig,
    Merge,
    read_merges,
)
from heedful.tokenization.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig
from heedful.tokenization.vocabulary import Vocabulary, read_saved_file
from heedful.tokenization.wordpiece import (
    CONTINUATION,
    WordPieceTokenizer,
    WordPieceTokenizerConfig,
)

_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_SPECIAL_TOKENS_MAP, _WORDS, _BPE_WORDS = "special_tokens_map.json", "vocab.txt", "vocab.json"
_AGAIN_HINT = "download or write the folder again; nothing was written"
_UNKNOWN_HINT = "only WordPiece and byte-level BPE, as BERT, RoBERTa and GPT-2 have them, are read"
_WORDPIECE_SPECIAL = {
    **{"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "mask_token": "[MASK]",
}
_BPE_SPECIAL = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


class HFTokenizer(NamedTuple):
    """A tokenizer as its files describe it."""

    tokens: Sequence[str]
    """By their id."""
    special_ids: Mapping[str, int]
    """Their ids of special tokens that there are: "pad_token", "cls_token", "mask_token" ..."""
    config: PretrainedTokenizerConfig
    merges: Sequence[Merge] = ()
    mask_lstrip: bool = True
    """Whether the mask token takes the white space before it."""

    def build(self, tokens: Sequence[str]) -> PretrainedTokenizer:
        """Return the tokenizer with a vocabulary of these tokens, in this order."""
        vocabulary, config = Vocabulary(tokens), self.config
        if isinstance(config, WordPieceTokenizerConfig):
            return WordPieceTokenizer(vocabulary, config)
        assert isinstance(config, ByteLevelBPETokenizerConfig), type(config)
        return ByteLevelBPETokenizer(vocabulary, self.merges, config)


def read_hf_tokenizer(folder: HFFolder, *, vocab_size: int) -> HFTokenizer:
    """Read the tokenizer of a model with this many tokens; raise DataError if it is not known."""
    if folder.has(_TOKENIZER):
        name, read = _TOKENIZER, _read_tokenizer_json
    elif folder.has(_WORDS):
        name, read = _WORDS, _read_vocab_txt
    elif folder.has(_BPE_WORDS) and folder.has(MERGES_FILE):
        name, read = _BPE_WORDS, _read_vocab_json
    else:
        files = f"{_TOKENIZER}, {_WORDS}, or {_BPE_WORDS} with {MERGES_FILE}"
        raise DataError(str(folder.path), "has no tokenizer", f"add {files}")
    with explain_odd_values(folder.path / name):
        tokenizer = _without_rowless_specials(read(folder), vocab_size)
        tokenizer = tokenizer._replace(mask_lstrip=_read_mask_lstrip(folder))
    tokens = format_count(len(tokenizer.tokens), "token")
    message = f"vocab_size is {vocab_size}, but the tokenizer has {tokens}"
    is_same = len(tokenizer.tokens) == vocab_size
    check(is_same, str(folder.path / CONFIG), message, _AGAIN_HINT, DataError)
    return tokenizer


def _without_rowless_specials(tokenizer: HFTokenizer, vocab_size: int) -> HFTokenizer:
    """Drop special tokens behind the last row of the model, such as <mask> of bart-large-cnn."""
    special = tokenizer.special_ids
    beyond = range(vocab_size, len(tokenizer.tokens))
    if not beyond or not {*beyond} <= {*special.values()}:
        return tokenizer
    special_ids = {name: index for name, index in special.items() if index < vocab_size}
    return tokenizer._replace(tokens=tokenizer.tokens[:vocab_size], special_ids=special_ids)


def require_special_tokens(tokenizer: HFTokenizer, folder: HFFolder, names: Sequence[str]) -> None:
    """Raise DataError if one of these special tokens is not defined."""
    for name in names:
        message = f"the tokenizer has no {name}"
        is_known = name in tokenizer.special_ids
        check(is_known, str(folder.path), message, f"set it in {_SPECIAL_TOKENS_MAP}", DataError)


# ----- tokenizer.json


def _read_tokenizer_json(folder: HFFolder) -> HFTokenizer:
    settings = folder.read_json(_TOKENIZER)
    location = str(folder.path / _TOKENIZER)
    model = settings.get("model") or {}
    ids = dict(_pairs(model.get("vocab"), location))
    ids |= {str(token["content"]): int(token["id"]) for token in settings.get("added_tokens") or ()}
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind == "WordPiece":
        config = _wordpiece_config(settings, model, location)
        special = _special_ids(folder, ids, _WORDPIECE_SPECIAL)
        return HFTokenizer(_tokens_by_id(ids, location), special, config)
    _refuse(kind != "BPE", f"a model of type {kind!r}", location)
    bpe_config = _bpe_config(settings, model, location)
    merges = [_merge(merge, location) for merge in model.get("merges") or ()]
    special = _special_ids(folder, ids, _BPE_SPECIAL)
    return HFTokenizer(_tokens_by_id(ids, location), special, bpe_config, merges)


def _wordpiece_config(
    settings: Mapping[str, Any], model: Mapping[str, Any], location: str
) -> WordPieceTokenizerConfig:
    normalizer = settings.get("normalizer") or {}
    kinds = normalizer.get("type"), (settings.get("pre_tokenizer") or {}).get("type")
    for kind, expected in zip(kinds, ("BertNormalizer", "BertPreTokenizer"), strict=True):
        _refuse(kind != expected, f"{kind!r} in place of {expected!r}", location)
    prefix = model.get("continuing_subword_prefix", CONTINUATION)
    _refuse(prefix != CONTINUATION, f"pieces that begin with {prefix!r}", location)
    lowercase = bool(normalizer.get("lowercase", True))
    strip_accents = normalizer.get("strip_accents")
    return WordPieceTokenizerConfig(
        lowercase=lowercase,
        strip_accents=lowercase if strip_accents is None else bool(strip_accents),
        clean_text=bool(normalizer.get("clean_text", True)),
        split_chinese=bool(normalizer.get("handle_chinese_chars", True)),
        max_word_length=int(model.get("max_input_chars_per_word", 100)),
    )


def _bpe_config(
    settings: Mapping[str, Any], model: Mapping[str, Any], location: str
) -> ByteLevelBPETokenizerConfig:
    normalizer = settings.get("normalizer")
    _refuse(normalizer, f"the normalizer {(normalizer or {}).get('type')!r}", location)
    pre_tokenizer = settings.get("pre_tokenizer") or {}
    kind = pre_tokenizer.get("type")
    _refuse(kind != "ByteLevel", f"{kind!r} in place of 'ByteLevel'", location)
    _refuse(not pre_tokenizer.get("use_regex", True), "'ByteLevel' without use_regex", location)
    for name in ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"):
        _refuse(model.get(name), f"{name} {model.get(name)!r}", location)
    return ByteLevelBPETokenizerConfig(
        add_prefix_space=bool(pre_tokenizer.get("add_prefix_space", False))
    )


def _pairs(vocabulary: Any, location: str) -> Iterator[tuple[str, int]]:
    is_valid = isinstance(vocabulary, dict)
    check(is_valid, location, "contains no vocabulary", _AGAIN_HINT, DataError)
    yield from ((str(token), int(token_id)) for token, token_id in vocabulary.items())


def _merge(merge: Any, location: str) -> Merge:
    pair = merge.split(" ") if isinstance(merge, str) else list(merge)
    check(len(pair) == 2, location, f"{merge!r} is not a pair of tokens", _AGAIN_HINT, DataError)
    return str(pair[0]), str(pair[1])


# ----- older files


def _read_vocab_txt(folder: HFFolder) -> HFTokenizer:
    text = read_saved_file(folder.path / _WORDS).decode("utf-8", "replace")
    tokens = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    ids = {token: index for index, token in enumerate(tokens)}
    settings = folder.read_json(_TOKENIZER_CONFIG) if folder.has(_TOKENIZER_CONFIG) else {}
    lowercase = bool(settings.get("do_lower_case", True))
    strip_accents = settings.get("strip_accents")
    config = WordPieceTokenizerConfig(
        lowercase=lowercase,
        strip_accents=lowercase if strip_accents is None else bool(strip_accents),
        split_chinese=bool(settings.get("tokenize_chinese_chars", True)),
    )
    special = _special_ids(folder, ids, _WORDPIECE_SPECIAL)
    return HFTokenizer(_tokens_by_id(ids, str(folder.path / _WORDS)), special, config)


def _read_vocab_json(folder: HFFolder) -> HFTokenizer:
    location = str(folder.path / _BPE_WORDS)
    ids = dict(_pairs(folder.read_json(_BPE_WORDS), location))
    settings = folder.read_json(_TOKENIZER_CONFIG) if folder.has(_TOKENIZER_CONFIG) else {}
    config = ByteLevelBPETokenizerConfig(
        add_prefix_space=bool(settings.get("add_prefix_space", False))
    )
    merges = read_merges(folder.path / MERGES_FILE)
    special = _special_ids(folder, ids, _BPE_SPECIAL)
    return HFTokenizer(_tokens_by_id(ids, location), special, config, merges)


# ----- both


def _tokens_by_id(ids: Mapping[str, int], location: str) -> list[str]:
    tokens = sorted(ids, key=ids.__getitem__)
    is_complete = sorted(ids.values()) == list(range(len(ids)))
    message = "the ids of its tokens are not 0, 1, 2 ... without gaps"
    check(is_complete, location, message, _AGAIN_HINT, DataError)
    return tokens


def _special_ids(
    folder: HFFolder, ids: Mapping[str, int], defaults: Mapping[str, str]
) -> dict[str, int]:
    """Return the ids of the special tokens; a folder may name its own."""
    names: dict[str, Any] = dict(defaults)
    for file in (_TOKENIZER_CONFIG, _SPECIAL_TOKENS_MAP):
        settings = folder.read_json(file) if folder.has(file) else {}
        names |= {name: settings[name] for name in settings if name.endswith("_token")}
    spelled = {
        name: str(value.get("content") if isinstance(value, dict) else value)
        for name, value in names.items()
    }
    return {name: ids[token] for name, token in spelled.items() if token in ids}


def _read_mask_lstrip(folder: HFFolder) -> bool:
    """Return `lstrip` of the mask token; true where a file only spells it, as for RoBERTa."""
    for file in (_TOKENIZER_CONFIG, _SPECIAL_TOKENS_MAP):
        mask = folder.read_json(file).get("mask_token") if folder.has(file) else None
        if isinstance(mask, dict):
            return bool(mask.get("lstrip", False))
    return True


def _refuse(condition: object, what: str, location: str) -> None:
    check(not condition, location, f"has {what}, which is not known here", _UNKNOWN_HINT, DataError)

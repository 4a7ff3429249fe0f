"""Tokenizer files that transformers reads, of tokenizers that it can express.

SentencePiece models become those of a MarianTokenizer. Of others only the files of heedful are
written, and token ids come from heedful.
"""

from pathlib import Path
from typing import Any

from heedful.conversion.hf_folder import write_json
from heedful.tokenization.imported import SentencePieceTokenizer
from heedful.tokenization.subword import SubwordTokenizer
from heedful.tokenization.tokenizer import NormalizerConfig, Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import (
    BOS,
    EOS,
    NUM_SPECIAL_TOKENS,
    PAD,
    SPECIAL_TOKENS,
    UNK,
)

_SPECIAL = {
    "pad_token": SPECIAL_TOKENS[PAD],
    "unk_token": SPECIAL_TOKENS[UNK],
    "bos_token": SPECIAL_TOKENS[BOS],
    "eos_token": SPECIAL_TOKENS[EOS],
}


def has_tokenizer_files(tokenizers: TokenizerPair, config: Any) -> bool:
    """Whether transformers can express both tokenizers."""
    models = map(_sentencepiece_model, tokenizers)
    return all(model is not None for model in models) and _are_unnormalized(config)


def write_tokenizer_files(tokenizers: TokenizerPair, folder: Path, config: Any) -> None:
    """Write the files of transformers, if it can express both tokenizers."""
    if not has_tokenizer_files(tokenizers, config):
        return
    for name, tokenizer in zip(("source.spm", "target.spm"), tokenizers, strict=True):
        (folder / name).write_bytes(_sentencepiece_model(tokenizer) or b"")
    source, target = map(_vocabulary, tokenizers)
    write_json(folder / "vocab.json", source)
    if source != target:
        write_json(folder / "target_vocab.json", target)
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": source != target}
    write_json(folder / "tokenizer_config.json", {**settings, **_SPECIAL})


def _sentencepiece_model(tokenizer: Tokenizer) -> bytes | None:
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.data
    return tokenizer.model if isinstance(tokenizer, SubwordTokenizer) else None


def _are_unnormalized(config: Any) -> bool:
    """Whether texts are tokenized as they are, as MarianTokenizer does it."""
    sides = [config.source, config.target] if config.type == "separate" else [config.tokenizer]
    return all(side.normalization == NormalizerConfig() for side in sides)


def _vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    """Return ids by the names that SentencePiece gives its pieces."""
    if isinstance(tokenizer, SubwordTokenizer):
        names = [*SPECIAL_TOKENS, *tokenizer.piece_names[NUM_SPECIAL_TOKENS:]]
        return {name: index for index, name in enumerate(names)}
    return {
        name: index for index, name in enumerate(tokenizer.ids_to_tokens(range(len(tokenizer))))
    }

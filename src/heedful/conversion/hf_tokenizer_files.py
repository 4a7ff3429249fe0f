"""Tokenizer files that transformers reads, of tokenizers that it can express.

SentencePiece models become those of a MarianTokenizer. Words, characters, labels and SMILES become
a `tokenizer.json` with a WordLevel model; a separate target tokenizer is in `target_tokenizer`.
Invariant: AutoTokenizer gives the ids of the run, with EOS at the end.
"""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from heedful.conversion.hf_folder import write_json
from heedful.tokenization import standalone
from heedful.tokenization.imported import SentencePieceTokenizer
from heedful.tokenization.subword import SubwordTokenizer
from heedful.tokenization.tokenizer import NormalizerConfig, Tokenizer, VocabularyTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, PAD, SPECIAL_TOKENS, UNK

TARGET_FOLDER = "target_tokenizer"
_NAMES = {PAD: "pad_token", UNK: "unk_token", BOS: "bos_token", EOS: "eos_token"}
_SPACE = r"\s"
_SIGMAS = {"\u03c3", "\u03c2"}

_USAGE = """\
## Use

In this folder:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
target_tokenizer = {target}

inputs = tokenizer(["a text"], return_tensors="pt", padding=True)
outputs = model.generate(**inputs)
print(*target_tokenizer.batch_decode(outputs, skip_special_tokens=True), sep="\\n")
```
"""
_USAGE_OF_IDS = """\
## Use

transformers has no such tokenizer: ids come from heedful. In this folder:

```python
from transformers import AutoModelForSeq2SeqLM

model = AutoModelForSeq2SeqLM.from_pretrained(".")
# outputs = model.generate(input_ids=ids)  # of the tokens, then eos_token_id
```
"""

Json = dict[str, Any]


def has_tokenizer_files(tokenizers: TokenizerPair, config: Any) -> bool:
    """Whether transformers can express both tokenizers."""
    return _has_sentencepiece(tokenizers, config) or _has_word_level(tokenizers, config)


def _has_target_folder(tokenizers: TokenizerPair, config: Any) -> bool:
    """Whether targets are decoded with a tokenizer of their own."""
    is_separate = tokenizers.source is not tokenizers.target
    return is_separate and _has_word_level(tokenizers, config)


def describe_usage(tokenizers: TokenizerPair, config: Any) -> str:
    """Return the section of the model card with a program that translates."""
    if not has_tokenizer_files(tokenizers, config):
        return _USAGE_OF_IDS
    is_separate = _has_target_folder(tokenizers, config)
    target = f'AutoTokenizer.from_pretrained("{TARGET_FOLDER}")' if is_separate else "tokenizer"
    return _USAGE.format(target=target)


def write_tokenizer_files(tokenizers: TokenizerPair, folder: Path, config: Any) -> None:
    """Write the files of transformers, if it can express both tokenizers."""
    if _has_sentencepiece(tokenizers, config):
        _write_sentencepiece(tokenizers, folder)
    elif _has_word_level(tokenizers, config):
        source, target = _sides(config)
        _write_word_level(tokenizers.source, source, folder)
        if _has_target_folder(tokenizers, config):
            (folder / TARGET_FOLDER).mkdir()
            _write_word_level(tokenizers.target, target, folder / TARGET_FOLDER)


def _sides(config: Any) -> tuple[Any, Any]:
    """Return the settings of both tokenizers."""
    is_separate = config.type == "separate"
    return (config.source, config.target) if is_separate else (config.tokenizer, config.tokenizer)


# ----- SentencePiece


def _has_sentencepiece(tokenizers: TokenizerPair, config: Any) -> bool:
    models = [_sentencepiece_model(tokenizer) for tokenizer in tokenizers]
    # MarianTokenizer passes texts on as they are.
    return None not in models and all(
        side.normalization == NormalizerConfig() for side in _sides(config)
    )


def _sentencepiece_model(tokenizer: Tokenizer) -> bytes | None:
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.data
    return tokenizer.model if isinstance(tokenizer, SubwordTokenizer) else None


def _write_sentencepiece(tokenizers: TokenizerPair, folder: Path) -> None:
    for name, tokenizer in zip(("source.spm", "target.spm"), tokenizers, strict=True):
        (folder / name).write_bytes(_sentencepiece_model(tokenizer) or b"")
    source, target = map(_piece_ids, tokenizers)
    write_json(folder / "vocab.json", source)
    if source != target:
        write_json(folder / "target_vocab.json", target)
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": source != target}
    special = {name: SPECIAL_TOKENS[index] for index, name in _NAMES.items()}
    write_json(folder / "tokenizer_config.json", {**settings, **special})


def _piece_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return ids by the names that SentencePiece gives its pieces."""
    if isinstance(tokenizer, SubwordTokenizer):
        names = [*SPECIAL_TOKENS, *tokenizer.piece_names[NUM_SPECIAL_TOKENS:]]
        return {name: index for index, name in enumerate(names)}
    return {
        name: index for index, name in enumerate(tokenizer.ids_to_tokens(range(len(tokenizer))))
    }


# ----- tokenizer.json


def _has_word_level(tokenizers: TokenizerPair, config: Any) -> bool:
    return all(
        _is_word_level(tokenizer, side)
        for tokenizer, side in zip(tokenizers, _sides(config), strict=True)
    )


def _is_word_level(tokenizer: Tokenizer, config: Any) -> bool:
    if not isinstance(tokenizer, VocabularyTokenizer) or config.type not in _SPLITS:
        return False
    normalization, tokens = config.normalization, tokenizer.vocabulary.tokens
    # Python's lower() knows a final sigma, that of the package tokenizers does not.
    has_sigma = any(_SIGMAS & {*token} for token in tokens)
    is_lowered = normalization.lowercase and has_sigma
    return normalization.punctuation == "keep" and not is_lowered and not tokenizer.is_open


def _write_word_level(tokenizer: Tokenizer, config: Any, folder: Path) -> None:
    assert isinstance(tokenizer, VocabularyTokenizer)
    tokens = tokenizer.vocabulary.tokens
    names = [standalone.RESERVED_MARK + name for name in SPECIAL_TOKENS]  # which no text spells
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": index, "content": name, **flags, "special": True} for index, name in enumerate(names)
    ]
    split, decoder = _SPLITS[config.type]
    normalizers = _normalizers(config)
    template: list[Json] = [{"Sequence": {"id": "A", "type_id": 0}}]
    template.append({"SpecialToken": {"id": names[EOS], "type_id": 0}})
    eos = {"id": names[EOS], "ids": [EOS], "tokens": [names[EOS]]}
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
            "pre_tokenizer": split(),
            "post_processor": {
                "type": "TemplateProcessing",
                "single": template,
                "pair": [*template, {"Sequence": {"id": "B", "type_id": 0}}, template[-1]],
                "special_tokens": {names[EOS]: eos},
            },
            "decoder": decoder,
            "model": {
                "type": "WordLevel",
                "vocab": {token: index for index, token in enumerate([*names, *tokens])},
                "unk_token": names[UNK],
            },
        },
    )
    special = {name: names[index] for index, name in _NAMES.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(folder / "tokenizer_config.json", {**settings, **special})


def _normalizers(config: Any) -> list[Json]:
    """Return the steps before a text is split, in the order of `standalone.normalize`."""
    normalization, steps = config.normalization, []
    if normalization.unicode != "none":
        steps.append({"type": normalization.unicode.upper()})
    if normalization.lowercase:
        steps.append({"type": "Lowercase"})
    if normalization.strip:
        space = f"[{_ranges(_SPACE)}]+"
        pattern = {"Regex": rf"\A{space}|{space}\z"}
        steps.append({"type": "Replace", "pattern": pattern, "content": ""})
    if config.type == "word":
        steps.append({"type": "Prepend", "prepend": " "})
    return steps


def _split(pattern: str, behavior: str = "Isolated") -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _word_split() -> Json:
    """Return the rule of words, with explicit ranges: another engine has other classes."""
    word, space = _ranges(standalone.word_character()), _ranges(_SPACE)
    return _split(f" ?[{word}]+| ?[^{space}]|[{space}]")


@cache
def _ranges(character_class: str) -> str:
    """Return the characters of a class of `re` as ranges for other engines."""
    runs = re.finditer(f"{character_class}+", "".join(map(chr, range(sys.maxunicode + 1))))
    return "".join(rf"\x{{{run.start():x}}}-\x{{{run.end() - 1:x}}}" for run in runs)


_FUSE: Json = {"type": "Fuse"}
_WITHOUT_FIRST_SPACE: Json = {
    "type": "Sequence",
    "decoders": [_FUSE, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
}
_SPLITS: dict[str, tuple[Callable[[], Json | None], Json | None]] = {
    "word": (_word_split, _WITHOUT_FIRST_SPACE),
    "whitespace": (lambda: _split(" ", "Removed"), None),
    "character": (lambda: _split(r"[\s\S]"), _FUSE),
    "label": (lambda: None, _FUSE),
    "smiles": (lambda: _split(_smiles_pattern()), _FUSE),
}
"""The rule that splits texts of each type of tokenizer, and how tokens are joined."""


def _smiles_pattern() -> str:
    pattern = standalone.SMILES_TOKEN.pattern
    return pattern.replace("+]", r"+\]").removesuffix(".") + r"[\s\S]"

r"""Rules that split texts into tokens, and a tokenizer for programs without heedful.

`heedful export` copies this file into its folders as `text_tokenizer.py`. It imports nothing of
heedful, and only for subwords another package (sentencepiece). Invariant: a text is encoded, and
ids are decoded, as by the tokenizer of the run.

>>> source, target = load_tokenizers("FOLDER/tokenizers")
>>> ids = source.encode("a text")
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

SETTINGS_FILE, VOCABULARY_FILE, MODEL_FILE = "settings.json", "vocabulary.json", "subwords.model"
_UNK = "<unk>"
_NUM_BYTES = 256

# ----- normalization

# Signs at the end of a word or alone; quotes and dashes alone or before a word, but not "'s".
_PUNCTUATION = re.compile(
    r"""[.,;:!?"()\[\]{}\u201c\u201d\u2026]+(?!\w)|(?<!\w)["(\[{\u201c]+|(?<!\S)[-'`]+(?!\S)"""
)


def normalize(
    text: str,
    *,
    unicode: str = "none",
    lowercase: bool = False,
    strip: bool = False,
    punctuation: str = "keep",
) -> str:
    """Change a text before it is split; see `NormalizerConfig` for the settings."""
    if unicode != "none":  # first: nfkc can create capitals and spaces (U+1D400, U+00A8)
        text = unicodedata.normalize("NFC" if unicode == "nfc" else "NFKC", text)
    text = text.lower() if lowercase else text
    if punctuation == "remove":  # until none is left: without one sign, another may stand alone
        while (shorter := " ".join(_PUNCTUATION.sub(" ", text).split())) != text:
            text = shorter
    return text.strip() if strip else text


# ----- words
#
# A word is a word, a sign or a white space, with the one space before it: "in horto." becomes
# " in", " horto", ".". A space is prepended to the text, so that a word is the same token at the
# start as within; joined words are that space and the text, to the last character.

_JOINERS = "\u200c\u200d"
_MARK_RANGES = (range(0x20000), range(0xE0100, 0xE01F0))  # all combining marks are in them


def split_words(text: str) -> list[str]:
    """Split a text into words, signs and white space."""
    return word_pattern().findall(" " + text) if text else []


def join_words(words: Iterable[str]) -> str:
    """Join words, without the space that `split_words` prepends."""
    return "".join(words).removeprefix(" ")


@cache
def word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word, a sign or a white space, with the space before it."""
    return re.compile(rf" ?{word_character()}+| ?\S|\s")


@cache
def word_character() -> str:
    """Return the class of characters that words consist of."""
    # re's \w lacks the combining marks of Indic words and the joiners of Persian and Indic ones.
    # Ranges of marks match faster than single characters.
    codes = chain.from_iterable(_MARK_RANGES)
    marks = {code for code in codes if unicodedata.category(chr(code)).startswith("M")}
    starts = sorted(code for code in marks if code - 1 not in marks)
    ends = sorted(code for code in marks if code + 1 not in marks)
    ranges = "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))
    return rf"[\w{ranges}{_JOINERS}]"


def split_spaces(text: str) -> list[str]:
    """Return the words between spaces; other white space is part of a word."""
    return [word for word in text.split(" ") if word]


# Atoms in brackets, atoms, branches, bonds, rings, and > between the parts of a reaction.
SMILES_TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>|\*|\$"
    r"|\%[0-9]{2}|[0-9])|.",
    re.DOTALL,
)


def split_smiles(text: str) -> list[str]:
    """Split a molecule in SMILES notation into atoms, bonds, branches and rings."""
    return [match[0] for match in SMILES_TOKEN.finditer(text)]


# ----- subwords
#
# SentencePiece writes a space as U+2581 and skips training lines that contain U+2585. A text may
# contain both. They, and the escape character, are written as two private use characters before
# SentencePiece sees them. Invariant: `unescape` inverts `escape`, and an escaped text has no mark.

SPACE_MARK = "\u2581"
RESERVED_MARK = "\u2585"
"""A character that no escaped text contains; names of special tokens start with it."""
_ESCAPE = "\ue000"
_ESCAPED = {
    mark: _ESCAPE + chr(0xE000 + index)
    for index, mark in enumerate((_ESCAPE, SPACE_MARK, RESERVED_MARK))
}
_UNESCAPED = {escaped: plain for plain, escaped in _ESCAPED.items()}


def escape(text: str) -> str:
    """Return the text without SentencePiece's marks."""
    for plain, escaped in _ESCAPED.items():  # the escape character first
        text = text.replace(plain, escaped)
    return text


def unescape(text: str) -> str:
    """Undo `escape`; an incomplete escape, which only a model can generate, is unchanged."""
    return re.sub("|".join(_UNESCAPED), lambda match: _UNESCAPED[match[0]], text)


def join_pieces(spellings: Iterable[bytes]) -> str:
    """Return the text of pieces and bytes; invalid byte sequences become U+FFFD."""
    text = b"".join(spellings).decode("utf-8", "replace")
    # SentencePiece prepends a space, so that a word is the same at the start as within.
    return unescape(text.replace(SPACE_MARK, " ").removeprefix(" "))


# ----- tokenizers of an exported folder

_SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "word": split_words,
    "character": list,
    "label": lambda text: [text] if text else [],
    "smiles": split_smiles,
    "whitespace": split_spaces,
}
STANDALONE_TYPES = (*_SPLITTERS, "subword")
"""Types of tokenizers that this file has."""


class TextTokenizer:
    """Text to ids and back, with the files of one tokenizer and its settings."""

    def __init__(self, folder: Path | str, settings: Mapping[str, Any]) -> None:
        self._normalization = settings["normalization"]
        self._type = settings["type"]
        if self._type == "subword":
            self._read_subwords(Path(folder) / MODEL_FILE)
            return
        text = (Path(folder) / VOCABULARY_FILE).read_text(encoding="utf-8")
        # An unknown word loses the space before it, and most words have one.
        unk = f" {_UNK}" if self._type == "word" else _UNK
        self._spellings = ["", unk, "", "", *json.loads(text)["tokens"]]
        self._ids = {token: index for index, token in enumerate(self._spellings) if index > 3}

    def encode(self, text: str) -> list[int]:
        """Encode a text, without BOS and EOS; an unknown token is 1."""
        text = normalize(text, **self._normalization)
        if self._type == "subword":
            ids: list[int] = self._processor.encode(escape(text), out_type=int)
            return ids
        return [self._ids.get(token, 1) for token in _SPLITTERS[self._type](text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids; padding, BOS and EOS become nothing."""
        if self._type == "subword":
            return join_pieces(self._pieces[token] for token in ids)
        tokens = [self._spellings[token] for token in ids]
        if self._type == "whitespace":
            return " ".join(filter(None, tokens))
        return join_words(tokens) if self._type == "word" else "".join(tokens)

    def _read_subwords(self, path: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor(model_file=str(path))
        names = [self._processor.IdToPiece(index) for index in range(len(self._processor))]
        first = [b"", _UNK.encode(), b"", b"", *(bytes([byte]) for byte in range(_NUM_BYTES))]
        self._pieces = [*first, *(name.encode() for name in names[len(first) :])]


def load_tokenizers(folder: Path | str) -> tuple[TextTokenizer, TextTokenizer]:
    """Load the tokenizers of source and target from the folder `tokenizers` of an export."""
    settings = json.loads((Path(folder) / SETTINGS_FILE).read_text(encoding="utf-8"))
    if "shared" in settings:
        tokenizer = TextTokenizer(Path(folder) / "shared", settings["shared"])
        return tokenizer, tokenizer
    source, target = (TextTokenizer(Path(folder) / name, settings[name]) for name in settings)
    return source, target

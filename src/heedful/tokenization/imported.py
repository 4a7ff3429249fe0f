"""Tokenizers of imported models: pieces of SentencePiece or of subword-nmt, in a vocabulary list.

The pieces of a text are those of the other program; their ids are given by the model's own list of
tokens, and a piece that is not in it is unknown. Nothing is trained here.
"""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from typing_extensions import override

from heedful.errors import ConfigError
from heedful.tokenization.byte_level_bpe import Merge, apply_bpe
from heedful.tokenization.standalone import MODEL_FILE, SPACE_MARK, VOCABULARY_FILE, split_spaces
from heedful.tokenization.tokenizer import NormalizerConfig, Tokenizer, TokenizerConfigBase
from heedful.tokenization.vocabulary import (
    NUM_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    UNK,
    Vocabulary,
    corrupt_file_error,
    read_saved_file,
)

CODES_FILE = "codes.txt"
_LANGUAGE = re.compile(">>.*?<<")
_WORD_END = "</w>"


class ImportedTokenizerConfig(TokenizerConfigBase):
    """Settings of tokenizers that come with an imported model."""

    type: str
    normalization: NormalizerConfig = NormalizerConfig()
    """How a text is changed first."""

    file_name: ClassVar[str]
    """Name of the file beside the vocabulary."""

    def train(self, texts: Iterable[str]) -> Any:
        """Raise ConfigError: it comes with a model."""
        del texts
        message = f"{self.type!r} comes with an imported model and is not trained"
        raise ConfigError("tokenizers.type", message, "use `type: subword`")

    @abstractmethod
    def build(self, vocabulary: Vocabulary, data: bytes) -> "ImportedTokenizer":
        """Return the tokenizer of a vocabulary and the contents of a file; may raise ValueError."""

    def load(self, folder: Path) -> "ImportedTokenizer":
        """Load a saved tokenizer."""
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        path = folder / self.file_name
        try:
            return self.build(vocabulary, read_saved_file(path))
        except (ValueError, RuntimeError) as error:
            raise corrupt_file_error(path, str(error)) from None


class ImportedTokenizer(Tokenizer):
    """A tokenizer with a list of tokens, and a file of rules that split a text."""

    def __init__(
        self, vocabulary: Vocabulary, data: bytes, config: ImportedTokenizerConfig
    ) -> None:
        super().__init__(config.normalization.normalize, vocabulary.tokens)
        self.vocabulary, self.data, self.config = vocabulary, data, config

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Split a text into pieces."""

    @abstractmethod
    def detokenize(self, pieces: list[str]) -> str:
        """Return the text of pieces; "<unk>" may be one of them."""

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [self.vocabulary.tokens_to_ids(self.tokenize(text)) for text in texts]

    @override
    def decode(self, ids: Iterable[int]) -> str:
        pieces = [
            self._displayed[index] for index in ids if index == UNK or index >= NUM_SPECIAL_TOKENS
        ]
        return self.detokenize(pieces)

    @override
    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / VOCABULARY_FILE)
        (folder / self.config.file_name).write_bytes(self.data)


class SentencePieceTokenizer(ImportedTokenizer):
    """The pieces of a SentencePiece model (Kudo and Richardson 2018)."""

    config: "SentencePieceTokenizerConfig"

    def __init__(
        self, vocabulary: Vocabulary, data: bytes, config: "SentencePieceTokenizerConfig"
    ) -> None:
        from sentencepiece import SentencePieceProcessor

        super().__init__(vocabulary, data, config)
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except RuntimeError:
            raise ValueError("not a SentencePiece model") from None

    @override
    def tokenize(self, text: str) -> list[str]:
        language = _LANGUAGE.match(text) if self.config.language_codes else None
        codes = [language[0]] if language else []
        return codes + self._processor.encode(text[sum(map(len, codes)) :], out_type=str)

    @override
    def detokenize(self, pieces: list[str]) -> str:
        # Its own spelling of an unknown piece is " \u2047 ".
        unk = SPECIAL_TOKENS[UNK]
        parts: list[str] = []
        known: list[str] = []
        for piece in pieces:
            if piece == unk:
                parts += [self._processor.DecodePieces(known), unk]
                known = []
            else:
                known.append(piece)
        parts.append(self._processor.DecodePieces(known))
        return " ".join(part for part in parts if part).replace(SPACE_MARK, " ").strip()


def use_only_pieces(model: bytes, tokens: Collection[str]) -> bytes:
    """Return a SentencePiece model that uses no other pieces than these and single characters.

    SentencePiece's C++ library calls this `SetVocabulary`; its Python package has it no more. In
    the file (Protocol Buffers), field 1 is a piece, with its text, score and type.
    """
    result = bytearray()
    for number, content, raw in _proto_fields(model):
        if number != _PIECE or not isinstance(content, bytes):
            result += raw
            continue
        fields = {name: value for name, value, _ in _proto_fields(content)}
        text, kind = fields.get(1, b""), fields.get(3, _NORMAL)
        assert isinstance(text, bytes)
        name = text.decode("utf-8")
        if kind not in (_NORMAL, _UNUSED) or name in tokens or len(name) == 1:
            result += raw
        else:
            kept = b"".join(raw for name, _, raw in _proto_fields(content) if name != 3)
            unused = kept + bytes([3 << 3, _UNUSED])
            result += bytes([_PIECE << 3 | 2]) + _varint(len(unused)) + unused
    return bytes(result)


_PIECE, _NORMAL, _UNUSED = 1, 1, 5
_FIXED_SIZES = {1: 8, 5: 4}  # of the wire types for 64 and 32 bits


def _proto_fields(data: bytes) -> Iterator[tuple[int, bytes | int, bytes]]:
    """Yield number, value and encoding of each field of a message; ValueError if it is damaged."""
    start = 0
    while start < len(data):
        key, end = _read_varint(data, start)
        wire_type = key & 7
        value: bytes | int
        if wire_type == 0:
            value, end = _read_varint(data, end)
        else:
            size = _FIXED_SIZES.get(wire_type, -1)
            if wire_type == 2:
                size, end = _read_varint(data, end)
            if size < 0 or end + size > len(data):
                raise ValueError("not a SentencePiece model")
            value, end = data[end : end + size], end + size
        yield key >> 3, value, data[start:end]
        start = end


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for shift, index in enumerate(range(start, min(start + 10, len(data)))):
        value |= (data[index] & 0x7F) << 7 * shift
        if data[index] < 0x80:
            return value, index + 1
    raise ValueError("not a SentencePiece model")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


class SentencePieceTokenizerConfig(ImportedTokenizerConfig):
    """The SentencePiece model of an imported model, with a list of tokens of its own."""

    type: Literal["sentencepiece"] = "sentencepiece"
    language_codes: bool = False
    """A text may begin with the token of its target language, such as >>fra<< (Marian)."""
    file_name = MODEL_FILE

    @override
    def build(self, vocabulary: Vocabulary, data: bytes) -> SentencePieceTokenizer:
        return SentencePieceTokenizer(vocabulary, data, self)


class SubwordNMTTokenizer(ImportedTokenizer):
    """Byte-pair encoding of words, as subword-nmt applies it (Sennrich et al. 2016).

    Characters of a word are merged by the ranked pairs of a file of codes. With
    `only_listed_pieces`, merges of pieces that the model does not have are undone, one by one.
    """

    config: "SubwordNMTTokenizerConfig"

    def __init__(
        self, vocabulary: Vocabulary, data: bytes, config: "SubwordNMTTokenizerConfig"
    ) -> None:
        super().__init__(vocabulary, data, config)
        normalize = self.normalizer
        self.normalizer = lambda text: " ".join(split_spaces(normalize(text)))
        merges, self._has_joined_end = _parse_codes(data)
        self._ranks: dict[Merge, int] = {}
        for rank, merge in enumerate(merges):
            self._ranks.setdefault(merge, rank)
        self._parts = {left + right: (left, right) for left, right in reversed(list(self._ranks))}
        self._pieces: dict[str, list[str]] = {}  # of words that were seen

    @override
    def tokenize(self, text: str) -> list[str]:
        return [piece for word in split_spaces(text) for piece in self._split(word)]

    @override
    def detokenize(self, pieces: list[str]) -> str:
        separator = self.config.separator
        return " ".join(pieces).replace(f"{separator} ", "").removesuffix(separator)

    def _split(self, word: str) -> list[str]:
        if word not in self._pieces:
            pieces = self._merge(word) if len(word) > 1 else [word]
            if self.config.only_listed_pieces and len(word) > 1:
                pieces = [part for piece in self._mark(pieces) for part in self._unmerge(*piece)]
            *inner, last = pieces
            self._pieces[word] = [*(piece + self.config.separator for piece in inner), last]
        return self._pieces[word]

    def _merge(self, word: str) -> list[str]:
        pieces = [*word[:-1], word[-1] + _WORD_END] if self._has_joined_end else [*word, _WORD_END]
        pieces = apply_bpe(pieces, self._ranks)
        last = pieces[-1].removesuffix(_WORD_END)
        return [*pieces[:-1], last] if last else pieces[:-1]

    @staticmethod
    def _mark(pieces: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """Yield each piece and whether it is the last."""
        for index, piece in enumerate(pieces, start=1):
            yield piece, index == len(pieces)

    def _unmerge(self, piece: str, is_last: bool) -> Iterator[str]:
        """Undo the last merge of a piece that is not listed, and of its parts likewise."""
        listed = piece if is_last else piece + self.config.separator
        merged = self._parts.get(piece + _WORD_END if is_last else piece)
        if listed in self.vocabulary or merged is None:
            yield piece
            return
        left, right = merged
        yield from self._unmerge(left, False)
        yield from self._unmerge(right.removesuffix(_WORD_END) if is_last else right, is_last)


def _parse_codes(data: bytes) -> tuple[list[Merge], bool]:
    """Return the pairs of a file of codes, and whether the end mark is part of a last character."""
    try:
        lines = data.decode("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8, so no codes of subword-nmt") from None
    has_version = lines[0].startswith("#version:")
    version = lines[0].split()[-1] if has_version else "0.1"
    if version.removesuffix(".0") not in ("0.1", "0.2"):
        raise ValueError(f"codes of the unknown version {version!r} of subword-nmt")
    pairs = [tuple(line.strip("\r\n ").split(" ")) for line in lines[int(has_version) :]]
    invalid = next((number for number, pair in enumerate(pairs, 1) if len(pair) != 2), None)
    if invalid is not None:
        raise ValueError(f"line {invalid + has_version} is not a pair of pieces")
    return [(left, right) for left, right in pairs], version.startswith("0.2")


class SubwordNMTTokenizerConfig(ImportedTokenizerConfig):
    """The codes of subword-nmt of an imported model, with its list of tokens."""

    type: Literal["subword-nmt"] = "subword-nmt"
    separator: str = "@@"
    """End of a piece that does not end its word."""
    only_listed_pieces: bool = False
    """Undo merges that give pieces the model does not have (`--vocabulary` of subword-nmt, and
    JoeyNMT always); false leaves such pieces unknown."""

    file_name = CODES_FILE

    @override
    def build(self, vocabulary: Vocabulary, data: bytes) -> SubwordNMTTokenizer:
        return SubwordNMTTokenizer(vocabulary, data, self)

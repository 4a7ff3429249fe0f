"""Subword tokenizers trained by SentencePiece (Kudo and Richardson 2018), and their settings.

SentencePiece changes nothing in the text (see `normalization` for what may change, and `escape`
for its own marks). A character without a piece is spelled in its UTF-8 bytes.
Invariant: each text can be encoded and is decoded exactly.
"""

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import ConfigError, format_count
from heedful.tokenization.standalone import MODEL_FILE, RESERVED_MARK, escape, join_pieces, unescape
from heedful.tokenization.subword_regularization import (
    BPEDropout,
    Segmenter,
    SubwordPiece,
    SubwordRegularizer,
    SubwordVocab,
    UnigramSampler,
)
from heedful.tokenization.tokenizer import (
    Normalizer,
    NormalizerConfig,
    Tokenizer,
    check_training_text,
    normalize_texts,
)
from heedful.tokenization.vocabulary import (
    BOS,
    EOS,
    NUM_SPECIAL_TOKENS,
    PAD,
    SPECIAL_TOKENS,
    UNK,
    corrupt_file_error,
    read_saved_file,
)

NUM_BYTES = 256
# SentencePiece skips training lines above 4192 bytes; a character takes at most 4.
_MAX_TRAINING_LINE_LENGTH = 1000
# The unigram model depends on this number: fixed, so that every machine trains the same.
_NUM_THREADS = 4

SubwordModelType = Literal["unigram", "bpe"]

_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(NUM_BYTES)]
_FIXED_NAMES = [*(RESERVED_MARK + name for name in SPECIAL_TOKENS), *_BYTE_NAMES]
_FIXED_SPELLINGS = [
    *(b"", SPECIAL_TOKENS[UNK].encode(), b"", b""),
    *(bytes([byte]) for byte in range(NUM_BYTES)),
]


class SubwordTokenizer(Tokenizer):
    """Subwords with byte fallback."""

    def __init__(self, model: bytes, normalizer: Normalizer) -> None:
        from sentencepiece import SentencePieceProcessor

        self.model = model
        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        names = [self._processor.IdToPiece(piece_id) for piece_id in range(len(self._processor))]
        self.piece_names = names
        """SentencePiece's name of each id."""
        learned = names[len(_FIXED_NAMES) :]
        if names[: len(_FIXED_NAMES)] != _FIXED_NAMES:
            raise ValueError("the first ids of this model are not the special tokens and bytes")
        self._spellings = [*_FIXED_SPELLINGS, *(name.encode() for name in learned)]
        super().__init__(normalizer, [*_BYTE_NAMES, *map(unescape, learned)])

    @override
    def save(self, folder: Path) -> None:
        (folder / MODEL_FILE).write_bytes(self.model)

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([escape(text) for text in texts], out_type=int)

    @override
    def decode(self, ids: Iterable[int]) -> str:
        """Join pieces and bytes; invalid byte sequences become U+FFFD."""
        return join_pieces(self._spellings[token_id] for token_id in ids)

    @property
    def learned_pieces(self) -> dict[str, SubwordPiece]:
        """The pieces by name, with SentencePiece's scores."""
        return {
            self._processor.IdToPiece(index): SubwordPiece(index, self._processor.GetScore(index))
            for index in range(len(_FIXED_NAMES), len(self))
        }


class UnigramSamplingConfig(BaseConfig):
    """Sample the segmentation of each training text from a unigram model (Kudo 2018)."""

    model_type: ClassVar[SubwordModelType] = "unigram"
    type: Literal["unigram-sampling"] = "unigram-sampling"
    alpha: PositiveFloat = 0.2
    """Exponent of the probability of a segmentation: smaller values vary more."""

    def build(self, pieces: SubwordVocab) -> Segmenter:
        return UnigramSampler(pieces, self.alpha)


class BPEDropoutConfig(BaseConfig):
    """Drop random merges when segmenting training texts (Provilkov et al. 2020)."""

    model_type: ClassVar[SubwordModelType] = "bpe"
    type: Literal["bpe-dropout"] = "bpe-dropout"
    dropout: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Probability that a merge is dropped at a step."""

    def build(self, pieces: SubwordVocab) -> Segmenter:
        return BPEDropout(pieces, self.dropout)


SubwordRegularizationConfig = Annotated[
    UnigramSamplingConfig | BPEDropoutConfig, Field(discriminator="type")
]


class SubwordTokenizerConfig(BaseConfig):
    """Subwords trained by SentencePiece; nothing is unknown."""

    type: Literal["subword"] = "subword"
    vocab_size: Annotated[int, Field(gt=NUM_SPECIAL_TOKENS + NUM_BYTES)] = 8000
    """Size of the vocabulary with 4 special tokens and 256 bytes; less for small corpora."""
    model_type: SubwordModelType = "unigram"
    """Unigram language model (Kudo 2018) or byte-pair encoding (Sennrich et al. 2016)."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = 0.9995
    """Fraction of the characters that get a piece; the rarest are spelled in bytes."""
    normalization: NormalizerConfig = NormalizerConfig()
    """How a text is changed first."""
    subword_regularization: SubwordRegularizationConfig | None = None
    """Random segmentation of training texts; default: none."""

    @model_validator(mode="after")
    def _check_model_type(self) -> Self:
        regularization = self.subword_regularization
        if regularization and self.model_type != regularization.model_type:
            raise ValueError(
                f"subword_regularization '{regularization.type}' requires `model_type: "
                f"{regularization.model_type}`, but model_type is '{self.model_type}'"
            )
        return self

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Train at most `vocab_size` pieces, fewer if the texts contain no more.

        Repeated lines are used once: SentencePiece takes time quadratic in the length of a
        repeated passage (measured: 20 s for 1,000 equal lines of 20 characters).
        """
        escaped = map(escape, normalize_texts(texts, self.normalization.normalize))
        parts = (
            text[start : start + _MAX_TRAINING_LINE_LENGTH]
            for text in escaped
            for start in range(0, len(text), _MAX_TRAINING_LINE_LENGTH)
        )
        lines = list(dict.fromkeys(parts))
        check_training_text(lines)
        return SubwordTokenizer(_train_sentencepiece(lines, self), self.normalization.normalize)

    def load(self, folder: Path) -> Tokenizer:
        """Load a saved tokenizer."""
        model = read_saved_file(folder / MODEL_FILE)
        try:
            return SubwordTokenizer(model, self.normalization.normalize)
        except (RuntimeError, ValueError):
            message = "not a subword model trained by heedful"
            raise corrupt_file_error(folder / MODEL_FILE, message) from None

    def build_regularizer(self, tokenizer: Tokenizer) -> SubwordRegularizer | None:
        """Return the random segmentation for this tokenizer, None if there is none."""
        if self.subword_regularization is None:
            return None
        assert isinstance(tokenizer, SubwordTokenizer)
        pieces = tokenizer.learned_pieces
        return SubwordRegularizer(pieces, self.subword_regularization.build(pieces))


def _train_sentencepiece(lines: list[str], config: SubwordTokenizerConfig) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.model_type,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=True,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=_FIXED_NAMES[PAD],
            unk_piece=_FIXED_NAMES[UNK],
            bos_piece=_FIXED_NAMES[BOS],
            eos_piece=_FIXED_NAMES[EOS],
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if match is None:
            raise
        needed = int(match[1])
        parts = f"{NUM_SPECIAL_TOKENS} special tokens, {NUM_BYTES} bytes"
        parts += f" and {format_count(needed - len(_FIXED_NAMES), 'character')}"
        raise ConfigError(
            "tokenizer.vocab_size",
            f"{config.vocab_size} is too small: {parts} need {needed}",
            f"raise vocab_size to {needed} or more, lower character_coverage, or use "
            "`type: character`",
        ) from None
    return model.getvalue()

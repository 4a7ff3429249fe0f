""""""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.tokenization.segments import RESERVED_MARK, SPACE_MARK, SubwordPiece, escape, unescape
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

if TYPE_CHECKING:
    from heedful.tokenization.segments import Segmenter, SubwordVocab
    from heedful.tokenization.subword_regularization import SubwordRegularizer


# Subwords: pieces of words, learned by SentencePiece (Kudo and Richardson 2018).
#
# SentencePiece changes nothing in the text it is given (see `normalization` for what may be
# changed, and `escapes` for what it would misread). A character without a piece of its own is
# spelled in its UTF-8 bytes, so every text can be encoded and comes back exactly.

MODEL_FILE = "subwords.model"
NUM_BYTES = 256
# SentencePiece leaves out training lines above 4192 bytes; a character takes at most 4.
_MAX_TRAINING_LINE_LENGTH = 1000
# The unigram model depends on this number: it is fixed, so that every machine learns the same.
_NUM_THREADS = 4

_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(NUM_BYTES)]
_FIXED_NAMES = [*(RESERVED_MARK + name for name in SPECIAL_TOKENS), *_BYTE_NAMES]
_FIXED_SPELLINGS = [
    *(b"", SPECIAL_TOKENS[UNK].encode(), b"", b""),
    *(bytes([byte]) for byte in range(NUM_BYTES)),
]

SubwordModelType = Literal["unigram", "bpe"]


class SubwordTokenizer(Tokenizer):
    """Pieces of words with bytes to fall back on."""

    def __init__(self, model: bytes, normalizer: Normalizer) -> None:
        super().__init__(normalizer)
        self.model = model
        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        names = [self._processor.IdToPiece(each) for each in range(len(self._processor))]
        learned = names[len(_FIXED_NAMES) :]
        if names[: len(_FIXED_NAMES)] != _FIXED_NAMES:
            raise ValueError("the first ids of this model are not the special symbols and bytes")
        self._spellings = [*_FIXED_SPELLINGS, *(name.encode() for name in learned)]
        self._displayed = [*SPECIAL_TOKENS, *_BYTE_NAMES, *map(_display, learned)]

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        normalizer: Normalizer,
        *,
        vocab_size: int,
        model_type: SubwordModelType = "unigram",
        character_coverage: float = 1.0,
    ) -> Self:
        """Learn at most `size` pieces, fewer where the texts hold no more.

        A line that comes again is learned from once: SentencePiece takes time quadratic in the
        length of a stretch that repeats (measured: 20 s for 1,000 equal lines of 20 characters).
        """
        lines = list(dict.fromkeys(_training_lines(normalize_texts(texts, normalizer))))
        check_training_text(lines)
        model = _train_sentencepiece(lines, vocab_size, model_type, character_coverage)
        return cls(model, normalizer)

    @classmethod
    def load(cls, folder: Path, normalizer: Normalizer) -> Self:
        """Read what `save` wrote."""
        path = folder / MODEL_FILE
        model = read_saved_file(path)
        try:
            return cls(model, normalizer)
        except (RuntimeError, ValueError):
            raise corrupt_file_error(path, "not a subword model that heedful has trained") from None

    def save(self, folder: Path) -> None:
        """Write the model into a folder that exists."""
        (folder / MODEL_FILE).write_bytes(self.model)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([escape(text) for text in texts], out_type=int)

    def decode(self, ids: Iterable[int]) -> str:
        """Put pieces and bytes together; bytes that spell no character give U+FFFD."""
        spelled = b"".join([self._spellings[each] for each in ids]).decode("utf-8", "replace")
        # The first space is SentencePiece's own: a word has one at the start as within.
        return unescape(spelled.replace(SPACE_MARK, " ").removeprefix(" "))

    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people; a byte as "<0xE2>"."""
        return [self._displayed[each] for each in ids]

    @property
    def learned_pieces(self) -> dict[str, SubwordPiece]:
        """The pieces by name, with the scores by which SentencePiece chooses among them."""
        return {
            self._processor.IdToPiece(each): SubwordPiece(each, self._processor.GetScore(each))
            for each in range(len(_FIXED_NAMES), len(self))
        }

    def __len__(self) -> int:
        return len(self._spellings)


def _display(name: str) -> str:
    return unescape(name.removeprefix(SPACE_MARK).replace(SPACE_MARK, " ")) or " "


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in map(escape, texts):
        for start in range(0, len(text), _MAX_TRAINING_LINE_LENGTH):
            yield text[start : start + _MAX_TRAINING_LINE_LENGTH]


def _train_sentencepiece(
    lines: list[str], size: int, algorithm: SubwordModelType, character_coverage: float
) -> bytes:
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=algorithm,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
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
        needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        raise _vocab_too_small_error(size, int(needed[1])) from None
    return model.getvalue()


def _vocab_too_small_error(size: int, needed: int) -> ConfigError:
    characters = needed - NUM_SPECIAL_TOKENS - NUM_BYTES
    return ConfigError(
        "tokenizer.vocab_size",
        f"{size} entries are too few: {NUM_SPECIAL_TOKENS} special symbols, {NUM_BYTES} bytes and "
        f"{characters} characters need {needed}",
        f"raise size to {needed} or more, lower character_coverage, or choose type: character",
    )


SubwordSize = Annotated[int, Field(gt=NUM_SPECIAL_TOKENS + 256)]


class UnigramSamplingConfig(BaseConfig):
    """Cut a text anew each time it is learned from, likely pieces more often (Kudo 2018)."""

    type: Literal["unigram-sampling"] = "unigram-sampling"
    alpha: PositiveFloat = 0.2
    """Cuts are drawn by their probability to this power: the smaller, the more they vary."""

    def build(self, pieces: SubwordVocab) -> Segmenter:
        """Make the cuts that are drawn so."""
        from heedful.tokenization.subword_regularization import UnigramSampler

        return UnigramSampler(pieces, self.alpha)


class BPEDropoutConfig(BaseConfig):
    """Cut a text anew each time it is learned from, leaving out merges (Provilkov et al. 2020)."""

    type: Literal["bpe-dropout"] = "bpe-dropout"
    dropout: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """How likely each merge is left out at each step."""

    def build(self, pieces: SubwordVocab) -> Segmenter:
        """Make the cuts that are drawn so."""
        from heedful.tokenization.subword_regularization import BPEDropout

        return BPEDropout(pieces, self.dropout)


SubwordRegularizationConfig = Annotated[
    UnigramSamplingConfig | BPEDropoutConfig, Field(discriminator="type")
]


_REQUIRED_MODEL_TYPE = {"unigram-sampling": "unigram", "bpe-dropout": "bpe"}


class SubwordTokenizerConfig(BaseConfig):
    """Pieces of words learned by SentencePiece; nothing is unknown."""

    type: Literal["subword"] = "subword"
    vocab_size: SubwordSize = 8000
    """Entries to learn, 4 special symbols and 256 bytes included; little text gives fewer."""
    model_type: Literal["unigram", "bpe"] = "unigram"
    """Choose pieces by likelihood (Kudo 2018), or by joining frequent pairs (Sennrich 2016)."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = 0.9995
    """Share of the characters met that get an entry; the rarest are spelled in bytes."""
    normalization: NormalizerConfig = NormalizerConfig()
    """What to change in a text first."""
    subword_regularization: SubwordRegularizationConfig | None = None
    """How texts that are learned from are cut anew by chance; if not given, they are not."""

    @model_validator(mode="after")
    def _check_model_type(self) -> Self:
        kind = self.subword_regularization.type if self.subword_regularization else None
        if kind is not None and _REQUIRED_MODEL_TYPE[kind] != self.model_type:
            raise ValueError(
                f"regularisation of kind '{kind}' needs `model: {_REQUIRED_MODEL_TYPE[kind]}`, "
                f"but the model is '{self.model_type}'"
            )
        return self

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Learn the pieces of these texts."""
        return SubwordTokenizer.train(
            texts,
            self.normalization.build(),
            vocab_size=self.vocab_size,
            model_type=self.model_type,
            character_coverage=self.character_coverage,
        )

    def load(self, folder: Path) -> Tokenizer:
        """Read a saved tokenizer."""
        return SubwordTokenizer.load(folder, self.normalization.build())

    def build_regularizer(self, tokenizer: Tokenizer) -> SubwordRegularizer | None:
        """Give what cuts texts anew that this tokenizer has cut, if they are to be."""
        from heedful.tokenization.subword_regularization import SubwordRegularizer

        if self.subword_regularization is None:
            return None
        assert isinstance(tokenizer, SubwordTokenizer)
        pieces = tokenizer.learned_pieces
        return SubwordRegularizer(pieces, self.subword_regularization.build(pieces))

"""Subwords: pieces of words, learned by SentencePiece (Kudo and Richardson 2018).

SentencePiece changes nothing in the text it is given (see `normalisation` for what may be
changed, and `escapes` for what it would misread). A character without a piece of its own is
spelled in its UTF-8 bytes, so every text can be encoded and comes back exactly.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from heedful.errors import ConfigError
from heedful.text.cuts import Piece
from heedful.text.escapes import NOT_IN_TEXT, SPACE_MARK, escape, restore
from heedful.text.normalisation import Normalisation
from heedful.text.stored import damaged, read_stored
from heedful.text.tokenizers import Tokenizer, clean_all, refuse_nothing
from heedful.text.vocabulary import BOS, EOS, NUM_SPECIALS, PAD, SPECIAL_NAMES, UNK

MODEL_FILE = "subwords.model"
NUM_BYTES = 256
# SentencePiece leaves out training lines above 4192 bytes; a character takes at most 4.
_LONGEST_TRAINING_LINE = 1000
# The unigram model depends on this number: it is fixed, so that every machine learns the same.
_NUM_THREADS = 4

_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(NUM_BYTES)]
_FIXED_NAMES = [*(NOT_IN_TEXT + name for name in SPECIAL_NAMES), *_BYTE_NAMES]
_FIXED_SPELLINGS = [
    *(b"", SPECIAL_NAMES[UNK].encode(), b"", b""),
    *(bytes([byte]) for byte in range(NUM_BYTES)),
]

Algorithm = Literal["unigram", "bpe"]


class SubwordTokenizer(Tokenizer):
    """Pieces of words with bytes to fall back on."""

    def __init__(self, model: bytes, normalise: Normalisation) -> None:
        super().__init__(normalise)
        self.model = model
        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        names = [self._processor.IdToPiece(each) for each in range(len(self._processor))]
        learned = names[len(_FIXED_NAMES) :]
        if names[: len(_FIXED_NAMES)] != _FIXED_NAMES:
            raise ValueError("the first ids of this model are not the special symbols and bytes")
        self._spellings = [*_FIXED_SPELLINGS, *(name.encode() for name in learned)]
        self._shown = [*SPECIAL_NAMES, *_BYTE_NAMES, *map(_show, learned)]

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        normalise: Normalisation,
        *,
        size: int,
        algorithm: Algorithm = "unigram",
        character_coverage: float = 1.0,
    ) -> Self:
        """Learn at most `size` pieces, fewer where the texts hold no more.

        A line that comes again is learned from once: SentencePiece takes time quadratic in the
        length of a stretch that repeats (measured: 20 s for 1,000 equal lines of 20 characters).
        """
        lines = list(dict.fromkeys(_training_lines(clean_all(texts, normalise))))
        refuse_nothing(lines)
        model = _learn(lines, size, algorithm, character_coverage)
        return cls(model, normalise)

    @classmethod
    def load(cls, folder: Path, normalise: Normalisation) -> Self:
        """Read what `save` wrote."""
        path = folder / MODEL_FILE
        model = read_stored(path)
        try:
            return cls(model, normalise)
        except (RuntimeError, ValueError):
            raise damaged(path, "not a subword model that heedful has trained") from None

    def save(self, folder: Path) -> None:
        """Write the model into a folder that exists."""
        (folder / MODEL_FILE).write_bytes(self.model)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([escape(text) for text in texts], out_type=int)

    def decode(self, ids: Iterable[int]) -> str:
        """Put pieces and bytes together; bytes that spell no character give U+FFFD."""
        spelled = b"".join([self._spellings[each] for each in ids]).decode("utf-8", "replace")
        # The first space is SentencePiece's own: a word has one at the start as within.
        return restore(spelled.replace(SPACE_MARK, " ").removeprefix(" "))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Say how each id is shown to people; a byte as "<0xE2>"."""
        return [self._shown[each] for each in ids]

    @property
    def learned(self) -> dict[str, Piece]:
        """The pieces by name, with the scores by which SentencePiece chooses among them."""
        return {
            self._processor.IdToPiece(each): Piece(each, self._processor.GetScore(each))
            for each in range(len(_FIXED_NAMES), len(self))
        }

    def __len__(self) -> int:
        return len(self._spellings)


def _show(name: str) -> str:
    return restore(name.removeprefix(SPACE_MARK).replace(SPACE_MARK, " ")) or " "


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in map(escape, texts):
        for start in range(0, len(text), _LONGEST_TRAINING_LINE):
            yield text[start : start + _LONGEST_TRAINING_LINE]


def _learn(lines: list[str], size: int, algorithm: Algorithm, character_coverage: float) -> bytes:
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
        raise _too_few(size, int(needed[1])) from None
    return model.getvalue()


def _too_few(size: int, needed: int) -> ConfigError:
    characters = needed - NUM_SPECIALS - NUM_BYTES
    return ConfigError(
        "tokenizer.size",
        f"{size} entries are too few: {NUM_SPECIALS} special symbols, {NUM_BYTES} bytes and "
        f"{characters} characters need {needed}",
        f"raise size to {needed} or more, lower character_coverage, or choose kind: character",
    )

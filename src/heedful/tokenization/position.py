"""The tokenizer of positions: targets of pointer networks.

Invariant: a position is encoded only if the source has it.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import DataError, check, format_count
from heedful.tokenization.standalone import join_words
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, SPECIAL_TOKENS, UNK


class PositionTokenizer(Tokenizer):
    """Positions in the source, from 1, as numbers: for output heads that point.

    An extended vocabulary without any words: position s, from 0, is NUM_SPECIAL_TOKENS + s.
    """

    is_open = True

    def __init__(self, num_positions: int | None = None) -> None:
        super().__init__(str, ())
        self.num_positions = num_positions

    @override
    def for_source(self, text: str, source: Tokenizer) -> "PositionTokenizer":
        return PositionTokenizer(len(source.encode(text)))

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._encode_position(word) for word in text.split()] for text in texts]

    def _encode_position(self, word: str) -> int:
        limit = self.num_positions or sys.maxsize
        message = f"{word!r} is no position of a source of {format_count(limit, 'token')}"
        is_valid = word.isascii() and word.isdecimal() and 1 <= int(word) <= limit
        check(is_valid, "target", message, f"write numbers from 1 to {limit}", DataError)
        return NUM_SPECIAL_TOKENS - 1 + int(word)

    @override
    def decode(self, ids: Iterable[int]) -> str:
        special = {UNK: " " + SPECIAL_TOKENS[UNK]}
        return join_words(
            [
                f" {token_id - NUM_SPECIAL_TOKENS + 1}"
                if token_id >= NUM_SPECIAL_TOKENS
                else special.get(token_id, "")
                for token_id in ids
            ]
        )

    @override
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.decode([token_id]) or SPECIAL_TOKENS[token_id] for token_id in ids]

    @override
    def save(self, folder: Path) -> None:
        return


class PositionTokenizerConfig(BaseConfig):
    """Positions in the source, from 1: targets of pointer networks (Vinyals et al. 2015)."""

    type: Literal["position"] = "position"

    def train(self, texts: Iterable[str]) -> PositionTokenizer:
        """Return the tokenizer: there is nothing to train."""
        return PositionTokenizer()

    def load(self, folder: Path) -> PositionTokenizer:
        """Return the tokenizer: nothing was saved."""
        return PositionTokenizer()

    def build_regularizer(self, tokenizer: Tokenizer) -> None:
        """Return None: there is one way to write a position."""

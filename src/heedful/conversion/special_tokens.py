"""The order of a vocabulary: another library's ids, and heedful's, which begin with special tokens.

These are PAD, UNK, BOS and EOS; all others follow in their order. BOS is the token that a decoder
reads first. Where that is another special token there (PAD in Marian, EOS in BART), its row is
used twice, and the copy is never predicted. Invariant: log-probabilities of all tokens are equal.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.conversion.tensor_names import TensorLayout, layout_of_one
from heedful.errors import format_count
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS

NO_ROW = -1
NEVER_LOGIT = -1e4
"""Added to the logit of a token that is never predicted: exp(-1e4) is 0, and its loss is finite."""


class VocabularyOrder(NamedTuple):
    """Which row of their tables each of our ids has."""

    rows: tuple[int, ...]  # by our id; NO_ROW for a token that they do not have
    num_rows: int  # of their tables

    @classmethod
    def from_special_tokens(
        cls,
        size: int,
        *,
        pad: int,
        unk: int | None,
        decoder_start: int,
        eos: int,
        text_token: int | None = None,
    ) -> "VocabularyOrder":
        """Return the order of a vocabulary with these ids of special tokens.

        `text_token` is part of texts, also if decoders read it first.
        """
        for row in (pad, unk or 0, decoder_start, eos):
            if not 0 <= row < size:
                raise ValueError(f"the special token {row} of {format_count(size, 'token')}")
        special = (pad, NO_ROW if unk is None else unk, decoder_start, eos)
        others = [row for row in range(size) if row not in special or row == text_token]
        return cls((*special, *others), size)

    def tokens(self, names: Sequence[str]) -> list[str]:
        """Return the names of our tokens, without the special ones, of names by their id."""
        return [names[row] for row in self.rows[NUM_SPECIAL_TOKENS:]]

    def vocab_ids(self) -> dict[int, int]:
        """Return heedful's id of each of their ids; BOS only where it is no copy."""
        copies = set(self._copies)
        ids = {row: index for index, row in enumerate(self.rows) if index not in copies}
        ids.pop(NO_ROW, None)
        return ids

    @property
    def _copies(self) -> list[int]:
        """Our ids that are never predicted: a copy of another token, or not in their vocabulary."""
        has_copy = self.rows.count(self.rows[BOS]) > 1
        missing = [index for index, row in enumerate(self.rows) if row == NO_ROW]
        return [*missing, *([BOS] if has_copy else [])]

    @property
    def table_layout(self) -> TensorLayout:
        """The layout of an embedding table, or of the weights of an output layer."""
        return layout_of_one(self._pack, self._pick)

    @property
    def bias_layout(self) -> TensorLayout:
        """The layout of the bias of logits, which is (1, size) there."""

        def unpack(theirs: Tensor) -> Tensor:
            bias = self._pick(theirs.squeeze(0)).clone()
            bias[self._copies] = NEVER_LOGIT
            return bias

        return layout_of_one(lambda ours: self._pack(ours).unsqueeze(0), unpack)

    def _pick(self, theirs: Tensor) -> Tensor:
        rows = torch.tensor(self.rows)
        picked = theirs[rows.clamp(min=0)]
        picked[rows == NO_ROW] = 0
        return picked

    def _pack(self, ours: Tensor) -> Tensor:
        if self.rows == tuple(range(self.num_rows)):
            return ours
        theirs = ours.new_zeros(self.num_rows, *ours.shape[1:])
        if not ours.is_meta:
            ids = self.vocab_ids()
            theirs[list(ids)] = ours[list(ids.values())]
        return theirs


def identity_order(size: int) -> VocabularyOrder:
    """Return the order of an exported vocabulary, whose ids are the same."""
    return VocabularyOrder(tuple(range(size)), size)

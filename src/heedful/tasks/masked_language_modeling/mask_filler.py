"""The mask filler: a trained masked language model with its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.token_stream import (
    LMBatchingConfig,
    concatenate_lines,
    disjoint_windows,
    encode_prompt,
)
from heedful.errors import DataError
from heedful.evaluation.base import MetricScore
from heedful.evaluation.perplexity import compute_token_loss
from heedful.models.masked_language_model import (
    MaskedLanguageModel,
    MaskingConfig,
    mask_tokens,
)
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS

MASK = "[MASK]"
"""What stands for a hidden token in a text to be filled in."""

_MASK_PLACEHOLDER = "\uf8ff"  # the last character that Unicode leaves to private use


class MaskPrediction(NamedTuple):
    """A token that may stand where one is hidden, as shown to people."""

    token: str
    probability: float


class FilledText(NamedTuple):
    """A text whose masks are replaced by their most probable tokens."""

    text: str
    tokens: Sequence[str]
    attention_map: None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"text": self.text, "tokens": list(self.tokens)}


class MaskFiller:
    """A trained masked language model with its text."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        lm_batching: LMBatchingConfig,
        masking: MaskingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizer = tokenizer
        self.lm_batching = lm_batching
        self.masking = masking
        self.device = device

    @torch.no_grad()
    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[MaskPrediction]]:
        """Say, for each "[MASK]" of a text, which tokens are likeliest to stand there."""
        ids = self._masked(text)
        rows = self.model.predict(torch.tensor(ids, device=self.device)).exp()
        hidden = [place for place, token in enumerate(ids) if token == self.model.mask_id]
        found = [rows[place].topk(min(top_k, rows.size(1))) for place in hidden]
        return [
            list(
                map(
                    MaskPrediction,
                    self.tokenizer.ids_to_tokens(best.indices.tolist()),
                    best.values.tolist(),
                )
            )
            for best in found
        ]

    def predict(
        self, requests: Iterable[str], *, location: str = "text", start_index: int = 1
    ) -> Iterator[FilledText]:
        """Replace every "[MASK]" of each text by its most probable token."""
        del location, start_index
        for text in requests:
            filled = text
            for best, *_ in self.fill_mask(text, top_k=1):
                filled = filled.replace(MASK, best.token.strip(), 1)
            yield FilledText(filled, self.tokenizer.ids_to_tokens(self.tokenizer.encode(filled)))

    def count_tokens(self, lines: Sequence[str]) -> int:
        """Return the number of tokens of a text; the EOS before its first line is not counted."""
        return len(concatenate_lines(lines, self.tokenizer)) - 1

    def evaluate(self, lines: Sequence[str]) -> list[MetricScore]:
        """Hide tokens of a text, always the same, and say how the model did in finding them."""
        size = len(self.tokenizer)
        pieces = disjoint_windows(concatenate_lines(lines, self.tokenizer), self.lm_batching)
        batches = (
            mask_tokens(piece.inputs, self.masking, vocab_size=size, seed=f"measure {number}")
            for number, piece in enumerate(pieces)
        )
        found = compute_token_loss(self.model, batches, device=self.device)
        masking = self.masking
        shares = f"{masking.mlm_probability:g}|hidden:{masking.mask_replace_prob:g}|replaced:{masking.random_replace_prob:g}"
        return found.to_scores(f"context:{self.lm_batching.context_length}|chosen:{shares}")

    def _masked(self, text: str) -> list[int]:
        """Turn a text into tokens; a stand-in for the mask shows where it falls among them."""
        if MASK not in text:
            raise DataError(
                "text", f"there is no {MASK} in it", f"write {MASK} where one is wanted"
            )
        marks = self.tokenizer.encode(_MASK_PLACEHOLDER)  # a space may come with it, and may not
        ids = _replace_subsequence(
            encode_prompt(text.replace(MASK, _MASK_PLACEHOLDER), self.tokenizer),
            marks,
            self.model.mask_id,
        )
        ids = [*_replace_subsequence(ids, marks[1:], self.model.mask_id), EOS]
        if ids.count(self.model.mask_id) != text.count(MASK):
            raise DataError(
                "text",
                "the model does not know all of its words, and cannot tell them from a mask",
                "use words that the model was trained on",
            )
        return ids


def _replace_subsequence(ids: list[int], subsequence: list[int], token: int) -> list[int]:
    """Put a token in place of every such stretch of tokens."""
    found, place = list[int](), 0
    while place < len(ids):
        is_here = bool(subsequence) and ids[place : place + len(subsequence)] == subsequence
        found.append(token if is_here else ids[place])
        place += len(subsequence) if is_here else 1
    return found

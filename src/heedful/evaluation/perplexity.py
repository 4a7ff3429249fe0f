"""Perplexity: how much is a model surprised by a text it has not seen?

-log p of the whole text, shared out over its tokens, its words or its characters. Models with
unlike tokenizers can be compared by words and characters only: they share one text out over
unlike numbers of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from heedful.data.running import TextBatch
from heedful.evaluation.metrics import Metric
from heedful.nested import map_tensors
from heedful.text.vocabulary import PAD


class Surprise(NamedTuple):
    """How a model did on the tokens it was asked for."""

    nats: float  # -log p of all of them together
    num_tokens: int
    num_correct: int  # held the likeliest

    def metrics(self, signature: str) -> list[Metric]:
        """Every number, with a word on how it was computed."""
        values = {
            "nats per token": self.nats / self.num_tokens,
            "perplexity per token": _exponential(self.nats / self.num_tokens),
            "per cent right": 100 * self.num_correct / self.num_tokens,
        }
        return [Metric(name, value, signature) for name, value in values.items()]


class Perplexity(NamedTuple):
    """How much a text surprised a model."""

    nats: float  # -log p of the whole text
    num_tokens: int  # line ends counted
    num_words: int  # parted by white space
    num_characters: int  # line ends counted

    @property
    def loss(self) -> float:
        """-log p per token."""
        return self.nats / self.num_tokens

    @property
    def per_token(self) -> float:
        """As if each token had been one of so many, equally likely."""
        return _exponential(self.loss)

    @property
    def per_word(self) -> float:
        """As if each word had been one of so many, equally likely."""
        return _exponential(self.nats / self.num_words)

    @property
    def per_character(self) -> float:
        """As if each character had been one of so many, equally likely."""
        return _exponential(self.nats / self.num_characters)

    @property
    def bits_per_character(self) -> float:
        """-log2 p per character."""
        return self.nats / self.num_characters / math.log(2)

    def metrics(self, signature: str) -> list[Metric]:
        """Every number, with a word on how it was computed."""
        values = {
            "nats per token": self.loss,
            "perplexity per token": self.per_token,
            "perplexity per word": self.per_word,
            "perplexity per character": self.per_character,
            "bits per character": self.bits_per_character,
        }
        return [Metric(name, value, signature) for name, value in values.items()]


def perplexity(surprise: Surprise, lines: Sequence[str]) -> Perplexity:
    """Share out over a text what its tokens cost."""
    num_words = sum(len(line.split()) for line in lines)
    num_characters = sum(len(line) + 1 for line in lines)
    return Perplexity(surprise.nats, surprise.num_tokens, num_words, num_characters)


@torch.no_grad()
def surprise(
    model: nn.Module, batches: Iterable[TextBatch], *, device: torch.device | str = "cpu"
) -> Surprise:
    """Add up what the tokens that are asked for cost a model."""
    nats, num_tokens, num_correct = 0.0, 0, 0
    for batch in batches:
        inputs, targets = map_tensors(lambda tensor: tensor.to(device), batch)
        log_probs = model(TextBatch(inputs, targets), need_weights=False).log_probs
        asked = targets != PAD
        said = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        nats -= float(said[asked].double().sum())
        num_tokens += int(asked.sum())
        num_correct += int((log_probs.argmax(dim=-1) == targets)[asked].sum())
    return Surprise(nats, num_tokens, num_correct)


def _exponential(nats: float) -> float:
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf

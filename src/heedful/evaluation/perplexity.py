"""Perplexity: how much is a model surprised by a text it has not seen?

-log p of the whole text, shared out over its tokens, its words or its characters. Models with
unlike tokenizers can be compared by words and characters only: they share one text out over
unlike numbers of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from heedful.data.token_stream import LMBatch
from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, MetricScore, zip_references
from heedful.pytree import map_tensors
from heedful.tokenization.vocabulary import PAD


class TokenLoss(NamedTuple):
    """How a model did on the tokens it was asked for."""

    total_nll: float  # -log p of all of them together
    num_tokens: int
    num_correct: int  # held the likeliest

    def to_scores(self, signature: str) -> list[MetricScore]:
        """Every number, with a word on how it was computed."""
        values = {
            "nats per token": self.total_nll / self.num_tokens,
            "perplexity per token": _exp(self.total_nll / self.num_tokens),
            "per cent right": 100 * self.num_correct / self.num_tokens,
        }
        return [MetricScore(name, value, signature) for name, value in values.items()]


class Perplexity(NamedTuple):
    """How much a text surprised a model."""

    total_nll: float  # -log p of the whole text
    num_tokens: int  # line ends counted
    num_words: int  # parted by white space
    num_characters: int  # line ends counted

    @property
    def loss(self) -> float:
        """-log p per token."""
        return self.total_nll / self.num_tokens

    @property
    def per_token(self) -> float:
        """As if each token had been one of so many, equally likely."""
        return _exp(self.loss)

    @property
    def per_word(self) -> float:
        """As if each word had been one of so many, equally likely."""
        return _exp(self.total_nll / self.num_words)

    @property
    def per_character(self) -> float:
        """As if each character had been one of so many, equally likely."""
        return _exp(self.total_nll / self.num_characters)

    @property
    def bits_per_character(self) -> float:
        """-log2 p per character."""
        return self.total_nll / self.num_characters / math.log(2)

    def to_scores(self, signature: str) -> list[MetricScore]:
        """Every number, with a word on how it was computed."""
        values = {
            "nats per token": self.loss,
            "perplexity per token": self.per_token,
            "perplexity per word": self.per_word,
            "perplexity per character": self.per_character,
            "bits per character": self.bits_per_character,
        }
        return [MetricScore(name, value, signature) for name, value in values.items()]


def compute_perplexity(token_loss: TokenLoss, lines: Sequence[str]) -> Perplexity:
    """Share out over a text what its tokens cost."""
    num_words = sum(len(line.split()) for line in lines)
    num_characters = sum(len(line) + 1 for line in lines)
    return Perplexity(token_loss.total_nll, token_loss.num_tokens, num_words, num_characters)


@torch.no_grad()
def compute_token_loss(
    model: nn.Module, batches: Iterable[LMBatch], *, device: torch.device | str = "cpu"
) -> TokenLoss:
    """Add up what the tokens that are asked for cost a model."""
    total_nll, num_tokens, num_correct = 0.0, 0, 0
    for batch in batches:
        inputs, targets = map_tensors(lambda tensor: tensor.to(device), batch)
        log_probs = model(LMBatch(inputs, targets)).log_probs
        is_target = targets != PAD
        token_log_probs = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        total_nll -= float(token_log_probs[is_target].double().sum())
        num_tokens += int(is_target.sum())
        num_correct += int((log_probs.argmax(dim=-1) == targets)[is_target].sum())
    return TokenLoss(total_nll, num_tokens, num_correct)


def _exp(total_nll: float) -> float:
    try:
        return math.exp(total_nll)
    except OverflowError:
        return math.inf


# Surprises: what is told by numbers that a model gives beside its outputs?
#
# Perplexity by its log-probabilities, and how widely it looked by its attention. A text is the
# numbers of a sentence, one for each token, parted by white space: log-probabilities, the one of the
# end among them, or entropies of rows of attention. They add up from sentences as the counts of any
# measure do, so intervals and tests are made in the same way.

_LEAST = -1e12  # of a sentence; of minus infinity, taken no times, something would be left


@dataclass(frozen=True)
class PerUnitMetric:
    """The sum of the numbers of all sentences, shared out over so many units of text."""

    name: str
    unit: str
    count_units: Callable[[Sequence[float], Sequence[str]], int]
    transform: Callable[[Array], Array]
    direction: Direction = "lower"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """The sum of each sentence, and its units."""
        rows = list[tuple[float, int]]()
        for number, (output, choices) in enumerate(zip_references(outputs, references), start=1):
            numbers = parse_numbers(output, location=f"line {number} of the outputs")
            rows.append((max(sum(numbers), _LEAST), self.count_units(numbers, choices)))
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """What is told by the mean over units; of nothing, the mean is 0."""
        return self.transform(sums[..., 0] / np.maximum(sums[..., 1], 1))

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """What is shared out over what."""
        del references  # they are asked about one by one; the first is the one
        return f"per:{self.unit}"


def format_numbers(numbers: Iterable[float]) -> str:
    """Write the numbers of a sentence so that they can be read back to the last digit."""
    return " ".join(repr(float(number)) for number in numbers)


def parse_numbers(line: str, *, location: str) -> list[float]:
    """Read the numbers of a sentence."""
    return [_parse_number(word, location) for word in line.split()]


def _parse_number(word: str, location: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise DataError(
            location,
            f"{word!r} is no number",
            "write a number for each token, parted by spaces, or measure a run",
        )
    return number


def attention_entropies(weights: NDArray[np.floating[Any]]) -> Array:
    """Entropy of each row of attention (tokens, source tokens) in nats: -sum_j a_j log a_j.

    Rows of zeros looked nowhere and are left out. Others are made to sum to one first.
    """
    looked = weights[weights.sum(axis=-1) > 0].astype(np.float64)
    shares = looked / looked.sum(axis=-1, keepdims=True)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=-1)


def _count_tokens(numbers: Sequence[float], _: Sequence[str]) -> int:
    return len(numbers)


def _count_words_and_eos(_: Sequence[float], references: Sequence[str]) -> int:
    return len(references[0].split()) + 1


def _perplexity(mean: Array) -> Array:
    with np.errstate(over="ignore"):  # a surprise beyond all numbers is infinite
        return np.exp(-mean)


def _identity(mean: Array) -> Array:
    return mean


PERPLEXITY = PerUnitMetric("perplexity per token", "token|end:counted", _count_tokens, _perplexity)
"""exp(-log p / tokens): as if each token had been one of so many, equally likely."""
PERPLEXITY_PER_WORD = PerUnitMetric(
    "perplexity per word", "word|end:counted", _count_words_and_eos, _perplexity
)
"""The same, shared out over the words of the (first) reference and its end: systems that cut words
otherwise can be compared by it."""
ATTENTION_ENTROPY = PerUnitMetric(
    "attention entropy", "token|end:left out|unit:nat", _count_tokens, _identity
)
"""Mean entropy of a row of attention: log n if spread evenly over n places, 0 if all on one. Lower
is sharper, which is not always better."""

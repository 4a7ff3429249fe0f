"""Perplexity and attention entropy.

A language model is scored over running text: -log p of the text, per token, word or character.
Models with different tokenizers can be compared per word and per character only. A translation
model is scored by a metric over numbers that it returns for every token (`PerTokenMetric`), which
adds up from sentences as every metric does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from heedful.data.token_stream import LMBatch
from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, Metric, MetricScore
from heedful.pytree import map_tensors
from heedful.tokenization.vocabulary import PAD


class TokenLoss(NamedTuple):
    """Summed loss of a model over target tokens."""

    total_nll: float  # -log p, summed
    num_tokens: int
    num_correct: int  # argmax equals the target

    def to_scores(self, signature: str) -> list[MetricScore]:
        """Return loss, perplexity and accuracy per token."""
        loss = self.total_nll / self.num_tokens
        values = {
            "nats per token": loss,
            "perplexity per token": _exp(loss),
            "token accuracy": 100 * self.num_correct / self.num_tokens,
        }
        return _with_signature(values, signature)


class Perplexity(NamedTuple):
    """Summed loss of a model over a text, and the lengths it is divided by."""

    total_nll: float  # -log p of the whole text
    num_tokens: int  # line ends included
    num_words: int  # separated by white space
    num_characters: int  # line ends included

    @property
    def loss(self) -> float:
        """-log p per token."""
        return self.total_nll / self.num_tokens

    @property
    def per_token(self) -> float:
        """Perplexity per token."""
        return _exp(self.loss)

    @property
    def per_word(self) -> float:
        """Perplexity per word."""
        return _exp(self.total_nll / self.num_words)

    @property
    def per_character(self) -> float:
        """Perplexity per character."""
        return _exp(self.total_nll / self.num_characters)

    @property
    def bits_per_character(self) -> float:
        """-log2 p per character."""
        return self.total_nll / self.num_characters / math.log(2)

    def to_scores(self, signature: str) -> list[MetricScore]:
        """Return loss and perplexities under their display names."""
        values = {
            "nats per token": self.loss,
            "perplexity per token": self.per_token,
            "perplexity per word": self.per_word,
            "perplexity per character": self.per_character,
            "bits per character": self.bits_per_character,
        }
        return _with_signature(values, signature)


def _with_signature(values: Mapping[str, float], signature: str) -> list[MetricScore]:
    return [MetricScore(name, value, signature) for name, value in values.items()]


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def compute_perplexity(token_loss: TokenLoss, lines: Sequence[str]) -> Perplexity:
    """Divide the loss of a text's tokens by the lengths of the text."""
    num_words = sum(len(line.split()) for line in lines)
    num_characters = sum(len(line) + 1 for line in lines)
    return Perplexity(token_loss.total_nll, token_loss.num_tokens, num_words, num_characters)


@torch.no_grad()
def compute_token_loss(
    model: nn.Module, batches: Iterable[LMBatch], *, device: torch.device | str = "cpu"
) -> TokenLoss:
    """Sum the loss of a language model over all targets that are not padding."""
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


# ----- metrics over numbers that a model returns for every token -----

_MIN_SUM = -1e12  # of a sentence: -inf times a count of 0 would be NaN


@dataclass(frozen=True)
class PerTokenMetric(Metric):
    """A function of the mean of per-token numbers over the corpus.

    An output is a line of numbers, one per token: log-probabilities, EOS included, or attention
    entropies.
    """

    name: str
    unit: str
    count_units: Callable[[Sequence[float], Sequence[str]], int]
    transform: Callable[[Array], Array]
    direction: Direction = "lower"

    @override
    def sentence_counts(
        self, output: str, references: Sequence[str], line: int
    ) -> tuple[float, int]:
        numbers = parse_numbers(output, location=f"line {line} of the outputs")
        return max(sum(numbers), _MIN_SUM), self.count_units(numbers, references)

    @override
    def compute(self, sums: Array) -> Array:
        return self.transform(sums[..., 0] / np.maximum(sums[..., 1], 1))

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        return f"per:{self.unit}"


def format_numbers(numbers: Iterable[float]) -> str:
    """Format the numbers of a sentence so that they parse back exactly."""
    return " ".join(repr(float(number)) for number in numbers)


def parse_numbers(line: str, *, location: str) -> list[float]:
    """Parse the numbers of a sentence."""
    return [_parse_number(word, location) for word in line.split()]


def _parse_number(word: str, location: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise DataError(
            location,
            f"{word!r} is not a number",
            "write one number per token, separated by spaces, or evaluate a run",
        )
    return number


def attention_entropies(weights: NDArray[np.floating[Any]]) -> Array:
    """Return the entropy of each attention row (T, S) in nats: -sum_j a_j log a_j.

    Rows are normalized to sum to one first; rows of zeros are left out.
    """
    rows = weights[weights.sum(axis=-1) > 0].astype(np.float64)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(axis=-1)


def _count_tokens(numbers: Sequence[float], _: Sequence[str]) -> int:
    return len(numbers)


def _count_words_and_eos(_: Sequence[float], references: Sequence[str]) -> int:
    return len(references[0].split()) + 1


def _perplexity(mean: Array) -> Array:
    with np.errstate(over="ignore"):  # an overflow is an infinite perplexity
        return np.exp(-mean)


def _identity(mean: Array) -> Array:
    return mean


PERPLEXITY = PerTokenMetric("perplexity per token", "token|end:counted", _count_tokens, _perplexity)
"""exp(-log p / tokens)."""
PERPLEXITY_PER_WORD = PerTokenMetric(
    "perplexity per word", "word|end:counted", _count_words_and_eos, _perplexity
)
"""exp(-log p / (words of the first reference + 1)): comparable across tokenizers."""
ATTENTION_ENTROPY = PerTokenMetric(
    "attention entropy", "token|end:left out|unit:nat", _count_tokens, _identity
)
"""Mean entropy of the attention rows: log n if uniform over n positions, 0 if on one. Lower is
sharper, which is not always better."""

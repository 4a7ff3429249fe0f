"""Perplexity of language models over running text: -log p per token, word or character.

Models with different tokenizers can be compared per word and per character only.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from heedful.data.text.token_stream import LMBatch
from heedful.evaluation.base import MetricScore
from heedful.pytree import map_tensors, to_float64
from heedful.tokenization.vocabulary import PAD


class TokenLoss(NamedTuple):
    """Summed loss of a model over target tokens."""

    total_nll: float  # -log p, summed
    num_tokens: int  # line ends included
    num_correct: int  # argmax equals the target

    def token_scores(self, signature: str) -> list[MetricScore]:
        """Return loss, perplexity and accuracy per token."""
        loss = self.total_nll / self.num_tokens
        values = {"nats per token": loss, "perplexity per token": _exp(loss)}
        values["token accuracy"] = 100 * self.num_correct / self.num_tokens
        return _with_signature(values, signature)

    def text_scores(self, lines: Sequence[str], signature: str) -> list[MetricScore]:
        """Return loss and perplexity per token, word and character of the text that was scored.

        Words are separated by white space; line ends count as characters.
        """
        num_words = sum(len(line.split()) for line in lines)
        num_characters = sum(len(line) + 1 for line in lines)
        values = {
            "nats per token": self.total_nll / self.num_tokens,
            "perplexity per token": _exp(self.total_nll / self.num_tokens),
            "perplexity per word": _exp(self.total_nll / num_words),
            "perplexity per character": _exp(self.total_nll / num_characters),
            "bits per character": self.total_nll / num_characters / math.log(2),
        }
        return _with_signature(values, signature)


def _with_signature(values: Mapping[str, float], signature: str) -> list[MetricScore]:
    return [MetricScore(name, value, signature) for name, value in values.items()]


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


@torch.no_grad()
def compute_token_loss(
    model: nn.Module, batches: Iterable[LMBatch], *, device: torch.device | str = "cpu"
) -> TokenLoss:
    """Sum the loss of a language model over all targets that are not padding."""
    total_nll, num_tokens, num_correct = 0.0, 0, 0
    for batch in batches:
        moved = map_tensors(lambda tensor: tensor.to(device), batch)
        log_probs, targets = model(moved).log_probs, moved.targets
        is_target = targets != PAD
        token_log_probs = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        total_nll -= float(to_float64(token_log_probs[is_target]).sum())
        num_tokens += int(is_target.sum())
        num_correct += int((log_probs.argmax(dim=-1) == targets)[is_target].sum())
    return TokenLoss(total_nll, num_tokens, num_correct)

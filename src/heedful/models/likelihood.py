"""Likelihood of targets: log-probabilities of a linear layer, and the loss of label smoothing.

Both are ops, since together they need no log-probability but the targets'.
"""

import torch
from torch import Tensor, nn

from heedful.ops import op
from heedful.shapes import Float, Int, Scalar, TokenIds
from heedful.tokenization.vocabulary import PAD


def log_softmax(logits: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Return log-probabilities in at least float32, in which they are added up."""
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@op
def linear_log_softmax(
    inputs: Float[Tensor, "*B D"], projection: nn.Module
) -> Float[Tensor, "*B N"]:
    """Return log softmax(W x + b)."""
    return log_softmax(projection(inputs))


def negative_log_likelihood(
    log_probs: Float[Tensor, "B T N"], targets: TokenIds, label_smoothing: float = 0.0
) -> Scalar:
    """Return -log p summed over targets without padding, with label smoothing e:

    (1 - e) * -log p(y) + e * mean over v of -log p(v)  (Szegedy et al. 2016, section 7).
    """
    return smoothed_cross_entropy(log_probs, targets, label_smoothing)


@op
def smoothed_cross_entropy(
    log_probs: Float[Tensor, "B T N"], targets: TokenIds, label_smoothing: float
) -> Scalar:
    """Compute `negative_log_likelihood`."""
    is_real = targets != PAD
    wide = torch.promote_types(log_probs.dtype, torch.float32)  # 16 bits cannot sum a batch
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).to(wide)  # (B, T)
    if label_smoothing:
        chosen = torch.lerp(chosen, log_probs.mean(dim=-1, dtype=wide), label_smoothing)
    return -chosen.masked_fill(~is_real, 0).sum()  # where padding has probability 0, too


def count_correct(log_probs: Float[Tensor, "B T N"], targets: TokenIds) -> Int[Tensor, ""]:
    """Return the number of targets, without padding, that are the most likely token."""
    return ((log_probs.argmax(dim=-1) == targets) & (targets != PAD)).sum()

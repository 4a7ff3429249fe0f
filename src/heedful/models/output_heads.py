"""Output heads: from features to log-probabilities of tokens, and the likelihood of targets.

A head is not part of the recurrence, so a known target passes through it at once. It may have an
alignment posterior, p(source position given the chosen token), which the next step can use. One
that copies tokens of the source predicts ids of an extended vocabulary (`heedful.models.copying`).
The loss is an op, since with a linear layer it needs no log-probability but the targets'.
"""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.readouts import Readout
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.ops import op
from heedful.shapes import (
    Float,
    Int,
    LogProbs,
    Scalar,
    SourceMask,
    SourceStates,
    SourceTokens,
    SourceWeights,
    TokenIds,
)
from heedful.tokenization.vocabulary import PAD

Features = Float[Tensor, "B T *S D"]


class CopySource(NamedTuple):
    """A source to copy from, prepared once by an output head."""

    tokens: SourceTokens  # in the extended vocabulary
    first_positions: SourceTokens  # where the token of each position occurs first
    entries: SourceTokens  # of the extended vocabulary, one per position: see `build_source`
    states: SourceStates | None = None  # if the head reads them
    keys: SourceStates | None = None  # if it has a score of its own
    input_tokens: SourceTokens | None = None  # to embed, if these are not `tokens`


class CopyInputs(NamedTuple):
    """Inputs of a head that copies, in addition to features and weights."""

    source: CopySource
    gate_inputs: Float[Tensor, "B T G"]  # context, state, input embedding, maybe cell state


class OutputHead(nn.Module, ABC):
    """Interface of output heads; `projection` maps features to logits."""

    is_per_position = False
    """Whether it needs features for each source position, (B, T, S, D)."""
    has_alignment_posterior = False
    """Whether `alignment_posterior` differs from the attention weights."""
    copies_source = False
    """Whether it predicts tokens of the source, and needs `CopyInputs`."""
    gate_reads_cell_state = False
    """Whether `CopyInputs.gate_inputs` end with the cell state of the decoder."""
    has_selective_read = False
    """Whether it has a `selective_read`, which is part of the next input (Gu et al. 2016)."""

    def __init__(self, feature_size: int, vocab_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.projection = nn.Linear(feature_size, vocab_size, bias=bias)

    def build_source(
        self, tokens: SourceTokens | None, mask: SourceMask, states: SourceStates
    ) -> CopySource | None:
        """Prepare a source once; None if nothing is copied."""
        return None

    def input_tokens(
        self, tokens: Int[Tensor, "B *T"], source: CopySource | None
    ) -> Int[Tensor, "B *T"]:
        """Return the tokens to embed when these are read; they may be copied ones."""
        return tokens

    @abstractmethod
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        """Return the log-probability of each token, also of the source's if it copies."""

    def alignment_posterior(
        self, features: Features, weights: SourceWeights, tokens: TokenIds
    ) -> SourceWeights:
        """Return p(source position given the chosen token); by default the attention weights."""
        return weights


class HeadSizes(NamedTuple):
    """Sizes of the inputs and outputs of an output head."""

    features: int
    vocab: int
    gate_inputs: int = 0  # `CopyInputs.gate_inputs`
    memory: int = 0  # states of the source


def log_softmax(logits: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Return log-probabilities in at least float32, in which they are added up."""
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class SoftmaxHead(OutputHead):
    """log softmax(W f + b)."""

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        return log_softmax(self.projection(features))


class SoftmaxHeadConfig(BaseConfig):
    """A softmax over the vocabulary."""

    type: Literal["softmax"] = "softmax"
    bias: bool = True
    """Add a bias to the logits; tied output layers have none (Vaswani et al. 2017, 3.4)."""

    def build(self, sizes: HeadSizes) -> OutputHead:
        return SoftmaxHead(sizes.features, sizes.vocab, bias=self.bias)


class MarginalHead(OutputHead):
    """log sum_s weights_s softmax(W f_s + b): a mixture over source positions.

    Exact marginalization of hard attention: the position is summed out, not sampled (Wu et al.
    2018). It computes a softmax over the vocabulary for each source position. A position without
    weight contributes nothing and gets no gradient.
    """

    is_per_position = True
    has_alignment_posterior = True

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        assert weights is not None, "a mixture over positions needs their weights"
        log_probs = log_softmax(self.projection(features))  # (B, T, S, N)
        return (log_probs + safe_log(weights).unsqueeze(-1)).logsumexp(dim=-2)

    @override
    def alignment_posterior(
        self, features: Features, weights: SourceWeights, tokens: TokenIds
    ) -> SourceWeights:
        """weights_s p(token | s), divided by its sum over s (Bayes)."""
        logits = self.projection(features)  # (B, T, S, N)
        token_index = tokens[..., None, None].expand(*weights.shape, 1)  # (B, T, S, 1)
        log_probs = logits.gather(-1, token_index).squeeze(-1) - logits.logsumexp(dim=-1)
        return (log_probs + safe_log(weights)).softmax(dim=-1) * (weights != 0)


def safe_log(weights: SourceWeights) -> SourceWeights:
    """Return the logarithm, and for zero a finite number that is no smaller than half the least."""
    # -inf would turn a row without any weight into NaN. The logarithm is taken of 1 instead of 0,
    # whose gradient would be infinite even where it is masked.
    is_zero = weights == 0
    logs = weights.masked_fill(is_zero, 1).log()
    # Half of finfo.min: a log-probability is still to be added.
    return logs.masked_fill(is_zero, torch.finfo(weights.dtype).min / 2)


class MarginalHeadConfig(BaseConfig):
    """A mixture of softmaxes, one per source position, marginalized exactly (Wu et al. 2018)."""

    type: Literal["marginal"] = "marginal"

    def build(self, sizes: HeadSizes) -> OutputHead:
        return MarginalHead(sizes.features, sizes.vocab)


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
    sum_dtype = torch.promote_types(log_probs.dtype, torch.float32)  # 16 bits cannot sum a batch
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).to(sum_dtype)  # (B, T)
    if label_smoothing:
        chosen = torch.lerp(chosen, log_probs.mean(dim=-1, dtype=sum_dtype), label_smoothing)
    return -chosen.masked_fill(~is_real, 0).sum()  # where padding has probability 0, too


def count_correct(log_probs: Float[Tensor, "B T N"], targets: TokenIds) -> Int[Tensor, ""]:
    """Return the number of targets, without padding, that are the most likely token."""
    return ((log_probs.argmax(dim=-1) == targets) & (targets != PAD)).sum()


def check_single_context(part: OutputHead | Readout, type_name: str, section: str) -> None:
    """Raise ConfigError if a decoder with one context per target position cannot use this part."""
    choice = "softmax" if isinstance(part, OutputHead) else "weighted-sum"
    message = f"{type_name!r} needs a context per source position, but this decoder has one"
    hint = f"choose {choice!r}, or a recurrent decoder"
    check(not part.is_per_position, f"decoder.{section}.type", message, hint)


def check_copying(head: OutputHead, attention: Attention, type_name: str, section: str) -> None:
    """Raise ConfigError for attention whose weights are no probabilities of copying."""
    message = f"output head {type_name!r} needs weights that sum to one, but these may not"
    is_valid = not (head.copies_source and attention.alignment_function.is_unnormalized)
    check(is_valid, f"{section}.alignment.type", message, "choose 'softmax'")


def check_parallel(head: OutputHead) -> None:
    """Raise ConfigError for a head that needs one step after another."""
    message = "a selective read waits for the step before, but this decoder has no steps"
    hint = "set it to false, or choose a recurrent decoder"
    check(not head.has_selective_read, "decoder.output_head.selective_read", message, hint)
    message = "the gate reads cell states, which this decoder does not have"
    setting = "decoder.output_head.gate_reads_cell_state"
    check(not head.gate_reads_cell_state, setting, message, hint)

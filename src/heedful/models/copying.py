"""Output heads that copy tokens of the source.

They predict an extended vocabulary of V + S entries: the vocabulary, and one for each
source position. A source token that the vocabulary does not have is V + s, where s is the position
of its first occurrence; other entries beyond V have probability 0. Invariants: probabilities sum to
one; a token has the probability p(generate it) + p(copy it), summed over all of its positions.
"""

from abc import abstractmethod
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.text.batching import Batch
from heedful.models.output_heads import (
    CopyInputs,
    CopySource,
    Features,
    HeadSizes,
    MarginalHeadConfig,
    OutputHead,
    SoftmaxHeadConfig,
    log_softmax,
    safe_log,
)
from heedful.shapes import (
    Float,
    Int,
    LogProbs,
    PerQuery,
    SourceMask,
    SourceStates,
    SourceTokens,
    SourceWeights,
    StepTokens,
    TokenIds,
)
from heedful.tokenization.vocabulary import EOS, NUM_SPECIAL_TOKENS, PAD, UNK


class CopyDistributions(NamedTuple):
    """Probabilities of generating each token and of copying from each position; sum: 1."""

    generate_log_probs: LogProbs  # (B, T, V)
    copy_probs: SourceWeights


class CopyingHead(OutputHead):
    """Interface of heads that generate tokens or copy them."""

    copies_source = True

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary that is not extended."""
        return self.projection.out_features

    @abstractmethod
    def compute_distributions(
        self, features: Features, weights: SourceWeights, copying: CopyInputs
    ) -> CopyDistributions:
        """Return the log-probabilities of generating and of copying."""

    @override
    def build_source(
        self, tokens: SourceTokens | None, mask: SourceMask, states: SourceStates
    ) -> CopySource:
        """Find repeated tokens.

        The entry of a position is that of its token where this occurs first, else V + s, which is
        unused; so no two positions of a source have the same entry.
        """
        assert tokens is not None, "a head that copies needs EncoderOutput.tokens"
        tokens = tokens.masked_fill(~mask, PAD)
        positions = torch.arange(tokens.size(1), device=tokens.device)
        # Of several maxima, argmax returns the first.
        first = (tokens[:, :, None] == tokens[:, None, :]).int().argmax(dim=-1)
        is_first = mask & (first == positions)
        entries = torch.where(is_first, tokens, self.vocab_size + positions)
        return CopySource(tokens, first, entries)

    @override
    def input_tokens(
        self, tokens: Int[Tensor, "B *T"], source: CopySource | None
    ) -> Int[Tensor, "B *T"]:
        return tokens.masked_fill(tokens >= self.vocab_size, UNK)

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        assert weights is not None, "copying needs attention weights"
        assert copying is not None, "nothing to copy from"
        distributions = self.compute_distributions(features, weights, copying)
        return add_copies(*distributions, copying.source)

    def copy_probs(
        self, features: Features, weights: SourceWeights, copying: CopyInputs, tokens: TokenIds
    ) -> PerQuery:
        """Return p(copied | token): the part of the probability of a token that is copying it."""
        generate_log_probs, copy_probs = self.compute_distributions(features, weights, copying)
        is_known = tokens < self.vocab_size
        index = tokens.masked_fill(~is_known, UNK).unsqueeze(-1)
        generated = generate_log_probs.gather(-1, index).squeeze(-1).exp() * is_known
        is_same = copying.source.tokens[:, None, :] == tokens[:, :, None]  # (B, T, S)
        copied = (copy_probs * is_same).sum(dim=-1)
        return copied / (generated + copied).clamp(min=torch.finfo(copied.dtype).tiny)


def add_copies(
    generate_log_probs: LogProbs, copy_probs: SourceWeights, source: CopySource
) -> Float[Tensor, "B T N+S"]:
    """Return log(p(generate) + p(copy)) of the extended vocabulary, -inf where both are 0.

    Duplicates in the source are summed at their first position. Sums are taken in log space, so
    that an improbable token does not underflow.
    """
    copy_probs = copy_probs.to(generate_log_probs.dtype)
    first = source.first_positions.unsqueeze(1).expand_as(copy_probs)
    copy_totals = torch.zeros_like(copy_probs).scatter_add(-1, first, copy_probs)
    entries = source.entries.unsqueeze(1).expand_as(copy_probs)
    is_unknown = entries >= generate_log_probs.size(-1)
    generated = generate_log_probs.gather(-1, entries.masked_fill(is_unknown, UNK))
    is_never_generated = is_unknown | generated.isneginf()
    # A finite number, as the gradient of logaddexp(-inf, -inf) is NaN.
    generated = generated.masked_fill(is_never_generated, torch.finfo(generated.dtype).min / 2)
    sums = torch.logaddexp(generated, safe_log(copy_totals))
    sums = sums.masked_fill(is_never_generated & (copy_totals == 0), -torch.inf)
    extended = pad(generate_log_probs, (0, copy_probs.size(-1)), value=-torch.inf)
    return extended.scatter(-1, entries, sums)


class PointerGeneratorHead(CopyingHead):
    """p(w) = p_gen softmax(W f + b)_w + (1 - p_gen) sum_{s: x_s = w} a_s.

    p_gen = sigmoid(w_c c + w_s s + w_x x + b) for context c, decoder state s and input embedding x;
    a are the attention weights (See et al. 2017, equations 8 and 9). s is the hidden state, with
    `gate_reads_cell_state` also the cell state, as in the authors' code. Decoders without a
    recurrent state have their features in place of c and s.
    """

    def __init__(
        self,
        feature_size: int,
        vocab_size: int,
        gate_size: int,
        *,
        gate_reads_cell_state: bool = False,
    ) -> None:
        super().__init__(feature_size, vocab_size)
        self.gate = nn.Linear(gate_size, 1)
        self.gate_reads_cell_state = gate_reads_cell_state

    @override
    def compute_distributions(
        self, features: Features, weights: SourceWeights, copying: CopyInputs
    ) -> CopyDistributions:
        gate = self.gate(copying.gate_inputs)  # (B, T, 1)
        generate_log_probs = log_softmax(self.projection(features)) + logsigmoid(gate)
        return CopyDistributions(generate_log_probs, weights * (-gate).sigmoid())


class PointerGeneratorHeadConfig(BaseConfig):
    """Generate or copy, as a gate decides (See et al. 2017)."""

    type: Literal["pointer-generator"] = "pointer-generator"
    gate_reads_cell_state: bool = False
    """The gate also reads the cell state of the LSTM decoder, as in the paper."""

    def build(self, sizes: HeadSizes) -> OutputHead:
        reads_cell_state = self.gate_reads_cell_state
        return PointerGeneratorHead(
            *(sizes.features, sizes.vocab, sizes.gate_inputs),
            gate_reads_cell_state=reads_cell_state,
        )


class CopyHead(CopyingHead):
    """p(w) = p(generate w) + p(copy) sum_{s: x_s = w} a_s, from one softmax([W f + b; u f + c]).

    To copy is one more entry of the vocabulary; attention weights a share its probability among the
    tokens of the source. A token that can be both generated and copied has the sum of both.
    """

    def __init__(self, feature_size: int, vocab_size: int) -> None:
        super().__init__(feature_size, vocab_size)
        self.copy_score = nn.Linear(feature_size, 1)

    @override
    def compute_distributions(
        self, features: Features, weights: SourceWeights, copying: CopyInputs
    ) -> CopyDistributions:
        logits = torch.cat([self.projection(features), self.copy_score(features)], dim=-1)
        log_probs = log_softmax(logits)
        return CopyDistributions(log_probs[..., :-1], weights * log_probs[..., -1:].exp())


class CopyHeadConfig(BaseConfig):
    """A softmax over the vocabulary and copying, which attention distributes over source tokens."""

    type: Literal["copy"] = "copy"

    def build(self, sizes: HeadSizes) -> OutputHead:
        return CopyHead(sizes.features, sizes.vocab)


class CopyNetHead(CopyingHead):
    """One softmax over the scores of tokens, W f + b, and of positions, tanh(U h_s) . f.

    The normalizer is shared: p(w) = p(generate w) + sum_{s: x_s = w} p(copy s)  (Gu et al. 2016,
    equations 4 to 8; f is the decoder state). The attention weights play no part in copying.
    """

    def __init__(self, feature_size: int, vocab_size: int, memory_size: int) -> None:
        super().__init__(feature_size, vocab_size)
        self.key_projection = nn.Linear(memory_size, feature_size, bias=False)

    @override
    def build_source(
        self, tokens: SourceTokens | None, mask: SourceMask, states: SourceStates
    ) -> CopySource:
        source = super().build_source(tokens, mask, states)
        return source._replace(states=states, keys=self.key_projection(states).tanh())

    @override
    def compute_distributions(
        self, features: Features, weights: SourceWeights, copying: CopyInputs
    ) -> CopyDistributions:
        logits, scores = self.projection(features), self._score_positions(features, copying.source)
        log_probs = log_softmax(torch.cat([logits, scores], dim=-1))
        generate_log_probs, copy_log_probs = log_probs.split(
            [self.vocab_size, scores.size(-1)], dim=-1
        )
        return CopyDistributions(generate_log_probs, copy_log_probs.exp())

    def selective_read(
        self, features: Features | None, tokens: StepTokens, source: CopySource
    ) -> Float[Tensor, "B V"]:
        """Return sum_s rho_s h_s over the positions of the last token, zero if there are none.

        rho_s is p(copy s) at the step with these features, which has predicted the token,
        normalized over those positions (Gu et al. 2016, equation 9). BOS has no such step.
        """
        assert source.states is not None
        if features is None:
            return torch.zeros_like(source.states[:, 0])
        is_same = (source.tokens == tokens.unsqueeze(1)) & (source.tokens != PAD)  # (B, S)
        scores = self._score_positions(features, source).squeeze(1)
        smallest = torch.finfo(scores.dtype).min  # not -inf: a row may have no such position
        rho = scores.masked_fill(~is_same, smallest).softmax(dim=-1) * is_same
        return (rho.unsqueeze(1) @ source.states).squeeze(1)

    def _score_positions(self, features: Features, source: CopySource) -> SourceWeights:
        assert source.keys is not None
        is_padding = (source.tokens == PAD).unsqueeze(1)  # (B, 1, S)
        return (features @ source.keys.mT).masked_fill(is_padding, -torch.inf)


class CopyNetHeadConfig(BaseConfig):
    """Generate or copy, with one normalizer for the scores of both (Gu et al. 2016)."""

    type: Literal["copynet"] = "copynet"
    selective_read: bool = True
    """Read the states of the positions of the last token, with its embedding; recurrent decoders
    alone can."""

    def build(self, sizes: HeadSizes) -> OutputHead:
        head = CopyNetHead(sizes.features, sizes.vocab, sizes.memory)
        head.has_selective_read = self.selective_read
        return head


class PointerHead(CopyingHead):
    """p(position s) = a_s: attention is the output distribution  (Vinyals et al. 2015, equation 3).

    The extended vocabulary has the special tokens and one entry per position; pointing to EOS of
    the source ends the output. The next input is the token at the position, as in the paper.
    """

    def __init__(self, feature_size: int) -> None:
        nn.Module.__init__(self)  # without a projection
        self.feature_size = feature_size

    @property
    @override
    def vocab_size(self) -> int:
        return NUM_SPECIAL_TOKENS

    @override
    def build_source(
        self, tokens: SourceTokens | None, mask: SourceMask, states: SourceStates
    ) -> CopySource:
        assert tokens is not None, "a head that points needs EncoderOutput.tokens"
        positions = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        entries = torch.where(tokens == EOS, EOS, self.vocab_size + positions)
        return CopySource(entries, positions, entries, input_tokens=tokens)

    @override
    def input_tokens(
        self, tokens: Int[Tensor, "B *T"], source: CopySource | None
    ) -> Int[Tensor, "B *T"]:
        assert source is not None
        assert source.input_tokens is not None
        positions = (tokens - self.vocab_size).clamp(min=0).view(len(tokens), -1)
        pointed = source.input_tokens.gather(1, positions).view(tokens.shape)
        return torch.where(tokens < self.vocab_size, tokens, pointed)

    @override
    def compute_distributions(
        self, features: Features, weights: SourceWeights, copying: CopyInputs
    ) -> CopyDistributions:
        never = weights.new_full((*weights.shape[:2], self.vocab_size), -torch.inf)
        return CopyDistributions(never, weights)


class PointerHeadConfig(BaseConfig):
    """Point to source positions, and generate nothing (Vinyals et al. 2015)."""

    type: Literal["pointer"] = "pointer"

    def build(self, sizes: HeadSizes) -> OutputHead:
        return PointerHead(sizes.features)


def find_copying_head(model: nn.Module) -> CopyingHead | None:
    """Return the output head of a model if it copies."""
    return next((module for module in model.modules() if isinstance(module, CopyingHead)), None)


@torch.inference_mode()
def compute_copy_probs(model: nn.Module, batch: Batch) -> PerQuery | None:
    """Return the copied part of the probability of each target; None if nothing is copied."""
    head = find_copying_head(model)
    if head is None:
        return None
    copy_probs: list[PerQuery] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        features, weights, copying = inputs
        copy_probs.append(head.copy_probs(features, weights, copying, batch.targets))

    handle = head.register_forward_hook(record)
    try:
        model(batch)
    finally:
        handle.remove()
    (batch_copy_probs,) = copy_probs
    return batch_copy_probs


OutputHeadConfig = Annotated[
    SoftmaxHeadConfig
    | MarginalHeadConfig
    | PointerGeneratorHeadConfig
    | CopyHeadConfig
    | CopyNetHeadConfig
    | PointerHeadConfig,
    Field(discriminator="type"),
]

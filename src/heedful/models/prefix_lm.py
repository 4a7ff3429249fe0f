"""Prefix language models: one language model reads source, separator and target.

There is no encoder: the decoder sees the source through the state of the backbone, or by attending
to it (Liu et al. 2018).
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.masks import padding_mask
from heedful.data.text.batching import Batch, SourceBatch
from heedful.layers.embeddings import TokenEmbedding, check_shared_vocabulary, tie_weights
from heedful.models.base import ModelOutput, Seq2SeqModel
from heedful.models.language_model import BackboneOutput, CausalBackbone, LanguageModelConfigBase
from heedful.models.output_heads import log_softmax
from heedful.models.scheduled_sampling import InputSampler, run_scheduled_sampling
from heedful.pytree import sum_losses
from heedful.search import StepOutput
from heedful.shapes import (
    HiddenStates,
    Int,
    LogProbs,
    Scalar,
    SourceMask,
    SourceWeights,
    StepTokens,
)


class PrefixLanguageModelState(NamedTuple):
    """State of the backbone, and which of its positions are the source."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # position of the next token
    is_source: SourceMask


class PrefixLanguageModel(Seq2SeqModel):
    """p(y_t | x, separator, y_<t), by one backbone over all of them.

    The separator is EOS of the source and BOS of the target. With `includes_source_loss`, -log p of
    the source is an auxiliary loss (Liu et al. 2018, section 4.2.1).
    """

    def __init__(
        self,
        source_embedding: TokenEmbedding,
        target_embedding: TokenEmbedding,
        backbone: CausalBackbone,
        lm_head: nn.Linear,
        *,
        dropout: float,
        includes_source_loss: bool = False,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.backbone = backbone
        self.lm_head = lm_head
        self.dropout = nn.Dropout(dropout)
        self.includes_source_loss = includes_source_loss

    @override
    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        source, state = self._encode_source(batch.sources)
        losses = self._source_losses(source, batch.sources)
        target = self.backbone(
            self.target_embedding(batch.decoder_inputs, state.start_positions),
            torch.full_like(state.start_positions, batch.decoder_inputs.size(1)),
            state.backbone_state,
            need_weights=need_weights,
            need_state=False,
        )
        weights = self._source_weights(target, state.is_source) if need_weights else None
        log_probs = self.compute_log_probs(target.outputs)
        return ModelOutput(log_probs, weights, sum_losses(losses, target.auxiliary_losses))

    @override
    def forward_scheduled_sampling(self, batch: Batch, sampler: InputSampler) -> ModelOutput:
        source, state = self._encode_source(batch.sources)
        losses = self._source_losses(source, batch.sources)
        outputs = run_scheduled_sampling(self, batch.decoder_inputs, state, sampler)
        return ModelOutput(*outputs, losses)

    @override
    def initial_state(self, sources: SourceBatch) -> PrefixLanguageModelState:
        return self._encode_source(sources)[1]

    @override
    def step(
        self, tokens: StepTokens, state: PrefixLanguageModelState
    ) -> StepOutput[PrefixLanguageModelState]:
        backbone_state, start_positions, is_source = state
        embedded = self.target_embedding(tokens.unsqueeze(1), start_positions)
        lengths = torch.ones_like(start_positions)
        output = self.backbone(embedded, lengths, backbone_state, need_weights=True)
        next_state = PrefixLanguageModelState(output.state, start_positions + 1, is_source)
        log_probs = self.compute_log_probs(output.outputs).squeeze(1)
        return StepOutput(log_probs, next_state, self._source_weights(output, is_source).squeeze(1))

    def _encode_source(
        self, sources: SourceBatch
    ) -> tuple[BackboneOutput, PrefixLanguageModelState]:
        tokens, lengths = sources
        embedded = self.source_embedding(tokens)
        output = self.backbone(embedded, lengths, self.backbone.initial_state(embedded))
        is_source = padding_mask(lengths, tokens.size(1)).squeeze(1)
        return output, PrefixLanguageModelState(output.state, lengths, is_source)

    def _source_losses(self, source: BackboneOutput, sources: SourceBatch) -> dict[str, Scalar]:
        """Return auxiliary losses of the source, with -log p of each token after the first."""
        if not self.includes_source_loss:
            return dict(source.auxiliary_losses)
        targets = sources.tokens[:, 1:]
        log_probs = self.compute_log_probs(source.outputs[:, :-1])
        target_log_probs = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        is_real = padding_mask(sources.lengths - 1, targets.size(1)).squeeze(1)
        loss = {"source": -(target_log_probs * is_real).sum()}
        return sum_losses(source.auxiliary_losses, loss)

    def _source_weights(self, output: BackboneOutput, is_source: SourceMask) -> SourceWeights:
        """Select the weights over source positions; zeros for a backbone without attention."""
        source_length = is_source.size(1)
        if output.weights is None:
            return output.outputs.new_zeros(*output.outputs.shape[:2], source_length)
        return output.weights[..., :source_length] * is_source.unsqueeze(1)

    def compute_log_probs(self, outputs: HiddenStates) -> LogProbs:
        """Predict the next token from the output of the backbone at each position."""
        return log_softmax(self.lm_head(self.dropout(outputs)))


class PrefixLanguageModelConfig(LanguageModelConfigBase):
    """One language model over source, separator and target."""

    type: Literal["prefix-lm"] = "prefix-lm"
    embeddings: Literal["separate", "shared", "tied"] = "separate"
    """Share the embeddings of source and target (shared), and tie the output head, too (tied)."""
    loss_on: Literal["target", "both"] = "target"
    """Train on the target alone, or on source and target (Liu et al. 2018)."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> PrefixLanguageModel:
        is_shared, is_tied = self.embeddings != "separate", self.embeddings == "tied"
        if is_shared or self.loss_on == "both":
            check_shared_vocabulary(source_vocab_size, target_vocab_size)
        source_embedding = self.build_embedding(source_vocab_size, scale_embeddings=is_tied)
        target_embedding = source_embedding
        if not is_shared:
            target_embedding = self.build_embedding(target_vocab_size, scale_embeddings=False)
        backbone = self.backbone.build(input_size=target_embedding.embedding_size)
        lm_head = self.build_lm_head(backbone.output_size, target_vocab_size)
        model = PrefixLanguageModel(
            source_embedding,
            target_embedding,
            backbone,
            lm_head,
            dropout=self.dropout if self.output_dropout is None else self.output_dropout,
            includes_source_loss=self.loss_on == "both",
        )
        self.init.initialize(model)
        if is_tied:
            tie_weights(lm_head, target_embedding)
        return model

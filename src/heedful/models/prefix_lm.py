"""Prefix language models: one language model reads source, separator and target.

There is no encoder: the decoder sees the source through the state of the backbone, or by attending
to it (Liu et al. 2018).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import sum_losses
from heedful.attention.memory import padding_mask
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.data.batching import Batch, SourceBatch
from heedful.layers.embeddings import TokenEmbedding, check_shared_vocabulary, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.backbones import (
    BackboneConfig,
    BackboneOutput,
    CausalBackbone,
    RecurrentBackboneConfig,
)
from heedful.models.base import ModelOutput, Seq2SeqModel
from heedful.models.scheduled_sampling import TokenChoice, run_scheduled_sampling
from heedful.search import StepOutput
from heedful.shapes import Bool, Float, Int, Scalar, StepTokens, TokenIds


class PrefixLanguageModelState(NamedTuple):
    """State of the backbone, and which of its positions are the source."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # position of the next token
    is_source: Bool[Tensor, "B S"]


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
        source_loss = self._source_loss(source, batch)
        target = self._forward_backbone(
            batch.decoder_inputs, state, need_weights=need_weights, need_state=False
        )
        weights = self._source_weights(target, state) if need_weights else None
        auxiliary_losses = sum_losses(source.auxiliary_losses, source_loss, target.auxiliary_losses)
        return ModelOutput(self._compute_log_probs(target.outputs), weights, auxiliary_losses)

    @override
    def forward_scheduled_sampling(
        self, batch: Batch, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        source, state = self._encode_source(batch.sources)
        auxiliary_losses = sum_losses(source.auxiliary_losses, self._source_loss(source, batch))
        outputs = run_scheduled_sampling(
            self, batch.decoder_inputs, state, teacher_forcing_ratio, token_choice
        )
        return ModelOutput(*outputs, auxiliary_losses)

    @override
    def initial_state(self, sources: SourceBatch) -> PrefixLanguageModelState:
        return self._encode_source(sources)[1]

    @override
    def step(
        self, tokens: StepTokens, state: PrefixLanguageModelState
    ) -> StepOutput[PrefixLanguageModelState]:
        output = self._forward_backbone(tokens.unsqueeze(1), state, need_weights=True)
        next_state = state._replace(
            backbone_state=output.state, start_positions=state.start_positions + 1
        )
        weights = self._source_weights(output, state).squeeze(1)
        return StepOutput(self._compute_log_probs(output.outputs).squeeze(1), next_state, weights)

    def _encode_source(
        self, sources: SourceBatch
    ) -> tuple[BackboneOutput, PrefixLanguageModelState]:
        tokens, lengths = sources
        embedded = self.source_embedding(tokens)
        output = self.backbone(embedded, lengths, self.backbone.initial_state(embedded))
        is_source = padding_mask(lengths, tokens.size(1)).squeeze(1)
        return output, PrefixLanguageModelState(output.state, lengths, is_source)

    def _forward_backbone(
        self,
        tokens: TokenIds,
        state: PrefixLanguageModelState,
        *,
        need_weights: bool,
        need_state: bool = True,
    ) -> BackboneOutput:
        return self.backbone(
            self.target_embedding(tokens, state.start_positions),
            torch.full_like(state.start_positions, tokens.size(1)),
            state.backbone_state,
            need_weights=need_weights,
            need_state=need_state,
        )

    def _source_weights(
        self, output: BackboneOutput, state: PrefixLanguageModelState
    ) -> Float[Tensor, "B T S"]:
        """Select the weights over source positions; zeros for a backbone without attention."""
        num_rows, length = output.outputs.shape[:2]
        source_length = state.is_source.size(1)
        if output.weights is None:
            return output.outputs.new_zeros(num_rows, length, source_length)
        return output.weights[..., :source_length] * state.is_source.unsqueeze(1)

    def _source_loss(self, source: BackboneOutput, batch: Batch) -> dict[str, Scalar]:
        """Return -log p of every source token after the first, if the loss includes the source."""
        if not self.includes_source_loss:
            return {}
        log_probs = self._compute_log_probs(source.outputs[:, :-1])
        targets = batch.sources.tokens[:, 1:]
        target_log_probs = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        is_real = padding_mask(batch.sources.lengths - 1, targets.size(1)).squeeze(1)
        return {"source": -(target_log_probs * is_real).sum()}

    def _compute_log_probs(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.lm_head(self.dropout(features)).log_softmax(dim=-1)


class PrefixLanguageModelConfig(BaseConfig):
    """One language model over source, separator and target."""

    type: Literal["prefix-lm"] = "prefix-lm"
    backbone: BackboneConfig = RecurrentBackboneConfig()
    """The causal model over both."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding, counted over both sides; null for none."""
    embeddings: Literal["separate", "shared", "tied"] = "separate"
    """Share the embeddings of both sides (shared), and tie the output head to them (tied)."""
    loss_on: Literal["target", "both"] = "target"
    """Train on the target alone, or on source and target (Liu et al. 2018)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings and before the output head."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> PrefixLanguageModel:
        is_shared = self.embeddings != "separate"
        if is_shared or self.loss_on == "both":
            check_shared_vocabulary(source_vocab_size, target_vocab_size)
        source_embedding = self._build_embedding(source_vocab_size)
        target_embedding = (
            source_embedding if is_shared else self._build_embedding(target_vocab_size)
        )
        backbone = self.backbone.build(input_size=target_embedding.embedding_size)
        lm_head = nn.Linear(backbone.output_size, target_vocab_size)
        model = PrefixLanguageModel(
            source_embedding,
            target_embedding,
            backbone,
            lm_head,
            dropout=self.dropout,
            includes_source_loss=self.loss_on == "both",
        )
        self.init.initialize(model)
        if self.embeddings == "tied":
            tie_weights(lm_head, target_embedding)
        return model

    def _build_embedding(self, vocab_size: int) -> TokenEmbedding:
        size, positions = self.embedding_size, self.positional_encoding
        return TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=positions.build(embedding_size=size) if positions else None,
            scale_embeddings=self.embeddings == "tied",
        )

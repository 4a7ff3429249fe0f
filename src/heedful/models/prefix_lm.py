"""Continuation: a language model that reads a source and goes on with the target.

Source, separator and target are one sequence, read by one reader from left to right. There is no
encoder: what is known of the source is what the reader kept of it, in a state or by looking back.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import sum_losses
from heedful.attention.masks import padding_mask
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
from heedful.shapes import Bool, Float, Int

LossScope = Literal["target", "both"]


class PrefixLanguageModelState(NamedTuple):
    """All that is needed to go on: what was read, how much, and what of it is the source."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # the number of the next place
    is_source: Bool[Tensor, "B S"]


class PrefixLanguageModel(Seq2SeqModel):
    """p(y_t | x, separator, y_<t), by one reader over all of them.

    The separator is the symbol that a source ends with and the one that a target begins with.
    Words of the two sides have vectors of their own, unless both embeddings are one. Where it
    `includes_source_loss`, how unlikely the source is is added to the loss (Liu et al. 2018, section 4.2.1).
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

    def initial_state(self, sources: SourceBatch) -> PrefixLanguageModelState:
        """Read sources, to go on from them."""
        return self._encode_source(sources)[1]

    def step(
        self, tokens: Int[Tensor, "B"], state: PrefixLanguageModelState
    ) -> StepOutput[PrefixLanguageModelState]:
        """Read one token; say how likely each next one is."""
        read = self._forward_backbone(tokens.unsqueeze(1), state, need_weights=True)
        after = state._replace(backbone_state=read.state, start_positions=state.start_positions + 1)
        weights = self._source_weights(read, state).squeeze(1)
        return StepOutput(self._compute_log_probs(read.outputs).squeeze(1), after, weights)

    def _encode_source(
        self, sources: SourceBatch
    ) -> tuple[BackboneOutput, PrefixLanguageModelState]:
        tokens, lengths = sources
        embedded = self.source_embedding(tokens)
        read = self.backbone(embedded, lengths, self.backbone.initial_state(embedded))
        is_source = padding_mask(lengths, tokens.size(1)).squeeze(1)
        return read, PrefixLanguageModelState(read.state, lengths, is_source)

    def _forward_backbone(
        self,
        tokens: Int[Tensor, "B T"],
        state: PrefixLanguageModelState,
        *,
        need_weights: bool,
        need_state: bool = True,
    ) -> BackboneOutput:
        embedded = self.target_embedding(tokens, state.start_positions)
        lengths = torch.full_like(state.start_positions, tokens.size(1))
        return self.backbone(
            embedded,
            lengths,
            state.backbone_state,
            need_weights=need_weights,
            need_state=need_state,
        )

    def _source_weights(
        self, read: BackboneOutput, state: PrefixLanguageModelState
    ) -> Float[Tensor, "B T S"]:
        """Where was looked in the source; nowhere, if the reader does not look."""
        times, source_length = read.outputs.size(1), state.is_source.size(1)
        if read.weights is None:
            return read.outputs.new_zeros(len(read.outputs), times, source_length)
        return read.weights[..., :source_length] * state.is_source.unsqueeze(1)

    def _source_loss(self, source: BackboneOutput, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """Return -log p of every source token after the first, if the loss includes the source."""
        if not self.includes_source_loss:
            return {}
        log_probs = self._compute_log_probs(source.outputs[:, :-1])
        targets = batch.sources.tokens[:, 1:]
        chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        real = padding_mask(batch.sources.lengths - 1, targets.size(1)).squeeze(1)
        return {"source": -(chosen * real).sum()}

    def _compute_log_probs(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.lm_head(self.dropout(features)).log_softmax(dim=-1)


class PrefixLanguageModelConfig(BaseConfig):
    """One language model over "source, separator, target"."""

    type: Literal["prefix-lm"] = "prefix-lm"
    backbone: BackboneConfig = RecurrentBackboneConfig()
    """What reads both."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    positional_encoding: PositionalEncodingConfig | None = None
    """How words are told their places, counted over both sides; if not given, they are not."""
    embeddings: Literal["separate", "shared", "tied"] = "separate"
    """Whether words of both sides have one vector, and, tied, the emission has it too."""
    loss_on: LossScope = "target"
    """Whether the model learns to say the target alone, or the source too (Liu et al. 2018)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and before the emission."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> PrefixLanguageModel:
        """Make the model for two vocabularies."""
        if self.embeddings != "separate" or self.loss_on == "both":
            check_shared_vocabulary(source_vocab_size, target_vocab_size)
        source = self._build_embedding(source_vocab_size)
        target = (
            source if self.embeddings != "separate" else self._build_embedding(target_vocab_size)
        )
        reader = self.backbone.build(input_size=target.embedding_size)
        projection = nn.Linear(reader.output_size, target_vocab_size)
        model = PrefixLanguageModel(
            source,
            target,
            reader,
            projection,
            dropout=self.dropout,
            includes_source_loss=self.loss_on == "both",
        )
        self.init.initialize(model)
        if self.embeddings == "tied":
            tie_weights(projection, target)
        return model

    def _build_embedding(self, vocab_size: int) -> TokenEmbedding:
        size, is_tied = self.embedding_size, self.embeddings == "tied"
        position_combiner = (
            self.positional_encoding.build(embedding_size=size)
            if self.positional_encoding
            else None
        )
        return TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=position_combiner,
            scale_embeddings=is_tied,
        )

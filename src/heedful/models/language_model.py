"""Language models: how likely is each next token of a running text?

The text is read by a reader, from left to right. Law: a text read at once is the same text read
step by step, from wherever it was left.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.data.token_stream import LMBatch
from heedful.errors import ConfigError
from heedful.layers.embeddings import TokenEmbedding, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.backbones import (
    BackboneConfig,
    BackboneOutput,
    CausalBackbone,
    RecurrentBackboneConfig,
)
from heedful.models.base import ModelOutput
from heedful.models.scheduled_sampling import TokenChoice, run_scheduled_sampling
from heedful.search import StepOutput
from heedful.shapes import Float, Int


class LanguageModelState(NamedTuple):
    """All that is needed to go on: what was read, and how much."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # the number of the next place


class LanguageModel(nn.Module):
    """p(x_t | x_<t), by a reader over all of them."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        backbone: CausalBackbone,
        lm_head: nn.Linear,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.backbone = backbone
        self.lm_head = lm_head
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: LMBatch, *, need_weights: bool = False) -> ModelOutput:
        """Score the tokens of known texts with teacher forcing."""
        state = self.initial_state(batch.inputs)
        read = self._forward_backbone(
            batch.inputs, batch.lengths, state, need_weights=need_weights, need_state=False
        )
        return ModelOutput(
            self._compute_log_probs(read.outputs), read.weights, dict(read.auxiliary_losses)
        )

    def forward_scheduled_sampling(
        self, batch: LMBatch, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        """Score the tokens; each input token is the text's with probability
        `teacher_forcing_ratio`, else the model's own (Bengio et al. 2015).
        """
        state = self.initial_state(batch.inputs)
        log_probs, _ = run_scheduled_sampling(
            self, batch.inputs, state, teacher_forcing_ratio, token_choice
        )
        return ModelOutput(log_probs, None, {})

    def initial_state(self, tokens: Int[Tensor, "B T"]) -> LanguageModelState:
        """Make the state of having read nothing, for as many rows as these."""
        first = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return LanguageModelState(self.backbone.initial_state(self.embedding(tokens[:, :1])), first)

    def encode_prompt(self, tokens: Int[Tensor, "B T"]) -> LanguageModelState:
        """Read the beginnings of texts, to go on from them."""
        state = self.initial_state(tokens)
        lengths = torch.full_like(state.start_positions, tokens.size(1))
        if not tokens.size(1):
            return state
        read = self._forward_backbone(tokens, lengths, state, need_weights=False, need_state=True)
        return LanguageModelState(read.state, lengths)

    def step(
        self, tokens: Int[Tensor, "B"], state: LanguageModelState
    ) -> StepOutput[LanguageModelState]:
        """Read one token; say how likely each next one is."""
        each = torch.ones_like(tokens)
        read = self._forward_backbone(
            tokens.unsqueeze(1), each, state, need_weights=False, need_state=True
        )
        log_probs = self._compute_log_probs(read.outputs).squeeze(1)
        # There is no source to look at.
        zero_weights = log_probs.new_zeros(len(tokens), 0)
        return StepOutput(
            log_probs, LanguageModelState(read.state, state.start_positions + 1), zero_weights
        )

    def _forward_backbone(
        self,
        tokens: Int[Tensor, "B T"],
        lengths: Int[Tensor, "B"],
        state: LanguageModelState,
        *,
        need_weights: bool,
        need_state: bool,
    ) -> BackboneOutput:
        embedded = self.embedding(tokens, state.start_positions)
        return self.backbone(
            embedded,
            lengths,
            state.backbone_state,
            need_weights=need_weights,
            need_state=need_state,
        )

    def _compute_log_probs(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.lm_head(self.dropout(features)).log_softmax(dim=-1)


class BoundedContextState(NamedTuple):
    """What was read, and the tokens of it that a new beginning would begin with."""

    backbone_state: LanguageModelState
    recent_tokens: Int[Tensor, "B T"]


class BoundedContextModel:
    """A language model that looks back no further than it learned to.

    Once it has read `context` tokens, it begins anew with the latter half of them, as if the text
    began there: what it costs to go on does not grow with the text.
    """

    def __init__(self, model: LanguageModel, context_length: int) -> None:
        self.model = model
        self.context_size = context_length

    def encode_prompt(self, tokens: Int[Tensor, "B T"]) -> BoundedContextState:
        """Read the beginnings of texts, to go on from them."""
        recent = tokens if tokens.size(1) < self.context_size else self._second_half(tokens)
        return BoundedContextState(self.model.encode_prompt(recent), recent)

    def step(
        self, tokens: Int[Tensor, "B"], state: BoundedContextState
    ) -> StepOutput[BoundedContextState]:
        """Read one token; say how likely each next one is."""
        if state.recent_tokens.size(1) >= self.context_size:
            state = self.encode_prompt(state.recent_tokens)
        step = self.model.step(tokens, state.backbone_state)
        recent = torch.cat([state.recent_tokens, tokens.unsqueeze(1)], dim=1)
        return StepOutput(step.log_probs, BoundedContextState(step.state, recent), step.weights)

    def _second_half(self, tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B _"]:
        return tokens[:, tokens.size(1) - self.context_size // 2 :]


class LanguageModelConfig(BaseConfig):
    """A model of running text, from left to right."""

    type: Literal["language-model"] = "language-model"
    backbone: BackboneConfig = RecurrentBackboneConfig()
    """What reads the text."""
    embedding_size: PositiveInt = 256
    """Width of a token's vector."""
    positional_encoding: PositionalEncodingConfig | None = None
    """How tokens are told their places in what is read at once; if not given, they are not."""
    tie_embeddings: bool = False
    """Whether a token is said by the vector it is read by (Press & Wolf 2017)."""
    scale_embeddings: bool = False
    """Whether a token's vector is multiplied by the root of its width (Vaswani et al. 2017)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and before the emission."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> LanguageModel:
        """Make the model for a vocabulary, which is source and target alike."""
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        size, places = self.embedding_size, self.positional_encoding
        embedding = TokenEmbedding(
            target_vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=places.build(embedding_size=size) if places else None,
            scale_embeddings=self.scale_embeddings,
        )
        reader = self.backbone.build(input_size=embedding.embedding_size)
        projection = nn.Linear(reader.output_size, target_vocab_size)
        model = LanguageModel(embedding, reader, projection, dropout=self.dropout)
        self.init.initialize(model)
        if self.tie_embeddings:
            check_tied_sizes(reader.output_size, size)
            tie_weights(projection, embedding)
        return model


def check_tied_sizes(output_size: int, input_size: int) -> None:
    """Refuse to say tokens by vectors of another width than they are read by."""
    if output_size != input_size:
        raise ConfigError(
            "model.tie_embeddings",
            f"a token is said by a vector of {output_size} numbers and read by one of {input_size}",
            "make both widths the same, or set tied to false",
        )

"""Language models: p(x_t | x_<t) of running text.

Invariant: a text read at once gives the same probabilities as the text read step by step, from
wherever it was left.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.data.token_stream import LMBatch
from heedful.errors import check
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
from heedful.shapes import Float, Int, Lengths, StepTokens, TokenIds


class LanguageModelState(NamedTuple):
    """State after some tokens."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # of the next tokens


class LanguageModel(nn.Module):
    """Token embedding, causal backbone, and a softmax over the vocabulary."""

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
        output = self._run_backbone(
            batch.inputs, batch.lengths, state, need_weights=need_weights, need_state=False
        )
        log_probs = self._compute_log_probs(output.outputs)
        return ModelOutput(log_probs, output.weights, dict(output.auxiliary_losses))

    def forward_scheduled_sampling(
        self, batch: LMBatch, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        """Score the tokens with scheduled sampling (Bengio et al. 2015).

        Each input token is the text's with probability `teacher_forcing_ratio`, else the model's
        own.
        """
        state = self.initial_state(batch.inputs)
        log_probs, _ = run_scheduled_sampling(
            self, batch.inputs, state, teacher_forcing_ratio, token_choice
        )
        return ModelOutput(log_probs, None, {})

    def initial_state(self, tokens: TokenIds) -> LanguageModelState:
        """Return the state before the first token, for as many rows as the tokens have."""
        backbone_state = self.backbone.initial_state(self.embedding(tokens[:, :1]))
        start_positions = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return LanguageModelState(backbone_state, start_positions)

    def encode_prompt(self, tokens: TokenIds) -> LanguageModelState:
        """Return the state after a prompt."""
        state = self.initial_state(tokens)
        if not tokens.size(1):
            return state
        lengths = torch.full_like(state.start_positions, tokens.size(1))
        output = self._run_backbone(tokens, lengths, state, need_weights=False, need_state=True)
        return LanguageModelState(output.state, lengths)

    def step(self, tokens: StepTokens, state: LanguageModelState) -> StepOutput[LanguageModelState]:
        """Process one token per row and predict the next; there is no source to attend to."""
        output = self._run_backbone(
            tokens.unsqueeze(1), torch.ones_like(tokens), state, need_weights=False, need_state=True
        )
        log_probs = self._compute_log_probs(output.outputs).squeeze(1)
        next_state = LanguageModelState(output.state, state.start_positions + 1)
        return StepOutput(log_probs, next_state, log_probs.new_zeros(len(tokens), 0))

    def _run_backbone(
        self,
        tokens: TokenIds,
        lengths: Lengths,
        state: LanguageModelState,
        *,
        need_weights: bool,
        need_state: bool,
    ) -> BackboneOutput:
        return self.backbone(
            self.embedding(tokens, state.start_positions),
            lengths,
            state.backbone_state,
            need_weights=need_weights,
            need_state=need_state,
        )

    def _compute_log_probs(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.lm_head(self.dropout(features)).log_softmax(dim=-1)


class BoundedContextState(NamedTuple):
    """State of a language model, and the tokens that it has read since it was last restarted."""

    model_state: LanguageModelState
    recent_tokens: TokenIds


class BoundedContextModel:
    """A language model that sees no more tokens than it was trained with.

    After `context_length` tokens it restarts from the latter half of them, as if the text began
    there, so that the cost of a step does not grow with the text.
    """

    def __init__(self, model: LanguageModel, context_length: int) -> None:
        self.model = model
        self.context_length = context_length

    def encode_prompt(self, tokens: TokenIds) -> BoundedContextState:
        """Return the state after a prompt."""
        if tokens.size(1) >= self.context_length:
            tokens = tokens[:, tokens.size(1) - self.context_length // 2 :]
        return BoundedContextState(self.model.encode_prompt(tokens), tokens)

    def step(
        self, tokens: StepTokens, state: BoundedContextState
    ) -> StepOutput[BoundedContextState]:
        """Process one token per row and predict the next."""
        if state.recent_tokens.size(1) >= self.context_length:
            state = self.encode_prompt(state.recent_tokens)
        step = self.model.step(tokens, state.model_state)
        recent_tokens = torch.cat([state.recent_tokens, tokens.unsqueeze(1)], dim=1)
        next_state = BoundedContextState(step.state, recent_tokens)
        return StepOutput(step.log_probs, next_state, step.weights)


class LanguageModelConfig(BaseConfig):
    """A causal language model of running text."""

    type: Literal["language-model"] = "language-model"
    backbone: BackboneConfig = RecurrentBackboneConfig()
    """Recurrent or Transformer layers."""
    embedding_size: PositiveInt = 256
    """Size of the token embeddings."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding of the tokens; null for none."""
    tie_embeddings: bool = False
    """Use the embeddings as output weights, too (Press and Wolf 2017)."""
    scale_embeddings: bool = False
    """Multiply embeddings by the square root of their size (Vaswani et al. 2017)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of embeddings and of the input of the output layer."""
    init: InitConfig = DefaultInitConfig()
    """Initialization of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> LanguageModel:
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        size, encoding = self.embedding_size, self.positional_encoding
        embedding = TokenEmbedding(
            target_vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=encoding.build(embedding_size=size) if encoding else None,
            scale_embeddings=self.scale_embeddings,
        )
        backbone = self.backbone.build(input_size=embedding.embedding_size)
        lm_head = nn.Linear(backbone.output_size, target_vocab_size)
        model = LanguageModel(embedding, backbone, lm_head, dropout=self.dropout)
        self.init.initialize(model)
        if self.tie_embeddings:
            check_tied_sizes(backbone.output_size, size)
            tie_weights(lm_head, embedding)
        return model


def check_tied_sizes(output_size: int, embedding_size: int) -> None:
    """Raise ConfigError if embeddings cannot serve as output weights."""
    check(
        output_size == embedding_size,
        "model.tie_embeddings",
        f"output weights have size {output_size}, but embeddings have size {embedding_size}",
        "make both sizes equal, or set tie_embeddings to false",
    )

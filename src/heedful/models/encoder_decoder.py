"""Transduction: one sequence in, another out; translation above all."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from heedful.attention import padding_mask
from heedful.attention.auxiliary_losses import sum_losses
from heedful.config import BaseConfig
from heedful.data.batching import Batch, SourceBatch
from heedful.layers.embeddings import share_embeddings, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import (
    Decoder,
    DecoderOutput,
    Encoder,
    EncoderStateSizes,
    ModelOutput,
    Seq2SeqModel,
    auxiliary_losses_of,
)
from heedful.models.config import DecoderConfig, EncoderConfig
from heedful.models.recurrent.decoder import RecurrentDecoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.scheduled_sampling import TokenChoice
from heedful.search import StepOutput
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import PAD


class EncoderDecoderModel(Seq2SeqModel):
    """An encoder that reads a source and a decoder that writes a target about it."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        encoder.returns_cell_states = decoder.needs_cell_states

    def forward(
        self,
        batch: Batch,
        teacher_forcing_ratio: float = 1.0,
        token_choice: TokenChoice = "sample",
        *,
        need_weights: bool = True,
    ) -> ModelOutput:
        """Say how likely each token of known targets is."""
        encoder_output = self.encoder(*batch.sources)
        decoded = self.decoder(
            batch.decoder_inputs,
            encoder_output,
            teacher_forcing_ratio,
            token_choice,
            need_weights=need_weights,
        )
        auxiliary_losses = sum_losses(
            encoder_output.auxiliary_losses,
            decoded.auxiliary_losses,
            _attention_losses(decoded, batch),
        )
        return ModelOutput(decoded.log_probs, decoded.weights, auxiliary_losses)

    def initial_state(self, sources: SourceBatch) -> Any:
        """Read sources, to write about them step by step."""
        return self.decoder.initial_state(self.encoder(*sources))

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        """Read one token; say how likely each next one is."""
        return self.decoder.step(tokens, state)


def _attention_losses(decoded: DecoderOutput, batch: Batch) -> dict[str, Float[Tensor, ""]]:
    """Say, by name, what is added to the loss for where the decoder looked."""
    if not decoded.attention_records:
        return {}
    target_log_probs = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(
        -1
    )  # (B, T)
    visible = padding_mask(batch.sources.lengths, batch.sources.tokens.size(1)).squeeze(1)  # (B, S)
    return auxiliary_losses_of(
        decoded.attention_records, target_log_probs, batch.targets != PAD, visible
    )


class EncoderDecoderConfig(BaseConfig):
    """An encoder and a decoder."""

    type: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: EncoderConfig = RecurrentEncoderConfig()
    """What reads the source."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """What writes the target."""
    embeddings: Literal["separate", "tied", "shared"] = "separate"
    """Whether words are said by the vectors they are read by (tied), on both sides (shared)."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderModel:
        """Make the model for two vocabularies."""
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        decoder = self.decoder.build(
            vocab_size=target_vocab_size,
            memory_size=encoder.output_size,
            encoder_sizes=EncoderStateSizes(encoder.final_state_sizes, encoder.backward_size),
        )
        model = EncoderDecoderModel(encoder, decoder)
        self.init.initialize(model)
        self._tie_embeddings(encoder, decoder)
        return model

    def _tie_embeddings(self, encoder: Encoder, decoder: Decoder) -> None:
        if self.embeddings != "separate":
            tie_weights(decoder.output_head.projection, decoder.embedding)
        if self.embeddings == "shared":
            share_embeddings(encoder.embedding, decoder.embedding)

"""Encoder-decoder models: one sequence in, another out."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import override

from heedful.attention.auxiliary_losses import sum_losses
from heedful.attention.memory import padding_mask
from heedful.config import BaseConfig
from heedful.data.batching import Batch, SourceBatch
from heedful.layers.embeddings import share_embeddings, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import (
    Decoder,
    DecoderOutput,
    Encoder,
    EncoderOutput,
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
from heedful.shapes import StepTokens
from heedful.tokenization.vocabulary import PAD


class EncoderDecoderModel(Seq2SeqModel):
    """An encoder for the source and a decoder for the target."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        encoder.returns_cell_states = decoder.needs_cell_states

    @override
    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        encoded = self.encoder(*batch.sources)
        decoded = self.decoder(batch.decoder_inputs, encoded, need_weights=need_weights)
        return _model_output(encoded, decoded, batch)

    @override
    def forward_scheduled_sampling(
        self, batch: Batch, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        encoded = self.encoder(*batch.sources)
        decoded = self.decoder.forward_scheduled_sampling(
            batch.decoder_inputs, encoded, teacher_forcing_ratio, token_choice
        )
        return _model_output(encoded, decoded, batch)

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return self.decoder.initial_state(self.encoder(*sources))

    @override
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        return self.decoder.step(tokens, state)


def _model_output(encoded: EncoderOutput, decoded: DecoderOutput, batch: Batch) -> ModelOutput:
    losses = [encoded.auxiliary_losses, decoded.auxiliary_losses]
    if decoded.attention_records:
        target_log_probs = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
        source_mask = padding_mask(encoded.lengths, encoded.states.size(1)).squeeze(1)  # (B, S)
        losses.append(
            auxiliary_losses_of(
                decoded.attention_records, target_log_probs, batch.targets != PAD, source_mask
            )
        )
    return ModelOutput(decoded.log_probs, decoded.weights, sum_losses(*losses))


class EncoderDecoderConfig(BaseConfig):
    """An encoder and a decoder."""

    type: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: EncoderConfig = RecurrentEncoderConfig()
    """The encoder of the source."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """The decoder of the target."""
    embeddings: Literal["separate", "tied", "shared"] = "separate"
    """Tie the output head to the target embeddings (tied), and these to the source's (shared)."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderModel:
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        decoder = self.decoder.build(
            vocab_size=target_vocab_size,
            memory_size=encoder.output_size,
            encoder_sizes=EncoderStateSizes(encoder.final_state_sizes, encoder.backward_size),
        )
        model = EncoderDecoderModel(encoder, decoder)
        self.init.initialize(model)
        if self.embeddings != "separate":
            tie_weights(decoder.output_head.projection, decoder.embedding)
        if self.embeddings == "shared":
            share_embeddings(encoder.embedding, decoder.embedding)
        return model

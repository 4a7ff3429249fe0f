"""Encoder-decoder models: one sequence in, another out.

A new architecture is one module, and one line in the unions of encoder and decoder configs here.
"""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentLossInputs
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import check
from heedful.layers.embeddings import share_embeddings, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models import base, bytenet, convolutional, transformer
from heedful.models.base import ModelOutput, Seq2SeqModel
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.scheduled_sampling import InputSampler
from heedful.models.text_encoders import BagOfWordsEncoderConfig
from heedful.pytree import sum_losses
from heedful.search import StepOutput
from heedful.shapes import Losses, StepTokens
from heedful.tokenization.vocabulary import PAD, UNK


class EncoderDecoderModel(Seq2SeqModel):
    """An encoder for the source and a decoder for the target.

    With `source_eos` false the EOS at the end of a source is masked as padding is, unless the
    source is empty. `encoder_loss` computes auxiliary losses from the encoder's output and the
    target tokens.
    """

    def __init__(
        self,
        encoder: base.Encoder,
        decoder: base.Decoder,
        *,
        source_eos: bool = True,
        encoder_loss: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.source_eos = source_eos
        self.encoder_loss = encoder_loss
        encoder.returns_cell_states = decoder.needs_cell_states
        encoder.returns_layer_inputs = decoder.attends_by_layer

    @override
    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        encoded = self._encode(batch.sources)
        decoded = self.decoder(batch.decoder_inputs, encoded, need_weights=need_weights)
        return _model_output(self._encoder_losses(encoded, batch), encoded, decoded, batch)

    @override
    def forward_scheduled_sampling(self, batch: Batch, sampler: InputSampler) -> ModelOutput:
        encoded = self._encode(batch.sources)
        decoder_inputs = batch.decoder_inputs
        decoded = self.decoder.forward_scheduled_sampling(decoder_inputs, encoded, sampler)
        return _model_output(self._encoder_losses(encoded, batch), encoded, decoded, batch)

    @override
    def initial_state(self, sources: SourceBatch) -> Any:
        return self.decoder.initial_state(self._encode(sources))

    @override
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        return self.decoder.step(tokens, state)

    def _encoder_losses(self, encoded: base.EncoderOutput, batch: Batch) -> Losses:
        if self.encoder_loss is None:
            return encoded.auxiliary_losses
        return sum_losses(encoded.auxiliary_losses, self.encoder_loss(encoded, batch.targets))

    def _encode(self, sources: SourceBatch) -> base.EncoderOutput:
        if not self.source_eos:
            sources = sources._replace(lengths=(sources.lengths - 1).clamp(min=1))
        copies_source, known = self.decoder.output_head.copies_source, sources.tokens
        if copies_source:
            is_unknown = known >= self.encoder.embedding.embedding.num_embeddings
            known = known.masked_fill(is_unknown, UNK)
        encoded: base.EncoderOutput = self.encoder(known, sources.lengths)
        if self.decoder.attends_by_layer:
            encoded = encoded._replace(layer_states=self.encoder.layer_outputs(encoded))
        return encoded._replace(tokens=sources.tokens) if copies_source else encoded


def _model_output(
    encoder_losses: Losses, encoded: base.EncoderOutput, decoded: base.DecoderOutput, batch: Batch
) -> ModelOutput:
    """Add up the auxiliary losses of encoder, decoder and all attention modules."""
    losses = [encoder_losses, decoded.auxiliary_losses]
    probabilities = [
        alignment.probabilities.unsqueeze(1).flatten(1, -3).mean(dim=1)  # over the heads
        for _, alignment in decoded.attention_records
        if alignment.probabilities is not None
    ]
    with_losses = [record for record in decoded.attention_records if record[0].has_auxiliary_losses]
    if with_losses:  # else the log-probabilities of other tokens are not needed
        log_likelihoods = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
        source_mask = encoded.mask.squeeze(1)  # (B, S)
        attention_losses = [
            attention.compute_auxiliary_losses(
                AlignmentLossInputs(alignment, log_likelihoods, batch.targets != PAD, source_mask)
            )
            for attention, alignment in with_losses
        ]
        losses.append(sum_losses(*attention_losses))
    mean = torch.stack(probabilities).mean(dim=0) if probabilities else None
    return ModelOutput(decoded.log_probs, decoded.weights, sum_losses(*losses), mean)


EncoderConfig = Annotated[
    RecurrentEncoderConfig
    | transformer.TransformerEncoderConfig
    | convolutional.ConvolutionalEncoderConfig
    | bytenet.DilatedEncoderConfig
    | BagOfWordsEncoderConfig
    | PretrainedEncoderConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]

DecoderConfig = Annotated[
    RecurrentDecoderConfig
    | transformer.TransformerDecoderConfig
    | convolutional.ConvolutionalDecoderConfig
    | bytenet.DilatedDecoderConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]


class EncoderDecoderConfig(BaseConfig):
    """An encoder and a decoder."""

    type: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: EncoderConfig = RecurrentEncoderConfig()
    """The encoder of the source."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """The decoder of the target."""
    embeddings: Literal["separate", "tied", "shared", "shared-inputs"] = "separate"
    """Tie the output head to the target embeddings (tied), and these to the source's (shared); or
    share the embeddings of both without the output head (shared-inputs; See et al. 2017)."""
    source_eos: bool = True
    """Encode the EOS at the end of a source; false leaves it out, as OpenNMT-py does."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    @property
    def copies_source(self) -> bool:
        """Whether outputs may be tokens of the source."""
        return self._output_head in ("pointer-generator", "copy", "copynet")

    @property
    def points_to_source(self) -> bool:
        """Whether outputs are positions of the source."""
        return self._output_head == "pointer"

    @property
    def _output_head(self) -> str:
        return "" if self.decoder.type == "dilated" else self.decoder.output_head.type

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderModel:
        has_table = not isinstance(self.encoder, PretrainedEncoderConfig)
        message = "a pretrained encoder keeps its own embeddings"
        hint = "set model.embeddings to 'tied' or 'separate'"
        is_shared, is_tied = "shared" in self.embeddings, self.embeddings in ("tied", "shared")
        check(has_table or not is_shared, "model.embeddings", message, hint)
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        if self.points_to_source:
            target_vocab_size = source_vocab_size  # it reads the tokens that it points to
        elif self.copies_source:
            sizes = f"{source_vocab_size} tokens, but the target vocabulary has {target_vocab_size}"
            message = f"copies tokens, but the source vocabulary has {sizes}"
            hint = "set tokenizers.type to 'shared'"
            is_shared = source_vocab_size == target_vocab_size
            check(is_shared, "decoder.output_head.type", message, hint)
        decoder = self.decoder.build(
            vocab_size=target_vocab_size,
            memory_size=encoder.output_size,
            encoder_sizes=encoder.state_sizes,
        )
        decoder.check_encoder(encoder)
        model = EncoderDecoderModel(encoder, decoder, source_eos=self.source_eos)
        self.init.initialize(model)
        message = "an output head that points has no weights to tie"
        is_valid = not (is_tied and self.points_to_source)
        check(is_valid, "embeddings", message, "set it to 'separate'")
        if is_tied:
            tie_weights(decoder.output_head.projection, decoder.embedding)
        if is_shared:
            share_embeddings(encoder.embedding, decoder.embedding)
        return model

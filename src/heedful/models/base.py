"""Interfaces of encoders, decoders and whole models.

Invariants: padding has no influence; decoding a known target at once equals decoding it step by
step; search, sampling and scoring give the same score to the same output, in any batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.alignments import AlignmentOutput
from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.masks import padding_mask
from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.layers.pooling import MeanPooling
from heedful.models.output_heads import CopySource, OutputHead
from heedful.models.scheduled_sampling import InputSampler, run_scheduled_sampling
from heedful.pytree import select_rows
from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    CoveragePenalty,
    Hypothesis,
    LengthPenalty,
    LogitsProcessor,
    StepOutput,
    Trellis,
    beam_search,
    score_targets,
)
from heedful.search.hypotheses import HypothesisRecorder
from heedful.search.sampling import SamplingOptions, random_generators, sample_steps
from heedful.shapes import (
    Bool,
    Float,
    Hidden,
    Int,
    Lengths,
    LogProbs,
    Losses,
    Scalar,
    SourceStates,
    SourceTokens,
    SourceWeights,
    StepTokens,
    Summary,
    TokenIds,
)
from heedful.tokenization.vocabulary import BOS, EOS


class EncoderStateSizes(NamedTuple):
    """Sizes of the final states of an encoder; empty if it has none."""

    final_state_sizes: tuple[int, ...] = ()  # by layer, bottom first
    backward_size: int = 0  # part of the top one that a backward cell computed, at its end
    has_cell_states: bool = False  # at every position
    final_cell_state_sizes: tuple[int, ...] = ()  # by layer; zero without LSTM cells


class EncoderOutput(NamedTuple):
    """An encoded source."""

    states: SourceStates  # zero in padding
    lengths: Lengths
    pooled: Summary | None = None  # None: the mean of the states
    final_states: tuple[Hidden, ...] = ()  # hidden state of each layer after its last input
    cell_states: SourceStates | None = None  # LSTM cell states, if kept
    auxiliary_losses: Losses = NO_AUXILIARY_LOSSES
    unfolded: Float[Tensor, "B U V"] | None = None  # ByteNet: one state per target position
    keys: SourceStates | None = None  # None: the states
    final_cell_states: tuple[Hidden, ...] = ()  # see `Encoder.returns_cell_states`
    tokens: SourceTokens | None = None  # the source itself, if the output head copies from it
    layer_inputs: tuple[Tensor, ...] = ()  # see `Encoder.returns_layer_inputs`
    layer_states: tuple[SourceStates, ...] = ()  # of each layer, if the decoder attends to them

    @property
    def mask(self) -> Bool[Tensor, "B 1 S"]:
        """True at real positions."""
        return padding_mask(self.lengths, self.states.size(1))

    @property
    def summary(self) -> Summary:
        """The whole source in one vector, pooled only for decoders that use it."""
        if self.pooled is not None:
            return self.pooled
        return MeanPooling()(self.states, self.mask.squeeze(1))


class Encoder(nn.Module, ABC):
    """Interface of encoders."""

    embedding: TokenEmbedding
    output_size: int
    """Size of the states."""
    state_sizes = EncoderStateSizes()
    """Sizes of the final states."""
    layer_input_sizes: tuple[int, ...] = ()
    """Size of the input of each layer, bottom first; empty if there are no such layers."""
    returns_layer_inputs: bool = False
    """Whether the output has the input of each layer, if there are `layer_input_sizes`."""
    returns_cell_states: bool = False
    """Whether the output has the final cell states of LSTM layers."""
    grid: tuple[int, int] | None = None
    """Rows and columns of an image, whose cells are the source positions, row by row."""

    @abstractmethod
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        """Encode a batch of sources."""

    def layer_outputs(self, encoder_output: EncoderOutput) -> tuple[SourceStates, ...]:
        """Return the output of each layer, given their inputs."""
        return (*encoder_output.layer_inputs[1:], encoder_output.states)


class DecoderOutput(NamedTuple):
    """Output for a known target."""

    log_probs: LogProbs
    weights: SourceWeights | None  # zeros without attention
    # Alignments of the whole target, at least of modules with auxiliary losses.
    attention_records: Sequence[tuple[Attention, AlignmentOutput]] = ()
    auxiliary_losses: Losses = NO_AUXILIARY_LOSSES  # of modules other than attention


class Decoder(nn.Module, ABC):
    """Interface of decoders."""

    embedding: TokenEmbedding
    output_head: OutputHead
    needs_cell_states: bool = False
    """Whether the initial state is made from the encoder's final cell states."""
    averages_layers: bool = False
    """Whether the weights are the mean over all layers, not of the top layer."""
    attends_by_layer: bool = False
    """Whether layer l attends to layer l of the encoder, instead of all to the top one."""
    has_alignment_heads: bool = False
    """Whether the weights come from chosen heads, not from a whole layer."""

    @abstractmethod
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        """Return the state before the first token."""

    @abstractmethod
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        """Process one token per row and predict the next."""

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise ConfigError for an encoder without the states that this decoder attends to."""
        assert not self.attends_by_layer, type(self)

    def build_copy_source(self, encoder_output: EncoderOutput) -> CopySource | None:
        """Prepare the source for an output head that copies from it."""
        tokens, mask = encoder_output.tokens, encoder_output.mask.squeeze(1)
        return self.output_head.build_source(tokens, mask, encoder_output.states)

    def embed(
        self,
        tokens: Int[Tensor, "B *T"],
        source: CopySource | None,
        start_positions: Lengths | int = 0,
    ) -> Float[Tensor, "B *T E"]:
        """Embed input tokens, which may be copied ones."""
        return self.embedding(self.output_head.input_tokens(tokens, source), start_positions)

    @abstractmethod
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Decode a known target with teacher forcing; equal to one `step` per token."""

    def forward_scheduled_sampling(
        self, tokens: TokenIds, encoder_output: EncoderOutput, sampler: InputSampler
    ) -> DecoderOutput:
        """Decode step by step; each input token is the target's or the decoder's own.

        Records no alignments, so a decoder with auxiliary losses on its attention overrides this.
        """
        attentions = [module for module in self.modules() if isinstance(module, Attention)]
        has_losses = any(attention.has_auxiliary_losses for attention in attentions)
        message = "the attention of this decoder has auxiliary losses, which need teacher forcing"
        hint = "set its type to 'teacher-forcing', or use an alignment such as 'softmax'"
        check(not has_losses, "training.scheduled_sampling", message, hint)
        self.check_no_expert_losses()
        state = self.initial_state(encoder_output)
        return DecoderOutput(*run_scheduled_sampling(self, tokens, state, sampler))

    def check_no_expert_losses(self) -> None:
        """Raise ConfigError for experts in training, which balance the tokens of all steps."""
        has_experts = any(isinstance(module, MixtureOfExperts) for module in self.modules())
        message = "the experts of this decoder balance whole sequences, which need teacher forcing"
        hint = "set its type to 'teacher-forcing', or remove the experts of the decoder"
        is_valid = not (self.training and has_experts)
        check(is_valid, "training.scheduled_sampling", message, hint)


class DecodableModel(ABC):
    """Interface of models, and of ensembles of them, that decode targets for sources."""

    @abstractmethod
    def initial_state(self, sources: SourceBatch) -> Any:
        """Encode sources and return the state before the first target token."""

    @abstractmethod
    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        """Process one token per row and predict the next."""

    @torch.inference_mode()
    def search(
        self,
        sources: SourceBatch,
        *,
        beam_size: int,
        max_lengths: Lengths,
        length_penalty: LengthPenalty,
        options: BeamSearchOptions | None = None,
        trellis: Trellis | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a beam search for each source, best first; beam 1 is greedy."""
        options = options or BeamSearchOptions()
        if beam_size == 1:
            options = options._replace(stopping=FIRST_FINISHED)
        return beam_search(
            self,
            self.initial_state(sources),
            bos=BOS,
            eos=EOS,
            beam_size=beam_size,
            max_lengths=max_lengths,
            length_penalty=length_penalty,
            options=options,
            source_lengths=sources.lengths,
            trellis=trellis,
        )

    @torch.inference_mode()
    def score(
        self,
        sources: SourceBatch,
        targets: Sequence[Sequence[int]],
        *,
        length_penalty: LengthPenalty | None = None,
        coverage_penalty: CoveragePenalty | None = None,
    ) -> list[Hypothesis]:
        """Return the hypothesis that a search would return for each given target."""
        return score_targets(
            self,
            self.initial_state(sources),
            targets,
            bos=BOS,
            eos=EOS,
            device=sources.tokens.device,
            length_penalty=length_penalty,
            coverage_penalty=coverage_penalty,
            source_lengths=sources.lengths,
        )

    @torch.inference_mode()
    def sample(
        self,
        sources: SourceBatch,
        num_samples: int,
        *,
        max_lengths: Lengths,
        options: SamplingOptions,
        seed: int,
        seed_keys: Sequence[int] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ) -> list[list[Hypothesis]]:
        """Sample `num_samples` targets for each source.

        The samples of a source depend on the seed and on its key, in any batch; without
        keys, on its row. More samples begin with the same ones.
        """
        *_, recorder = self.sample_steps(
            sources,
            num_samples,
            max_lengths=max_lengths,
            options=options,
            seed=seed,
            seed_keys=seed_keys,
            processors=processors,
        )
        samples = recorder.hypotheses()
        return [samples[i : i + num_samples] for i in range(0, len(samples), num_samples)]

    def sample_steps(
        self,
        sources: SourceBatch,
        num_samples: int,
        *,
        max_lengths: Lengths,
        options: SamplingOptions,
        seed: int,
        seed_keys: Sequence[int] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ) -> Iterator[HypothesisRecorder]:
        """Yield what `sample` has after each step."""
        seed_keys = range(len(max_lengths)) if seed_keys is None else seed_keys
        sentence_ids = torch.arange(len(max_lengths), device=max_lengths.device)
        sentence_ids = sentence_ids.repeat_interleave(num_samples)
        random_keys = [f"{key} {index}" for key in seed_keys for index in range(num_samples)]
        return sample_steps(
            self,
            select_rows(self.initial_state(sources), sentence_ids),
            bos=BOS,
            eos=EOS,
            sentence_ids=sentence_ids,
            max_lengths=max_lengths,
            options=options,
            generators=random_generators(seed, random_keys),
            processors=processors,
        )


class ModelOutput(NamedTuple):
    """Output of a model for known targets."""

    log_probs: LogProbs
    weights: SourceWeights | None
    auxiliary_losses: dict[str, Scalar]  # sums over the real targets
    probabilities: SourceWeights | None = None  # that hard attention chose from

    @property
    def soft_weights(self) -> SourceWeights | None:
        """Attention weights with a gradient, also where attention is hard."""
        return self.weights if self.probabilities is None else self.probabilities


class Seq2SeqModel(nn.Module, DecodableModel):
    """Interface of models of targets given sources."""

    @abstractmethod
    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        """Score the target tokens with teacher forcing; `weights` may be None if not needed."""

    @abstractmethod
    def forward_scheduled_sampling(self, batch: Batch, sampler: InputSampler) -> ModelOutput:
        """Score the target tokens with scheduled sampling (Bengio et al. 2015)."""

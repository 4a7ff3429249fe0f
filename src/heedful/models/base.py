""""""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES, sum_losses
from heedful.attention.masks import padding_mask
from heedful.attention.outputs import AlignmentLossInputs, AlignmentOutput
from heedful.data.batching import Batch, SourceBatch
from heedful.errors import ConfigError
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.pooling import MeanPooling
from heedful.models.output_heads import OutputHead
from heedful.models.scheduled_sampling import TokenChoice, run_scheduled_sampling
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
from heedful.search.protocol import StepOutput
from heedful.search.sampling import SamplingOptions, random_generators, sample_hypotheses
from heedful.shapes import Bool, Float, Int
from heedful.tokenization.vocabulary import BOS, EOS


class EncoderStateSizes(NamedTuple):
    """How wide what an encoder shows at its ends is; the empty one tells of none."""

    final_state_sizes: tuple[
        int, ...
    ] = ()  # of each layer, bottom first: the widths of Encoded.ends
    backward_size: int = 0  # how many of the top layer's values, the last ones, came backwards


# Encoded: what an encoder hands to a decoder.


class EncoderOutput(NamedTuple):
    """A source that has been read."""

    states: Float[Tensor, "B S V"]  # one for every position; zero past the end
    lengths: Int[Tensor, "B"]
    pooled: Float[Tensor, "B V"] | None = None  # None: the mean of the states
    final_states: tuple[Float[Tensor, "B D"], ...] = ()  # what is seen of each layer at its own end
    cell_states: Float[Tensor, "B S V"] | None = None  # the memory cells beside the states, if kept
    auxiliary_losses: Mapping[str, Float[Tensor, ""]] = (
        NO_AUXILIARY_LOSSES  # by name, to be added to the loss
    )
    unfolded: Float[Tensor, "B U V"] | None = None  # the source as long as a target may grow
    keys: Float[Tensor, "B S V"] | None = None  # the keys, where they are not the states
    final_cell_states: tuple[
        Float[Tensor, "B D"], ...
    ] = ()  # what memory cells hold there, if asked

    @property
    def summary(self) -> Float[Tensor, "B V"]:
        """The whole source in one vector, pooled only for decoders that use it."""
        if self.pooled is not None:
            return self.pooled
        mask = padding_mask(self.lengths, self.states.size(1)).squeeze(1)
        return MeanPooling()(self.states, mask)


# Decoders: what writes a target, token by token, about a source that has been read.
#
# Law: a known target read at once is the same target read step by step.


class AttentionRecord(NamedTuple):
    """Who looked at the source, and all that is known of where."""

    attention: Attention
    alignment: AlignmentOutput


class DecoderOutput(NamedTuple):
    """A known target as the decoder sees it."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"] | None  # zeros where nothing looks; None if not needed
    attention_records: Sequence[
        AttentionRecord
    ] = ()  # at least those that something is added to the loss for
    auxiliary_losses: Mapping[str, Float[Tensor, ""]] = (
        NO_AUXILIARY_LOSSES  # what else is added, by name
    )


class Decoder(nn.Module, ABC):
    """What writes a target."""

    embedding: TokenEmbedding
    output_head: OutputHead

    @property
    def needs_cell_states(self) -> bool:
        """Whether it begins with what the encoder's memory cells hold at the ends."""
        return False

    @abstractmethod
    def initial_state(self, encoder_output: EncoderOutput) -> Any:
        """Make ready to write about a source."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        """Read one token; say how likely each next one is."""

    @abstractmethod
    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Decode a known target with teacher forcing; equal to one `step` per token."""

    def forward_scheduled_sampling(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        teacher_forcing_ratio: float,
        token_choice: TokenChoice,
    ) -> DecoderOutput:
        """Decode step by step; each input token is the target's or the decoder's own.

        Records no alignments, so a decoder with auxiliary losses on its attention overrides this.
        """
        self._check_no_auxiliary_losses()
        return DecoderOutput(
            *run_scheduled_sampling(
                self,
                tokens,
                self.initial_state(encoder_output),
                teacher_forcing_ratio,
                token_choice,
            )
        )

    def _check_no_auxiliary_losses(self) -> None:
        """Complain where something is added to the loss for where attention goes."""
        penalised = [each for each in self.modules() if isinstance(each, Attention)]
        if any(each.has_auxiliary_losses for each in penalised):
            raise ConfigError(
                "training.scheduled_sampling",
                "this decoder's attention learns by a penalty, which is lost where a decoder reads "
                "tokens of its own",
                "set training.scheduled_sampling.type to 'teacher-forcing', or choose an alignment such as "
                "'softmax' and no penalties",
            )


def auxiliary_losses_of(
    attention_records: Sequence[AttentionRecord],
    log_likelihoods: Float[Tensor, "B T"],
    target_mask: Bool[Tensor, "B T"],
    source_mask: Bool[Tensor, "B S"],
) -> dict[str, Float[Tensor, ""]]:
    """Say, by name, what is added to the loss for where a decoder looked."""
    found = [
        attention.compute_auxiliary_losses(
            AlignmentLossInputs(aligned, log_likelihoods, target_mask, source_mask)
        )
        for attention, aligned in attention_records
    ]
    return sum_losses(*found)


# Encoders: what reads a source, so that a decoder can write about it.
#
# Law: padding has no influence, and a state stands where its word stands.


class Encoder(nn.Module, ABC):
    """What reads a source."""

    embedding: TokenEmbedding
    output_size: int
    """Width of a state."""
    returns_cell_states: bool = False
    """Whether what memory cells hold at the ends is told, where layers have them."""

    @property
    def final_state_sizes(self) -> tuple[int, ...]:
        """How wide what is seen of each layer at its end is; nothing where none has an end."""
        return ()

    @property
    def backward_size(self) -> int:
        """How many of the last values seen at the top layer's end a backward reading made."""
        return 0

    @abstractmethod
    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> EncoderOutput:
        """Read a batch of sources."""


# Decodables: what can be asked for outputs?
#
# Whatever reads sources and can then be asked step by step, a model or several of them together, can
# be searched, drawn from, and asked what it thinks of outputs that are given. Law: all three say the
# same of an output, whichever batch its source is in.


class DecodableModel(ABC):
    """Something that writes about sources."""

    @abstractmethod
    def initial_state(self, sources: SourceBatch) -> Any:
        """Read sources, to write about them step by step."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"], state: Any) -> StepOutput[Any]:
        """Read one token; say how likely each next one is."""

    @torch.inference_mode()
    def search(
        self,
        sources: SourceBatch,
        *,
        beam_size: int,
        max_lengths: Int[Tensor, "B"],
        length_penalty: LengthPenalty,
        options: BeamSearchOptions | None = None,
        trellis: Trellis | None = None,
    ) -> list[list[Hypothesis]]:
        """Find likely targets for each source, best first; with width 1 greedily."""
        options = options or BeamSearchOptions()
        return beam_search(
            self,
            self.initial_state(sources),
            bos=BOS,
            eos=EOS,
            beam_size=beam_size,
            max_lengths=max_lengths,
            length_penalty=length_penalty,
            options=options._replace(stopping=FIRST_FINISHED) if beam_size == 1 else options,
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
        """Say of given targets, one for each source, what a search would say of them."""
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
        max_lengths: Int[Tensor, "B"],
        options: SamplingOptions,
        seed: int,
        seed_keys: Sequence[int] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ) -> list[list[Hypothesis]]:
        """Draw so many targets for each source.

        What is drawn for a source depends on the seed and on its key, whichever batch it is in;
        without keys, on its place in this one. More of them begin with the same ones.
        """
        seed_keys = range(len(max_lengths)) if seed_keys is None else seed_keys
        rows = torch.arange(len(max_lengths), device=max_lengths.device).repeat_interleave(
            num_samples
        )
        samples = sample_hypotheses(
            self,
            select_rows(self.initial_state(sources), rows),
            bos=BOS,
            eos=EOS,
            sentence_ids=rows,
            max_lengths=max_lengths,
            options=options,
            generators=random_generators(
                seed, [f"{key} {number}" for key in seed_keys for number in range(num_samples)]
            ),
            processors=processors,
        )
        return [
            samples[first : first + num_samples] for first in range(0, len(samples), num_samples)
        ]


# Models: what can be trained on pairs and asked for targets.


class ModelOutput(NamedTuple):
    """Known targets as the model sees them, and what is wrong with how it came to that."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"] | None  # where it looked; None if not needed
    auxiliary_losses: dict[str, Float[Tensor, ""]]  # by name; sums over the real targets


class Seq2SeqModel(nn.Module, DecodableModel):
    """A model of targets, given sources."""

    @abstractmethod
    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        """Score the target tokens with teacher forcing; without `need_weights`, a fused kernel
        may run, and `weights` may be None.
        """

    @abstractmethod
    def forward_scheduled_sampling(
        self, batch: Batch, teacher_forcing_ratio: float, token_choice: TokenChoice
    ) -> ModelOutput:
        """Score the target tokens; each input token is the target's with probability
        `teacher_forcing_ratio`, else the model's own (Bengio et al. 2015).
        """

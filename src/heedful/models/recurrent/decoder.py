"""Agreement: which choices of a decoder make no sense together?

Each refusal says where, why, and what to choose instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.config import AttentionConfig
from heedful.attention.outputs import concat_alignments
from heedful.errors import ConfigError
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import (
    AttentionRecord,
    Decoder,
    DecoderOutput,
    EncoderOutput,
    EncoderStateSizes,
)
from heedful.models.output_heads import OutputHead, OutputHeadConfig, SoftmaxHeadConfig
from heedful.models.recurrent.bridges import (
    Bridge,
    BridgeConfig,
    BridgeSizes,
    TanhBridgeConfig,
    ZerosBridgeConfig,
)
from heedful.models.recurrent.deep_fusion import DeepFusionConfig
from heedful.models.recurrent.pre_output import StateOnlyPreOutputConfig
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    AttentionWiring,
    BottomLayerAttentionConfig,
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
    RecurrentDecoderConfigBase,
    StepThenAttendConfig,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.models.scheduled_sampling import TokenChoice, choose_input_token
from heedful.search.protocol import StepOutput
from heedful.shapes import Float, Int

__all__ = [
    "RecurrentDecoderConfig",
    "WiringConfig",
]


# Recurrent decoders: a target written token by token, looking at the source at each.


class PendingToken(NamedTuple):
    """A token that is yet to be chosen: what it is told from, and where it may come from."""

    pre_output_input: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]


class RecurrentDecoderState(NamedTuple):
    """All that is needed to go on writing: what is carried, and what can be looked at."""

    wiring: WiringState
    memory: Memory
    pending: PendingToken | None = None  # kept where its hindsight will be asked for


class RecurrentDecoder(Decoder):
    """A bridge from the encoder, a wiring round recurrent cells, and an emission."""

    def __init__(
        self, embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, output_head: OutputHead
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.output_head = output_head

    @property
    def needs_cell_states(self) -> bool:
        """Whether the bridge takes memory cells over, and the cells have room for them."""
        return self.bridge.copies_cell_states and self.wiring.cells.has_cell_states

    def initial_state(self, encoder_output: EncoderOutput) -> RecurrentDecoderState:
        """Make ready to write about a source."""
        # Pool once: bridge and wiring may both use the summary.
        encoder_output = encoder_output._replace(pooled=encoder_output.summary)
        memory = self.wiring.build_memory(encoder_output)
        first = self.wiring.cells.initial_state(
            self.bridge(encoder_output), self.bridge.initial_cell_states(encoder_output)
        )
        return RecurrentDecoderState(
            self.wiring.initial_state(first, memory, encoder_output), memory
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: RecurrentDecoderState
    ) -> StepOutput[RecurrentDecoderState]:
        """Read one token; say how likely each next one is."""
        step_output, after = self._step(tokens, self.embedding(tokens), state)
        return StepOutput(
            self._compute_log_probs(step_output, state.memory),
            after,
            step_output.weights.squeeze(1),
        )

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read a known target: the steps of decoding, what no step waits for made at once."""
        state, steps = self.initial_state(encoder_output), []
        columns = zip(tokens.unbind(dim=1), self.embedding(tokens).unbind(dim=1), strict=True)
        for column, embedded in columns:
            step_output, state = self._step(column, embedded, state)
            steps.append(step_output)
        weights, attention_records = self._collect_attention(steps)
        told = torch.stack([step_output.pre_output_input for step_output in steps], dim=1)
        features = self.wiring.compute_features(told)  # (B, T, D) or (B, T, S, D)
        return DecoderOutput(
            self.output_head(features, weights, state.memory), weights, attention_records
        )

    def forward_scheduled_sampling(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        teacher_forcing_ratio: float,
        token_choice: TokenChoice,
    ) -> DecoderOutput:
        """Read a target of which some tokens are the decoder's own, step by step."""
        state, steps, log_probs = (
            self.initial_state(encoder_output),
            list[WiringOutput](),
            list[Tensor](),
        )
        for known in tokens.unbind(dim=1):
            taken = choose_input_token(
                known, log_probs[-1] if log_probs else None, teacher_forcing_ratio, token_choice
            )
            step_output, state = self._step(taken, self.embedding(taken), state)
            steps.append(step_output)
            log_probs.append(self._compute_log_probs(step_output, state.memory))
        return DecoderOutput(torch.stack(log_probs, dim=1), *self._collect_attention(steps))

    def _collect_attention(
        self, steps: Sequence[WiringOutput]
    ) -> tuple[Float[Tensor, "B T S"], Sequence[AttentionRecord]]:
        """Put together where each step looked, and what is known of it."""
        weights = torch.cat([step_output.weights for step_output in steps], dim=1)
        if not isinstance(self.wiring, AttentionWiring):
            return weights, ()
        known = [
            step_output.alignment for step_output in steps if step_output.alignment is not None
        ]
        return weights, (AttentionRecord(self.wiring.attention, concat_alignments(known)),)

    def _compute_log_probs(self, step_output: WiringOutput, memory: Memory) -> Float[Tensor, "B N"]:
        features = self.wiring.compute_features(step_output.pre_output_input.unsqueeze(1))
        return self.output_head(features, step_output.weights, memory).squeeze(1)

    def _step(
        self, tokens: Int[Tensor, "B"], embedded: Float[Tensor, "B E"], state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        """Take in one token, and first what it tells of where it came from."""
        before = state.wiring
        if state.pending is not None:
            assert before.attention_state is not None
            features = self.wiring.compute_features(state.pending.pre_output_input.unsqueeze(1))
            weights = state.pending.weights
            posterior = self.output_head.alignment_posterior(features, weights, tokens.unsqueeze(1))
            before = before._replace(
                attention_state=before.attention_state._replace(last_weights=posterior.squeeze(1))
            )
        step_output = self.wiring(embedded, before, state.memory)
        needs_posterior = self.output_head.has_alignment_posterior and self.wiring.uses_history
        unsettled = (
            PendingToken(step_output.pre_output_input, step_output.weights)
            if needs_posterior
            else None
        )
        return step_output, RecurrentDecoderState(step_output.state, state.memory, unsettled)


WiringConfig = Annotated[
    AttendThenStepConfig
    | StepThenAttendConfig
    | BottomLayerAttentionConfig
    | DeepFusionConfig
    | ConstantContextWiringConfig
    | FinalStateWiringConfig,
    Field(discriminator="type"),
]


def check_compatible_choices(
    decoder_config: RecurrentDecoderConfigBase,
    bridge: BridgeConfig,
    wiring: WiringConfig,
    output_head: OutputHeadConfig,
    decoder: RecurrentDecoder,
) -> None:
    """Refuse choices that make no sense together, for a decoder that was built by them."""
    _check_source_is_used(bridge, wiring)
    if isinstance(decoder.wiring, AttentionWiring):
        _check_context_is_used(decoder_config, wiring)
        _check_context_shape(decoder_config, wiring, output_head, decoder)
    else:
        _check_no_attention_settings(decoder_config, wiring, output_head)


def _check_source_is_used(bridge: BridgeConfig, wiring: WiringConfig) -> None:
    """Refuse a decoder that learns nothing of the source."""
    if isinstance(wiring, FinalStateWiringConfig) and isinstance(bridge, ZerosBridgeConfig):
        raise ConfigError(
            "bridge.type",
            f"under {wiring.type!r} the first state is all that is known of the source, but "
            f"{bridge.type!r} leaves it empty",
            "choose another bridge, such as 'tanh', or another wiring",
        )


def _check_context_is_used(parts: RecurrentDecoderConfigBase, wiring: WiringConfig) -> None:
    """Refuse to ask where nobody hears the answer."""
    if isinstance(wiring, StepThenAttendConfig) and isinstance(
        parts.pre_output, StateOnlyPreOutputConfig
    ):
        raise ConfigError(
            "pre_output.type",
            f"under {wiring.type!r} the output alone hears the context, but {parts.pre_output.type!r} "
            "leaves it out",
            "choose 'tanh', 'maxout' or 'plain', or another wiring",
        )


def _check_no_attention_settings(
    parts: RecurrentDecoderConfigBase, wiring: WiringConfig, output_head: OutputHeadConfig
) -> None:
    """Refuse settings of attention, and what needs it, where nothing asks."""
    if parts.attention != AttentionConfig():
        raise ConfigError(
            "attention",
            f"under {wiring.type!r} nothing is asked, so these settings would have no effect",
            "leave the section out, or choose another wiring, such as 'attend-then-step'",
        )
    if not isinstance(output_head, SoftmaxHeadConfig):
        raise ConfigError(
            "output_head.type",
            f"the {output_head.type!r} emission goes by where was looked, but under {wiring.type!r} "
            "nothing is looked at",
            "choose 'vocabulary', or another wiring, such as 'step-then-attend'",
        )


def _check_context_shape(
    parts: RecurrentDecoderConfigBase,
    wiring: WiringConfig,
    output_head: OutputHeadConfig,
    decoder: RecurrentDecoder,
) -> None:
    """Refuse parts of which one keeps places apart and another wants them together."""
    assert isinstance(decoder.wiring, AttentionWiring)
    attention, needs_per_position = decoder.wiring.attention, decoder.output_head.is_per_position
    read, align = parts.attention.readout.type, parts.attention.alignment.type
    if needs_per_position and not attention.readout.is_per_position:
        raise ConfigError(
            "attention.readout.type",
            f"the {output_head.type!r} emission lets every place say a token, but the {read!r} "
            "readout gives it one context for all",
            "choose the readout 'per-position', or the emission 'vocabulary'",
        )
    if not attention.readout.is_per_position:
        return
    if not needs_per_position:
        raise ConfigError(
            "output_head.type",
            f"the {read!r} readout keeps every place apart, but the {output_head.type!r} emission "
            "wants one context for all",
            "choose the emission 'marginal', or the readout 'expectation'",
        )
    _check_no_input_feeding(wiring)
    if attention.alignment_function.is_unnormalized:
        raise ConfigError(
            "attention.alignment.type",
            f"the {output_head.type!r} emission shares out its probability by the weights, but those "
            f"of {align!r} may sum to less than one",
            "choose 'monotonic-marginal' or 'softmax'",
        )


def _check_no_input_feeding(wiring: WiringConfig) -> None:
    """Refuse to put a context, or features, for every place into a cell that reads one."""
    if not isinstance(wiring, StepThenAttendConfig):
        raise ConfigError(
            "wiring.type",
            f"under {wiring.type!r} the cell reads the context, but the readout keeps one for "
            "every place",
            "choose 'step-then-attend' with `input_feeding: false`",
        )
    if wiring.input_feeding:
        raise ConfigError(
            "wiring.input_feeding",
            "features cannot be fed back where the readout keeps them for every place",
            "set it to false",
        )


# The decoders, as a configuration names them.


class RecurrentDecoderConfig(RecurrentDecoderConfigBase):
    """Write the target with recurrent cells, and attention if the wiring asks for it."""

    type: Literal["recurrent"] = "recurrent"
    bridge: BridgeConfig = TanhBridgeConfig()
    """What the first state takes over from the encoder."""
    wiring: WiringConfig = AttendThenStepConfig()
    """When attention is asked, if at all."""
    output_head: OutputHeadConfig = SoftmaxHeadConfig()
    """How a token is said."""

    def build(
        self,
        *,
        vocab_size: int,
        memory_size: int,
        encoder_sizes: EncoderStateSizes | None = None,
    ) -> RecurrentDecoder:
        """Make the decoder for a vocabulary, an encoder's width and what it shows at its ends."""
        banks = BridgeSizes(
            memory_size, encoder_sizes or EncoderStateSizes(), self.hidden_size, self.num_layers
        )
        wiring = self.wiring.build(self, memory_size=memory_size)
        decoder = RecurrentDecoder(
            TokenEmbedding(vocab_size, self.embedding_size, dropout=self.dropout),
            self.bridge.build(banks),
            wiring,
            self.output_head.build(feature_size=wiring.pre_output.size, vocab_size=vocab_size),
        )
        check_compatible_choices(self, self.bridge, self.wiring, self.output_head, decoder)
        return decoder

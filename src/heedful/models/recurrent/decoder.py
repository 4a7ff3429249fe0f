"""The recurrent decoder: a bridge, a wiring around recurrent cells, and an output head.

A bridge computes the first hidden state of each layer from the encoder's output; cell states of
LSTMs start at zero unless the bridge copies those of the encoder, other parts of a state are empty.
Invariant: a known target decoded at once matches one decoded step by step.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput, concat_alignments
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.attention.memory import Memory
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Decoder, DecoderOutput, EncoderOutput, EncoderStateSizes
from heedful.models.output_heads import OutputHead, OutputHeadConfig, SoftmaxHeadConfig
from heedful.models.recurrent.deep_fusion import DeepFusionConfig
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    AttentionWiring,
    BottomLayerAttentionConfig,
    RecurrentDecoderConfigBase,
    StepThenAttendConfig,
    UnrolledWiringOutput,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.models.recurrent.without_attention import (
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
)
from heedful.models.scheduled_sampling import InputSampler
from heedful.search import StepOutput
from heedful.shapes import Embedded, Float, Hidden, SourceWeights, StepTokens, TokenIds
from heedful.tokenization.vocabulary import PAD


class Bridge(nn.Module):
    """The first hidden state of each decoder layer.

    tanh: tanh(W summary + b)
    linear: W summary + b
    backward: tanh(W h_1), h_1 the backward state at the first token, which is the last values of
        the top layer's final state  (Bahdanau et al. 2015, A.2.2)
    copy: the final state of the encoder layer at the same height
    zeros: 0
    """

    def __init__(self, kind: str, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.kind = kind
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        num_projections = 0 if kind in {"copy", "zeros"} else num_layers
        projections = [nn.Linear(input_size, hidden_size) for _ in range(num_projections)]
        self.layers = nn.ModuleList(projections)

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        """Return the first hidden states, bottom layer first."""
        states, final_states = encoder_output.states, encoder_output.final_states
        if self.kind == "copy":
            return list(final_states)
        if self.kind == "zeros":
            return [states.new_zeros(len(states), self.hidden_size)] * self.num_layers
        is_backward = self.kind == "backward"
        source = final_states[-1][:, -self.input_size :] if is_backward else encoder_output.summary
        projected = [layer(source) for layer in self.layers]
        return projected if self.kind == "linear" else [hidden.tanh() for hidden in projected]


class BridgeConfigBase(BaseConfig):
    """How the encoder's output becomes the first decoder state."""

    type: str

    def build(
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
    ) -> Bridge:
        return Bridge(self.type, summary_size, decoder.hidden_size, decoder.num_layers)


class TanhBridgeConfig(BridgeConfigBase):
    """A tanh layer from the source summary to each first state."""

    type: Literal["tanh"] = "tanh"


class LinearBridgeConfig(BridgeConfigBase):
    """A linear layer from the source summary to each first state."""

    type: Literal["linear"] = "linear"


class BackwardBridgeConfig(BridgeConfigBase):
    """A tanh layer from the backward state at the first token (Bahdanau et al. 2015)."""

    type: Literal["backward"] = "backward"

    @override
    def build(
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
    ) -> Bridge:
        message = "'backward' needs a backward cell in the encoder's last layer, but there is none"
        hint = "choose 'tanh', or set encoder.direction to 'bidirectional'"
        check(encoder.backward_size, "bridge.type", message, hint)
        return super().build(encoder.backward_size, encoder, decoder)


class CopyBridgeConfig(BridgeConfigBase):
    """The encoder's final hidden and cell states, layer by layer (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    @override
    def build(
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
    ) -> Bridge:
        actual = ", ".join(map(str, encoder.final_state_sizes)) or "unknown"
        needed = ", ".join([str(decoder.hidden_size)] * decoder.num_layers)
        message = f"'copy' needs encoder layers of sizes {needed}, but they are {actual}"
        hint = "give both the same num_layers and hidden_size, or choose 'tanh'"
        check(actual == needed, "bridge.type", message, hint)
        return super().build(summary_size, encoder, decoder)


class ZerosBridgeConfig(BridgeConfigBase):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"


BridgeConfig = Annotated[
    TanhBridgeConfig
    | LinearBridgeConfig
    | BackwardBridgeConfig
    | CopyBridgeConfig
    | ZerosBridgeConfig,
    Field(discriminator="type"),
]


class PendingToken(NamedTuple):
    """A token that is not chosen yet: the features it is predicted from, and the weights."""

    pre_output_input: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]


class RecurrentDecoderState(NamedTuple):
    """State between two steps, and the source."""

    wiring: WiringState
    memory: Memory
    pending: PendingToken | None = None  # if the next step uses its alignment posterior


class RecurrentDecoder(Decoder):
    """Recurrent cells with or without attention."""

    def __init__(
        self, embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, output_head: OutputHead
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.output_head = output_head
        self.needs_cell_states = bridge.kind == "copy" and wiring.cells.has_cell_states

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> RecurrentDecoderState:
        # Pool once: bridge and wiring may both use the summary.
        encoder_output = encoder_output._replace(pooled=encoder_output.summary)
        memory = self.wiring.build_memory(encoder_output)
        cell_states = encoder_output.final_cell_states if self.needs_cell_states else ()
        cells = self.wiring.cells.initial_state(self.bridge(encoder_output), cell_states)
        state = self.wiring.initial_state(cells, memory, encoder_output.summary)
        return RecurrentDecoderState(state, memory)

    @override
    def step(
        self, tokens: StepTokens, state: RecurrentDecoderState
    ) -> StepOutput[RecurrentDecoderState]:
        output, next_state = self._step(tokens, self.embedding(tokens), state)
        features = self.wiring.compute_features(output.pre_output_input.unsqueeze(1))
        log_probs = self.output_head(features, output.weights)
        return StepOutput(log_probs.squeeze(1), next_state, output.weights.squeeze(1))

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Run one step per token, and the output head once for all of them.

        With experts, which process all tokens at once, run layer by layer instead.
        """
        state, outputs = self.initial_state(encoder_output), []
        embeddings = self.embedding(tokens)
        if self.wiring.cells.experts:
            # In eval mode tokens are independent, and one that a search returns may be PAD.
            mask = tokens != PAD if self.training else torch.ones_like(tokens, dtype=torch.bool)
            unrolled = self.wiring.unroll(embeddings, state.wiring, state.memory, mask)
            features = self.wiring.compute_features(unrolled.pre_output_input)
            log_probs = self.output_head(features, unrolled.weights)
            attention = self._collect_attention([unrolled])
            return DecoderOutput(log_probs, *attention, unrolled.auxiliary_losses)
        steps = zip(tokens.unbind(dim=1), embeddings.unbind(dim=1), strict=True)
        for step_tokens, embedded in steps:
            output, state = self._step(step_tokens, embedded, state)
            outputs.append(output)
        weights, attention_records = self._collect_attention(outputs)
        pre_output_input = torch.stack([output.pre_output_input for output in outputs], dim=1)
        features = self.wiring.compute_features(pre_output_input)  # (B, T, D) or (B, T, S, D)
        return DecoderOutput(self.output_head(features, weights), weights, attention_records)

    @override
    def forward_scheduled_sampling(
        self, tokens: TokenIds, encoder_output: EncoderOutput, sampler: InputSampler
    ) -> DecoderOutput:
        self.check_no_expert_losses()
        state = self.initial_state(encoder_output)
        outputs: list[WiringOutput] = []
        log_probs: list[Tensor] = []
        for gold_tokens in tokens.unbind(dim=1):
            input_tokens = sampler.choose(gold_tokens, log_probs[-1] if log_probs else None)
            output, state = self._step(input_tokens, self.embedding(input_tokens), state)
            outputs.append(output)
            features = self.wiring.compute_features(output.pre_output_input.unsqueeze(1))
            log_probs.append(self.output_head(features, output.weights).squeeze(1))
        return DecoderOutput(torch.stack(log_probs, dim=1), *self._collect_attention(outputs))

    def _collect_attention(
        self, outputs: Sequence[WiringOutput | UnrolledWiringOutput]
    ) -> tuple[SourceWeights, Sequence[tuple[Attention, AlignmentOutput]]]:
        weights = torch.cat([output.weights for output in outputs], dim=1)
        if not isinstance(self.wiring, AttentionWiring):
            return weights, ()
        alignments = [output.alignment for output in outputs if output.alignment is not None]
        return weights, ((self.wiring.attention, concat_alignments(alignments)),)

    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        """Step the wiring; first replace the last weights by their posterior given the token."""
        wiring_state = state.wiring
        if state.pending is not None:
            assert wiring_state.attention_state is not None
            features = self.wiring.compute_features(state.pending.pre_output_input.unsqueeze(1))
            posterior = self.output_head.alignment_posterior(
                features, state.pending.weights, tokens.unsqueeze(1)
            )
            attention_state = wiring_state.attention_state._replace(
                last_weights=posterior.squeeze(1)
            )
            wiring_state = wiring_state._replace(attention_state=attention_state)
        output = self.wiring(embedded, wiring_state, state.memory)
        needs_posterior = self.output_head.has_alignment_posterior and self.wiring.uses_history
        pending = PendingToken(output.pre_output_input, output.weights) if needs_posterior else None
        return output, RecurrentDecoderState(output.state, state.memory, pending)


WiringConfig = Annotated[
    AttendThenStepConfig
    | StepThenAttendConfig
    | BottomLayerAttentionConfig
    | DeepFusionConfig
    | ConstantContextWiringConfig
    | FinalStateWiringConfig,
    Field(discriminator="type"),
]


class RecurrentDecoderConfig(RecurrentDecoderConfigBase):
    """Decode with recurrent cells, and attention if the wiring uses it."""

    type: Literal["recurrent"] = "recurrent"
    bridge: BridgeConfig = TanhBridgeConfig()
    """How the encoder's output becomes the first decoder state."""
    wiring: WiringConfig = AttendThenStepConfig()
    """When the decoder attends, if at all, and where the context goes."""
    output_head: OutputHeadConfig = SoftmaxHeadConfig()
    """How the features become log-probabilities of tokens."""

    def build(
        self, *, vocab_size: int, memory_size: int, encoder_sizes: EncoderStateSizes | None = None
    ) -> RecurrentDecoder:
        if isinstance(self.wiring, DeepFusionConfig) and encoder_sizes is not None:
            self.wiring.check_encoder(encoder_sizes)
        wiring = self.wiring.build(self, memory_size=memory_size)
        decoder = RecurrentDecoder(
            TokenEmbedding(vocab_size, self.embedding_size, dropout=self.dropout),
            self.bridge.build(memory_size, encoder_sizes or EncoderStateSizes(), self),
            wiring,
            self.output_head.build(feature_size=wiring.pre_output.size, vocab_size=vocab_size),
        )
        message = f"wiring {self.wiring.type!r} uses the output of experts in the next step"
        hint = "choose 'bottom-layer-attention', or 'step-then-attend' with `input_feeding: false`"
        can_have_experts = self.experts is None or wiring.can_unroll
        check(can_have_experts, "experts", message, hint)
        if decoder.needs_cell_states and encoder_sizes is not None:
            _check_copied_cell_states(wiring, encoder_sizes.final_cell_state_sizes)
        if isinstance(wiring, AttentionWiring):
            self._check_attention(wiring, decoder.output_head)
        else:
            self._check_no_attention()
        return decoder

    def _check_no_attention(self) -> None:
        wiring, head = self.wiring.type, self.output_head.type
        has_source = wiring != "final-state" or self.bridge.type != "zeros"
        message = f"wiring {wiring!r} passes the source in the first state alone, which is zero"
        hint = "choose another bridge, such as 'tanh', or another wiring"
        check(has_source, "bridge.type", message, hint)
        message = f"wiring {wiring!r} has no attention, so these settings would have no effect"
        hint = "remove the section, or choose another wiring, such as 'attend-then-step'"
        check(self.attention == AttentionConfig(), "attention", message, hint)
        message = f"output head {head!r} needs attention, which wiring {wiring!r} does not have"
        hint = "choose 'softmax', or another wiring, such as 'step-then-attend'"
        check(head == "softmax", "output_head.type", message, hint)

    def _check_attention(self, wiring: AttentionWiring, output_head: OutputHead) -> None:
        attention, is_per_position = wiring.attention, wiring.attention.readout.is_per_position
        readout, alignment = self.attention.readout.type, self.attention.alignment.type
        head, pre_output = self.output_head.type, self.pre_output.type
        step_first = self.wiring if isinstance(self.wiring, StepThenAttendConfig) else None
        message = f"{pre_output!r} leaves out the context, which this wiring uses nowhere else"
        hint = "choose 'tanh', 'maxout' or 'concat', or another wiring"
        check(not step_first or pre_output != "state-only", "pre_output.type", message, hint)
        message = f"output head {head!r} needs a context per source position, not {readout!r}"
        hint = "choose the readout 'per-position', or the output head 'softmax'"
        can_read = is_per_position or not output_head.is_per_position
        check(can_read, "attention.readout.type", message, hint)
        if not is_per_position:
            return
        message = f"{head!r} needs a single context, but readout {readout!r} has one per position"
        hint = "choose the output head 'marginal', or the readout 'weighted-sum'"
        check(output_head.is_per_position, "output_head.type", message, hint)
        message = f"its cell reads a single context, but readout {readout!r} has one per position"
        hint = "choose 'step-then-attend' with `input_feeding: false`"
        check(step_first, "wiring.type", message, hint)
        message = f"readout {readout!r} gives features per position, which cannot be fed back"
        is_fed = step_first and step_first.input_feeding
        check(not is_fed, "wiring.input_feeding", message, "set it to false")
        message = f"{head!r} needs weights that sum to one, but those of {alignment!r} may not"
        hint = "choose 'monotonic-marginal' or 'softmax'"
        is_normalized = not attention.alignment_function.is_unnormalized
        check(is_normalized, "attention.alignment.type", message, hint)


def _check_copied_cell_states(wiring: Wiring, encoder_sizes: Sequence[int]) -> None:
    sizes = [cell.cell_state_size for cell in wiring.cells.cells]
    actual, needed = (", ".join(map(str, parts)) for parts in (encoder_sizes, sizes))
    message = f"'copy' needs encoder cell states of sizes {needed}, but they are {actual}"
    hint = "give both the same cell.cell_state_size, or choose 'tanh'"
    check(not any(encoder_sizes) or actual == needed, "bridge.type", message, hint)

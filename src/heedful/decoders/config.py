"""The choices of a recurrent decoder, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt
from torch import nn

from heedful.attention.choices.attention import AttentionConfig
from heedful.config import Choice
from heedful.decoders.emission import EmissionConfig, VocabularyEmissionConfig
from heedful.decoders.recurrent import RecurrentDecoder
from heedful.decoders.wiring import AttendThenStep, StepThenAttend, Wiring
from heedful.errors import ConfigError
from heedful.layers.cell_choices import CellConfig, GruCellConfig
from heedful.layers.cells import CellStack
from heedful.layers.embeddings import Embedding


class AttendThenStepConfig(Choice):
    """Ask with the last state, then step (Bahdanau et al. 2015)."""

    kind: Literal["attend-then-step"] = "attend-then-step"

    def build(self, decoder: RecurrentDecoderConfig, *, memory_size: int) -> Wiring:
        """Make the wiring of a decoder."""
        hidden_size, embedding_size = decoder.hidden_size, decoder.embedding_size
        told_size = hidden_size + memory_size + embedding_size
        return AttendThenStep(
            decoder.attention.build(query_size=hidden_size, memory_size=memory_size),
            decoder.build_cells(embedding_size + memory_size),
            nn.Linear(told_size, hidden_size),
            dropout=decoder.dropout,
        )


class StepThenAttendConfig(Choice):
    """Step, then ask with the new state (Luong et al. 2015)."""

    kind: Literal["step-then-attend"] = "step-then-attend"
    input_feeding: bool = True
    """Whether what was told goes in with the next token."""

    def build(self, decoder: RecurrentDecoderConfig, *, memory_size: int) -> Wiring:
        """Make the wiring of a decoder."""
        hidden_size, embedding_size = decoder.hidden_size, decoder.embedding_size
        fed_size = hidden_size if self.input_feeding else 0
        return StepThenAttend(
            decoder.attention.build(query_size=hidden_size, memory_size=memory_size),
            decoder.build_cells(embedding_size + fed_size),
            nn.Linear(memory_size + hidden_size, hidden_size),
            dropout=decoder.dropout,
            input_feeding=self.input_feeding,
        )


WiringConfig = Annotated[AttendThenStepConfig | StepThenAttendConfig, Field(discriminator="kind")]


class RecurrentDecoderConfig(Choice):
    """Write the target with recurrent cells and attention."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GruCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Cells on top of one another."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings, between layers and before the emission."""
    wiring: WiringConfig = AttendThenStepConfig()
    """When attention is asked."""
    attention: AttentionConfig = AttentionConfig()
    """How attention works."""
    emission: EmissionConfig = VocabularyEmissionConfig()
    """How a token is said."""

    def build(self, *, vocabulary_size: int, memory_size: int) -> RecurrentDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        bridges = [nn.Linear(memory_size, self.hidden_size) for _ in range(self.num_layers)]
        decoder = RecurrentDecoder(
            Embedding(vocabulary_size, self.embedding_size, dropout=self.dropout),
            bridges,
            self.wiring.build(self, memory_size=memory_size),
            self.emission.build(feature_size=self.hidden_size, vocabulary_size=vocabulary_size),
        )
        _require_agreement(self, decoder)
        return decoder

    def build_cells(self, input_size: int) -> CellStack:
        """Make the cells for inputs of this width."""
        sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        cells = [self.cell.build(input_size=size, hidden_size=self.hidden_size) for size in sizes]
        return CellStack(cells, self.dropout)


def _require_agreement(config: RecurrentDecoderConfig, decoder: RecurrentDecoder) -> None:
    """Refuse parts of which one keeps places apart and another wants them together."""
    attention = decoder.wiring.attention
    if decoder.emission.is_per_position and not attention.read.is_per_position:
        raise ConfigError(
            "attention.read.kind",
            f"the {config.emission.kind!r} emission lets every place say a token, but the "
            f"{config.attention.read.kind!r} readout gives it one context for all",
            "choose the readout 'per-position', or the emission 'vocabulary'",
        )
    if not attention.read.is_per_position:
        return
    if not decoder.emission.is_per_position:
        raise ConfigError(
            "emission.kind",
            f"the {config.attention.read.kind!r} readout keeps every place apart, but the "
            f"{config.emission.kind!r} emission wants one context for all",
            "choose the emission 'marginal', or the readout 'expectation'",
        )
    _require_no_feedback(config.wiring)
    if attention.align.leaks:
        raise ConfigError(
            "attention.align.kind",
            f"the {config.emission.kind!r} emission shares out its probability by the weights, but "
            f"those of {config.attention.align.kind!r} may sum to less than one",
            "choose 'monotonic-marginal' or 'softmax'",
        )


def _require_no_feedback(wiring: WiringConfig) -> None:
    """Refuse to put a context, or features, for every place into a cell that reads one."""
    if not isinstance(wiring, StepThenAttendConfig):
        raise ConfigError(
            "wiring.kind",
            f"under {wiring.kind!r} the cell reads the context, but the readout keeps one for "
            "every place",
            "choose 'step-then-attend' with `input_feeding: false`",
        )
    if wiring.input_feeding:
        raise ConfigError(
            "wiring.input_feeding",
            "features cannot be fed back where the readout keeps them for every place",
            "set it to false",
        )

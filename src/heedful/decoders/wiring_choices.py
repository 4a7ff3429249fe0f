"""The wirings, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heedful.config import Choice
from heedful.decoders.bottom_asks import BottomAsks
from heedful.decoders.fusion import DeepFusionConfig
from heedful.decoders.parts import RecurrentParts
from heedful.decoders.unattended import ConstantContext, FinalState
from heedful.decoders.wiring import AttendThenStep, StepThenAttend, Wiring


class AttendThenStepConfig(Choice):
    """Ask with the last state, then step (Bahdanau et al. 2015)."""

    kind: Literal["attend-then-step"] = "attend-then-step"

    def build(self, parts: RecurrentParts, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return AttendThenStep(
            parts.build_attention(memory_size),
            parts.build_cells(parts.embedding_size + memory_size),
            parts.build_output(AttendThenStep.telling, memory_size),
        )


class StepThenAttendConfig(Choice):
    """Step, then ask with the new state (Luong et al. 2015)."""

    kind: Literal["step-then-attend"] = "step-then-attend"
    input_feeding: bool = True
    """Whether what was told goes in with the next token."""

    def build(self, parts: RecurrentParts, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        output = parts.build_output(StepThenAttend.telling, memory_size)
        fed_size = output.size if self.input_feeding else 0
        return StepThenAttend(
            parts.build_attention(memory_size),
            parts.build_cells(parts.embedding_size + fed_size),
            output,
            input_feeding=self.input_feeding,
        )


class BottomAsksConfig(Choice):
    """Let the bottom layer ask, and every layer hear (Wu et al. 2016, GNMT)."""

    kind: Literal["bottom-asks"] = "bottom-asks"

    def build(self, parts: RecurrentParts, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return BottomAsks(
            parts.build_attention(memory_size),
            parts.build_cells(parts.embedding_size, memory_size),
            parts.build_output(BottomAsks.telling, memory_size),
        )


class ConstantContextConfig(Choice):
    """Never ask; hear the source's summary at every step (Cho et al. 2014)."""

    kind: Literal["constant-context"] = "constant-context"

    def build(self, parts: RecurrentParts, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return ConstantContext(
            parts.build_cells(parts.embedding_size, memory_size),
            parts.build_output(ConstantContext.telling, memory_size),
        )


class FinalStateConfig(Choice):
    """Never ask; know the source from the first state alone (Sutskever et al. 2014)."""

    kind: Literal["final-state"] = "final-state"

    def build(self, parts: RecurrentParts, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return FinalState(
            parts.build_cells(parts.embedding_size),
            parts.build_output(FinalState.telling, memory_size),
        )


WiringConfig = Annotated[
    AttendThenStepConfig
    | StepThenAttendConfig
    | BottomAsksConfig
    | DeepFusionConfig
    | ConstantContextConfig
    | FinalStateConfig,
    Field(discriminator="kind"),
]

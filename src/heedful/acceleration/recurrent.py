"""Wirings of recurrent decoders without an attention state that nothing reads.

Weights of a query that depend neither on earlier queries nor on its position need no state, which
each step would update and each reordering of a beam would copy. Invariant: outputs equal those of
the plain wiring, bit for bit.
"""

from typing_extensions import override

from heedful.attention.memory import Memory
from heedful.models.recurrent.wiring import (
    AttendThenStep,
    AttentionWiring,
    BottomLayerAttention,
    CellStates,
    StepThenAttend,
    WiringState,
)
from heedful.shapes import Summary


def needs_no_state(wiring: AttentionWiring) -> bool:
    """Whether the weights of a step depend only on its query."""
    return not wiring.attention.needs_positions


class StatelessAttention(AttentionWiring):
    """Mixin of wirings that carry no attention state, unless a hook may read it."""

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        state = super().initial_state(cells, memory, summary)
        attention = self.attention
        if attention._forward_hooks or attention._forward_pre_hooks:
            return state  # a trace tells its steps apart by their states
        return state._replace(attention_state=None)


class StatelessAttendThenStep(StatelessAttention, AttendThenStep):
    """Attend, then step."""


class StatelessStepThenAttend(StatelessAttention, StepThenAttend):
    """Step, then attend."""


class StatelessBottomLayerAttention(StatelessAttention, BottomLayerAttention):
    """Attend with the bottom layer."""


STATELESS_WIRINGS = (
    (AttendThenStep, StatelessAttendThenStep),
    (StepThenAttend, StatelessStepThenAttend),
    (BottomLayerAttention, StatelessBottomLayerAttention),
)

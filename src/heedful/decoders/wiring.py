"""Wiring: when is attention asked, and where does its answer go?

A wiring takes one embedded token into a recurrent state and says what can be told of the next
one. It keeps nothing between calls: the state comes in and goes out. One without attention looks
nowhere: its weights are zero, and nothing is known of how they came about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Aligned, Attended, Memory, Past, padding
from heedful.attention.attend import Attends
from heedful.decoders.outputs import Left, Output, Telling
from heedful.layers.cells import CellStack, CellState
from heedful.layers.encoded import Encoded
from heedful.shapes import Float


class WiringState(NamedTuple):
    """All that a recurrent decoder carries from one token to the next."""

    cells: tuple[CellState, ...]
    feed: Float[Tensor, "B D"] | None = None  # the last features, where they are fed back in
    past: Past | None = None  # what has been asked of the memory, where anything asks
    summary: Float[Tensor, "B V"] | None = None  # the source in one vector, where steps hear it


class Wired(NamedTuple):
    """The outcome of taking in one token."""

    told: Float[Tensor, "B X"] | Float[Tensor, "B S X"]  # what the next token can be told from
    weights: Float[Tensor, "B 1 S"]
    aligned: Aligned | None  # all that is known of where was looked, where anything looks
    state: WiringState


class Wiring(nn.Module, ABC):
    """When attention is asked, if at all, and where its answer goes."""

    telling: ClassVar[Telling]
    """Which parts of a step tell of the next token."""

    def __init__(self, cells: CellStack, output: Output) -> None:
        super().__init__()
        self.cells = cells
        self.output = output

    @property
    def looks_back(self) -> bool:
        """Whether where the last token came from has a say in where is looked next."""
        return False

    @abstractmethod
    def remember(self, encoded: Encoded) -> Memory:
        """Make a source ready to be looked at."""

    @abstractmethod
    def begin(self, first: tuple[CellState, ...], memory: Memory, encoded: Encoded) -> WiringState:
        """Make the first state, from the first states of the cells."""

    @abstractmethod
    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Take in one token."""

    def tell(self, told: Float[Tensor, "B T *S X"]) -> Float[Tensor, "B T *S D"]:
        """Turn what steps told into features: the part that no later step waits for."""
        return self.output(told)


class Attending(Wiring):
    """A wiring that asks once at every step."""

    def __init__(self, attention: Attends, cells: CellStack, output: Output) -> None:
        super().__init__(cells, output)
        self.attention = attention

    @property
    def looks_back(self) -> bool:
        """Whether score or alignment goes by where the last token came from."""
        return self.attention.has_history

    def remember(self, encoded: Encoded) -> Memory:
        """Make a source ready to be looked at."""
        mask = padding(encoded.lengths, encoded.states.size(1))
        return self.attention.remember(encoded.states, mask)

    def begin(self, first: tuple[CellState, ...], memory: Memory, encoded: Encoded) -> WiringState:
        """Make the first state; nothing has been asked yet."""
        return WiringState(first, past=self.attention.begin(memory))


class AttendThenStep(Attending):
    """The last state asks; the cell then reads token and context (Bahdanau et al. 2015).

    c_t = attend(s_{t-1}); s_t = cell([y_{t-1}; c_t], s_{t-1}); told from s_t, c_t and y_{t-1}
    """

    telling = Telling(("state", "context", "token"), deep=("before", "token", "context"))

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Ask with the state that was, then step."""
        before = state.cells[-1][0]
        attended = self.attention(before.unsqueeze(1), memory, state.past)
        context = attended.context.squeeze(1)
        cells = self.cells(torch.cat([embedded, context], dim=-1), state.cells)
        told = self.output.collect(Left(before, cells[-1][0], embedded, context))
        return wired(told, attended, cells)


class StepThenAttend(Attending):
    """The cell reads the token; the new state then asks (Luong et al. 2015).

    s_t = cell([y_{t-1}; f_{t-1}], s_{t-1}); c_t = attend(s_t); f_t told from c_t and s_t

    With input feeding (section 3.3) the features f_{t-1} go in with the next token; without it,
    only the token does.
    """

    telling = Telling(("context", "state"), deep=("state", "token", "context"))

    def __init__(
        self, attention: Attends, cells: CellStack, output: Output, *, input_feeding: bool
    ) -> None:
        super().__init__(attention, cells, output)
        self.input_feeding = input_feeding
        # Features of every place may be asked for again, once the token is known: made twice,
        # dropout would make two different ones.
        self.within_step = input_feeding or attention.read.is_per_position

    def begin(self, first: tuple[CellState, ...], memory: Memory, encoded: Encoded) -> WiringState:
        """Make the first state; nothing has been asked or fed back yet."""
        state = super().begin(first, memory, encoded)
        shown = first[0][0]
        nothing = shown.new_zeros(len(shown), self.output.size)
        return state._replace(feed=nothing) if self.input_feeding else state

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Step, then ask with the state that is."""
        fed = [] if state.feed is None else [state.feed]
        cells = self.cells(torch.cat([embedded, *fed], dim=-1), state.cells)
        before, hidden = state.cells[-1][0], cells[-1][0]
        attended = self.attention(hidden.unsqueeze(1), memory, state.past)
        told = self.output.collect(Left(before, hidden, embedded, attended.context.squeeze(1)))
        if self.within_step:
            told = self.output(told)
        return wired(told, attended, cells, feed=told if self.input_feeding else None)

    def tell(self, told: Float[Tensor, "B T *S X"]) -> Float[Tensor, "B T *S D"]:
        """Make the features, or give them on if they were made within the step."""
        return told if self.within_step else self.output(told)


def wired(
    told: Tensor, attended: Attended, cells: tuple[CellState, ...], *, feed: Tensor | None = None
) -> Wired:
    """Put together what came of a step that asked attention."""
    _, weights, aligned, past = attended
    assert weights is not None
    assert aligned is not None
    assert past is not None
    return Wired(told, weights, aligned, WiringState(cells, feed, past))

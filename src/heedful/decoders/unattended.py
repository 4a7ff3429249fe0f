"""Unattended wirings: what can be written about a source that is not looked at?

All that is known of the source is one vector. It is in the first state, or heard at every step.
Weights are zero: attention went nowhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import Memory, padding
from heedful.decoders.outputs import Left, Telling
from heedful.decoders.wiring import Wired, Wiring, WiringState
from heedful.layers.cells import CellState
from heedful.layers.encoded import Encoded
from heedful.shapes import Float


class Unattended(Wiring):
    """A wiring that never asks."""

    def remember(self, encoded: Encoded) -> Memory:
        """Keep what there would be to see; nobody asks, so no keys are prepared."""
        mask = padding(encoded.lengths, encoded.states.size(1))
        return Memory(encoded.states, (), mask)

    def _wired(self, left: Left, state: WiringState, memory: Memory) -> Wired:
        nowhere = torch.zeros_like(memory.mask, dtype=left.state.dtype)  # (B, 1, S)
        return Wired(self.output.collect(left), nowhere, None, state)


class FinalState(Unattended):
    """The source is in the first state and nowhere else (Sutskever et al. 2014).

    s_t = cell(y_{t-1}, s_{t-1}); told from s_t
    """

    telling = Telling(("state",), deep=("state", "token"))

    def begin(self, first: tuple[CellState, ...], memory: Memory, encoded: Encoded) -> WiringState:
        """Make the first state."""
        return WiringState(first)

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Step."""
        cells = self.cells(embedded, state.cells)
        left = Left(state.cells[-1][0], cells[-1][0], embedded)
        return self._wired(left, WiringState(cells), memory)


class ConstantContext(Unattended):
    """The summary of the source is heard at every step, by every layer (Cho et al. 2014).

    h_t = g(y_{t-1}, h_{t-1}, c) (section 2.2); told from h_t, c and y_{t-1}
    """

    telling = Telling(("state", "context", "token"), deep=("state", "token", "context"))

    def begin(self, first: tuple[CellState, ...], memory: Memory, encoded: Encoded) -> WiringState:
        """Make the first state, and keep the summary."""
        return WiringState(first, summary=encoded.summary)

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Step, with the summary."""
        cells = self.cells(embedded, state.cells, state.summary)
        left = Left(state.cells[-1][0], cells[-1][0], embedded, state.summary)
        return self._wired(left, state._replace(cells=cells), memory)

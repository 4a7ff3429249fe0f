"""Bottom asks: deep decoders in which attention need not wait for the top layer.

The bottom layer asks and every layer hears, so the layers of neighbouring steps can run side by
side, as they could not if the top layer asked.
"""

from __future__ import annotations

from torch import Tensor

from heedful.attention import Memory
from heedful.decoders.outputs import Left, Telling
from heedful.decoders.wiring import Attending, Wired, WiringState, wired
from heedful.shapes import Float


class BottomAsks(Attending):
    """The bottom layer's last state asks; every layer then hears (Wu et al. 2016, section 3).

    c_t = attend(s1_{t-1}); s1_t = cell([y_{t-1}; c_t], s1_{t-1}); sk_t = cell([s(k-1)_t; c_t],
    sk_{t-1}). In the paper the top state alone tells of the next token: the output `none`.
    """

    telling = Telling(("context", "state"), deep=("state", "token", "context"))

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Ask with what the bottom layer was, then let every layer hear."""
        bottom, top = state.cells[0][0], state.cells[-1][0]
        attended = self.attention(bottom.unsqueeze(1), memory, state.past)
        context = attended.context.squeeze(1)
        cells = self.cells(embedded, state.cells, context)
        told = self.output.collect(Left(top, cells[-1][0], embedded, context))
        return wired(told, attended, cells)

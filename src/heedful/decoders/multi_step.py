"""Multi-step attention: every layer looks at the source, knowing what those below it found.

(Gehring et al. 2017, section 3.3.) Law: places read piece by piece, each piece from the state the
last one left, are read as if at once.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from heedful.attention import Aligned, Attends, Memory, Past
from heedful.layers.convolutions import GatedLayer, NormedConvolution, halved
from heedful.shapes import Float


class LayerState(NamedTuple):
    """What one layer carries from one place to the next."""

    recent: Float[Tensor, "B R D"]  # what it read at the last k - 1 places
    past: Past | None  # what it has asked of the source, where that counts


class Layered(NamedTuple):
    """What one layer made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None
    aligned: Aligned | None
    state: LayerState


class AttendingLayer(nn.Module):
    """A gated layer that looks at the source between its gate and its sum.

    d_i = (W_d h_i + b_d + g_i) sqrt(0.5) asks, h_i being what the gate lets through and g_i the
    embedding of the token read; the context c_i comes in as (h_i + W_c c_i + b_c) sqrt(0.5).
    (Gehring et al. 2017, section 3.3 and equation 1, which leaves the constants out; the authors'
    code has them.) A mean of m unlike vectors has an m-th of their variance: it is multiplied by
    m sqrt(1 / m), m being the length of the source (section 3.4).
    """

    def __init__(
        self,
        layer: GatedLayer,
        attention: Attends,
        *,
        ask: NormedConvolution,
        hear: NormedConvolution,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.attention = attention
        self.ask = ask
        self.hear = hear

    def begin(self, source: Memory, states: Float[Tensor, "B S V"]) -> LayerState:
        """Make the state of having read and asked nothing."""
        attention = self.attention
        past = attention.begin(source) if attention.knows_places else None
        return LayerState(self.layer.begin(states), past)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        embedded: Float[Tensor, "B T E"],
        state: LayerState,
        source: Memory,
        scales: Float[Tensor, "B 1 1"],
        *,
        need_weights: bool,
    ) -> Layered:
        """Read on from a state, looking at the source from every place."""
        let_through, recent = self.layer.back(inputs, state.recent)
        queries = halved(self.ask(let_through), embedded)
        wanted = need_weights or self.attention.is_penalised
        found = self.attention(queries, source, state.past, need_weights=wanted)
        told = halved(let_through, self.hear(found.context * scales))
        outputs = self.layer.join(inputs, told)
        return Layered(outputs, found.weights, found.aligned, LayerState(recent, found.past))

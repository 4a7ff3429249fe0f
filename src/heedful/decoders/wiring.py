"""Wiring: when is attention asked, and where does its answer go?

A wiring takes one embedded token into a recurrent state and says what can be told of the next
one. It keeps nothing between calls: the state comes in and goes out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Aligned, Attended, Memory, Past
from heedful.attention.attend import Attends
from heedful.layers.cells import CellStack, CellState
from heedful.shapes import Float


class WiringState(NamedTuple):
    """All that a recurrent decoder carries from one token to the next."""

    cells: tuple[CellState, ...]
    feed: Float[Tensor, "B D"] | None  # the last features, where they are fed back in
    past: Past  # what has been asked of the memory


class Wired(NamedTuple):
    """The outcome of taking in one token."""

    told: Float[Tensor, "B X"] | Float[Tensor, "B S X"]  # what the next token can be told from
    weights: Float[Tensor, "B 1 S"]
    aligned: Aligned
    state: WiringState


class Wiring(nn.Module, ABC):
    """When attention is asked, and where its answer goes."""

    def __init__(
        self, attention: Attends, cells: CellStack, combine: nn.Linear, *, dropout: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cells = cells
        self.combine = combine
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def begin(self, hidden: Sequence[Float[Tensor, "B D"]], memory: Memory) -> WiringState:
        """Make the first state, from what is to be seen of each layer."""

    @abstractmethod
    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Take in one token."""

    @abstractmethod
    def tell(self, told: Float[Tensor, "B T *S X"]) -> Float[Tensor, "B T *S D"]:
        """Turn what steps told into features: the part that no later step waits for."""


class AttendThenStep(Wiring):
    """The last state asks; the cell then reads token and context (Bahdanau et al. 2015).

    c_t = attend(s_{t-1}); s_t = cell([y_{t-1}; c_t], s_{t-1});
    features = tanh(W [s_t; c_t; y_{t-1}])
    """

    def begin(self, hidden: Sequence[Float[Tensor, "B D"]], memory: Memory) -> WiringState:
        """Make the first state."""
        return WiringState(self.cells.begin(hidden), None, self.attention.begin(memory))

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Ask with the state that was, then step."""
        query = state.cells[-1][0]
        attended = self.attention(query.unsqueeze(1), memory, state.past)
        context = attended.context.squeeze(1)
        cells = self.cells(torch.cat([embedded, context], dim=-1), state.cells)
        told = torch.cat([cells[-1][0], context, embedded], dim=-1)
        return _wired(told, attended, cells, feed=None)

    def tell(self, told: Float[Tensor, "B T *S X"]) -> Float[Tensor, "B T *S D"]:
        """Combine state, context and token."""
        return self.combine(self.dropout(told)).tanh()


class StepThenAttend(Wiring):
    """The cell reads the token; the new state then asks (Luong et al. 2015).

    s_t = cell([y_{t-1}; f_{t-1}], s_{t-1}); c_t = attend(s_t); f_t = tanh(W [c_t; s_t])

    With input feeding (section 3.3) f_{t-1} goes in with the next token; without it, only the
    token does.
    """

    def __init__(
        self,
        attention: Attends,
        cells: CellStack,
        combine: nn.Linear,
        *,
        dropout: float,
        input_feeding: bool,
    ) -> None:
        super().__init__(attention, cells, combine, dropout=dropout)
        self.input_feeding = input_feeding

    def begin(self, hidden: Sequence[Float[Tensor, "B D"]], memory: Memory) -> WiringState:
        """Make the first state; nothing has been fed back yet."""
        first = hidden[0]
        nothing = first.new_zeros(len(first), self.combine.out_features)
        feed = nothing if self.input_feeding else None
        return WiringState(self.cells.begin(hidden), feed, self.attention.begin(memory))

    def forward(self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory) -> Wired:
        """Step, then ask with the state that is."""
        fed = [] if state.feed is None else [state.feed]
        cells = self.cells(torch.cat([embedded, *fed], dim=-1), state.cells)
        hidden = cells[-1][0]
        attended = self.attention(hidden.unsqueeze(1), memory, state.past)
        told = _beside(attended.context.squeeze(1), hidden)
        features = self.combine(self.dropout(told)).tanh()
        return _wired(features, attended, cells, feed=features if fed else None)

    def tell(self, told: Float[Tensor, "B T *S X"]) -> Float[Tensor, "B T *S D"]:
        """Give the features on: they were made within the step, to be fed back."""
        return told


def _beside(
    context: Float[Tensor, "B *S V"], hidden: Float[Tensor, "B D"]
) -> Float[Tensor, "B *S X"]:
    """Put a state beside its context, or beside each where there is one for every place."""
    if context.dim() > hidden.dim():
        hidden = hidden.unsqueeze(1).expand(-1, context.size(1), -1)
    return torch.cat([context, hidden], dim=-1)


def _wired(
    told: Tensor, attended: Attended, cells: tuple[CellState, ...], *, feed: Tensor | None
) -> Wired:
    _, weights, aligned, past = attended
    assert weights is not None
    assert aligned is not None
    assert past is not None
    return Wired(told, weights, aligned, WiringState(cells, feed, past))

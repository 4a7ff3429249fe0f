"""Continuation: a language model that reads a source and goes on with the target.

Source, separator and target are one sequence, read by one recurrence from left to right. There
is no encoder and no attention: what is known of the source is what the state remembers. Only
the target is learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.recurrent import Own, choose, mix
from heedful.layers.cell_choices import CellConfig, LstmCellConfig
from heedful.layers.cells import Cell, CellState
from heedful.layers.embeddings import Embedding
from heedful.layers.recurrence import Recurrence
from heedful.search import Step
from heedful.shapes import Float, Int
from heedful.tasks.model import Model, Transduced


class ContinuationState(NamedTuple):
    """All that is needed to go on: what each layer remembers."""

    cells: tuple[CellState, ...]
    nowhere: Float[Tensor, "B S"]  # where the model looks: it does not


class Continuation(Model):
    """p(y_t | x, separator, y_<t), by one recurrence over all of them.

    The separator is the symbol that a target begins with. Words of the two sides have vectors of
    their own; the recurrence is the same.
    """

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        layers: Sequence[Recurrence],
        projection: nn.Linear,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.layers = nn.ModuleList(layers)
        self.projection = projection
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch, teacher_share: float = 1.0, own: Own = "drawn") -> Transduced:
        """Say how likely each token of known targets is."""
        state = self.start(batch.sources)
        if teacher_share < 1:
            log_probs = self._step_by_step(batch.inputs, state, teacher_share, own)
        else:
            log_probs = self._at_once(batch.inputs, state)
        return Transduced(
            log_probs, state.nowhere.unsqueeze(1).expand(*log_probs.shape[:2], -1), {}
        )

    def start(self, sources: Sources) -> ContinuationState:
        """Read sources, to go on from them."""
        shown, ends = self.source_embedding(sources.tokens), list[CellState]()
        for layer in cast(Iterable[Recurrence], self.layers):
            shown, (end,) = layer.read(self.dropout(shown) if ends else shown, sources.lengths)
            ends.append(end)
        return ContinuationState(tuple(ends), shown.new_zeros(sources.tokens.shape))

    def step(self, tokens: Int[Tensor, "B"], state: ContinuationState) -> Step[ContinuationState]:
        """Read one token; say how likely each next one is."""
        below, cells = self.target_embedding(tokens), list[CellState]()
        for layer, before in zip(cast(Iterable[Recurrence], self.layers), state.cells, strict=True):
            cells.append(layer.cells[0](self.dropout(below) if cells else below, before))
            below = cells[-1][0]
        return Step(self._say(below), state._replace(cells=tuple(cells)), state.nowhere)

    def _at_once(
        self, tokens: Int[Tensor, "B T"], state: ContinuationState
    ) -> Float[Tensor, "B T N"]:
        shown = self.target_embedding(tokens)
        lengths = tokens.new_full((len(tokens),), tokens.size(1))
        pairs = zip(cast(Iterable[Recurrence], self.layers), state.cells, strict=True)
        for number, (layer, before) in enumerate(pairs):
            shown = layer(self.dropout(shown) if number else shown, lengths, [before])
        return self._say(shown)

    def _step_by_step(
        self, tokens: Int[Tensor, "B T"], state: ContinuationState, teacher_share: float, own: Own
    ) -> Float[Tensor, "B T N"]:
        said = list[Tensor]()
        for known in tokens.unbind(dim=1):
            taken = mix(known, choose(said[-1].detach(), own), teacher_share) if said else known
            step = self.step(taken, state)
            state = step.state
            said.append(step.log_probs)
        return torch.stack(said, dim=1)

    def _say(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.projection(self.dropout(features)).log_softmax(dim=-1)


class ContinuationConfig(Choice):
    """One language model over "source, separator, target"; learned on the target alone."""

    kind: Literal["continuation"] = "continuation"
    cell: CellConfig = LstmCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings, between layers and before the emission."""

    def build(self, *, source_size: int, target_size: int) -> Continuation:
        """Make the model for two vocabularies."""
        inputs = [self.embedding_size] + [self.hidden_size] * (self.num_layers - 1)
        return Continuation(
            Embedding(source_size, self.embedding_size, dropout=self.dropout),
            Embedding(target_size, self.embedding_size, dropout=self.dropout),
            [Recurrence(forwards=self._cell(size)) for size in inputs],
            nn.Linear(self.hidden_size, target_size),
            dropout=self.dropout,
        )

    def _cell(self, input_size: int) -> Cell:
        return self.cell.build(input_size=input_size, hidden_size=self.hidden_size)

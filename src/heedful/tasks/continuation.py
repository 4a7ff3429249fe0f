"""Continuation: a language model that reads a source and goes on with the target.

Source, separator and target are one sequence, read by one reader from left to right. There is no
encoder: what is known of the source is what the reader kept of it, in a state or by looking back.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.choices.positions import PositionConfig
from heedful.attention.masks import padding
from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.own_tokens import Own, step_by_step
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import NO_PENALTIES, add_up
from heedful.layers.init import DefaultInitConfig, InitConfig
from heedful.layers.reader import Read, Reader
from heedful.layers.tying import require_one_vocabulary, tie
from heedful.readers.choices import ReaderConfig
from heedful.readers.recurrent import RecurrentReaderConfig
from heedful.search import Step
from heedful.shapes import Bool, Float, Int
from heedful.tasks.model import Model, Transduced

Learned = Literal["target", "both"]


class ContinuationState(NamedTuple):
    """All that is needed to go on: what was read, how much, and what of it is the source."""

    read: Any
    first: Int[Tensor, "B"]  # the number of the next place
    is_source: Bool[Tensor, "B S"]


class Continuation(Model):
    """p(y_t | x, separator, y_<t), by one reader over all of them.

    The separator is the symbol that a source ends with and the one that a target begins with.
    Words of the two sides have vectors of their own, unless both embeddings are one. Where it
    `learns_both`, how unlikely the source is is added to the loss (Liu et al. 2018, section 4.2.1).
    """

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        reader: Reader,
        projection: nn.Linear,
        *,
        dropout: float,
        learns_both: bool = False,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.reader = reader
        self.projection = projection
        self.dropout = nn.Dropout(dropout)
        self.learns_both = learns_both

    def forward(
        self,
        batch: Batch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token of known targets is."""
        source, state = self._read_source(batch.sources)
        penalties = self._unlikeliness(source, batch) if self.learns_both else NO_PENALTIES
        if teacher_share < 1:
            told = step_by_step(self, batch.inputs, state, teacher_share, own)
            return Transduced(*told, add_up(source.penalties, penalties))
        target = self._read_on(batch.inputs, state, need_weights=need_weights, need_state=False)
        weights = self._at_source(target, state) if need_weights else None
        penalties = add_up(source.penalties, penalties, target.penalties)
        return Transduced(self._say(target.outputs), weights, penalties)

    def start(self, sources: Sources) -> ContinuationState:
        """Read sources, to go on from them."""
        return self._read_source(sources)[1]

    def step(self, tokens: Int[Tensor, "B"], state: ContinuationState) -> Step[ContinuationState]:
        """Read one token; say how likely each next one is."""
        read = self._read_on(tokens.unsqueeze(1), state, need_weights=True)
        after = state._replace(read=read.state, first=state.first + 1)
        weights = self._at_source(read, state).squeeze(1)
        return Step(self._say(read.outputs).squeeze(1), after, weights)

    def _read_source(self, sources: Sources) -> tuple[Read, ContinuationState]:
        tokens, lengths = sources
        embedded = self.source_embedding(tokens)
        read = self.reader(embedded, lengths, self.reader.begin(embedded))
        is_source = padding(lengths, tokens.size(1)).squeeze(1)
        return read, ContinuationState(read.state, lengths, is_source)

    def _read_on(
        self,
        tokens: Int[Tensor, "B T"],
        state: ContinuationState,
        *,
        need_weights: bool,
        need_state: bool = True,
    ) -> Read:
        embedded = self.target_embedding(tokens, state.first)
        lengths = torch.full_like(state.first, tokens.size(1))
        return self.reader(
            embedded, lengths, state.read, need_weights=need_weights, need_state=need_state
        )

    def _at_source(self, read: Read, state: ContinuationState) -> Float[Tensor, "B T S"]:
        """Where was looked in the source; nowhere, if the reader does not look."""
        times, places = read.outputs.size(1), state.is_source.size(1)
        if read.weights is None:
            return read.outputs.new_zeros(len(read.outputs), times, places)
        return read.weights[..., :places] * state.is_source.unsqueeze(1)

    def _unlikeliness(self, source: Read, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """How unlikely each token of the sources is but the first, which nothing goes before."""
        said = self._say(source.outputs[:, :-1])
        wanted = batch.sources.tokens[:, 1:]
        chosen = said.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        real = padding(batch.sources.lengths - 1, wanted.size(1)).squeeze(1)
        return {"source": -(chosen * real).sum()}

    def _say(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.projection(self.dropout(features)).log_softmax(dim=-1)


class ContinuationConfig(Choice):
    """One language model over "source, separator, target"."""

    kind: Literal["continuation"] = "continuation"
    reader: ReaderConfig = RecurrentReaderConfig()
    """What reads both."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    positions: PositionConfig | None = None
    """How words are told their places, counted over both sides; if not given, they are not."""
    embeddings: Literal["separate", "shared", "tied"] = "separate"
    """Whether words of both sides have one vector, and, tied, the emission has it too."""
    learned: Learned = "target"
    """Whether the model learns to say the target alone, or the source too (Liu et al. 2018)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and before the emission."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_size: int, target_size: int) -> Continuation:
        """Make the model for two vocabularies."""
        if self.embeddings != "separate" or self.learned == "both":
            require_one_vocabulary(source_size, target_size)
        source = self._embedding(source_size)
        target = source if self.embeddings != "separate" else self._embedding(target_size)
        reader = self.reader.build(input_size=target.size)
        projection = nn.Linear(reader.size, target_size)
        model = Continuation(
            source,
            target,
            reader,
            projection,
            dropout=self.dropout,
            learns_both=self.learned == "both",
        )
        self.init.initialise(model)
        if self.embeddings == "tied":
            tie(projection, target)
        return model

    def _embedding(self, vocabulary_size: int) -> Embedding:
        size, is_tied = self.embedding_size, self.embeddings == "tied"
        placing = self.positions.build(embedding_size=size) if self.positions else None
        return Embedding(
            vocabulary_size, size, dropout=self.dropout, placing=placing, scaled=is_tied
        )

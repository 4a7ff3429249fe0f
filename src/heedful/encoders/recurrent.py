"""Recurrent encoders: a source read word by word, by layers on top of one another.

Law: padding has no influence, and a state stands where its word stands, whichever way was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.attend import Attends
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.choices.positions import PositionConfig
from heedful.attention.masks import padding
from heedful.config import Choice
from heedful.encoders.connections import ConnectionConfig, PlainConfig
from heedful.encoders.directions import BothConfig, DirectionConfig
from heedful.encoders.encoder import Encoder
from heedful.encoders.floors import Floor
from heedful.encoders.memories import Kept, read_with_memories
from heedful.layers.cell_choices import CellConfig, GruCellConfig
from heedful.layers.cells import Cell
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded, add_up
from heedful.layers.expert_choices import ExpertsConfig
from heedful.layers.experts import ExpertSublayer
from heedful.layers.looking_within import within_a_source
from heedful.layers.pooling import LastConfig, Pooling, PoolingConfig
from heedful.layers.recurrence import Recurrence
from heedful.shapes import Bool, Float, Int


class RecurrentEncoder(Encoder):
    """Recurrent layers on top of one another, each on its own floor.

    Without a pooling the summary is what is seen of the top layer where it ends.
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[Recurrence],
        floors: Sequence[Floor],
        *,
        entry: nn.Module,
        pooling: Pooling | None,
        size: int,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.entry = entry
        self.layers = nn.ModuleList(layers)
        self.floors = nn.ModuleList(floors)
        self.pooling = pooling
        self.size = size

    @property
    def end_sizes(self) -> tuple[int, ...]:
        """How wide what is seen of each layer at its end is."""
        layers = cast(Iterable[Recurrence], self.layers)
        return tuple(sum(cell.hidden_size for cell in layer.cells) for layer in layers)

    @property
    def backward_size(self) -> int:
        """How many of the last values seen at the top layer's end a backward reading made."""
        backwards = cast(Recurrence, self.layers[-1]).backwards
        return 0 if backwards is None else backwards.hidden_size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """Read a batch of sources."""
        mask = padding(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        shown = read = self.entry(self.embedding(tokens))
        ends, kept, penalties = [], list[Kept](), list[Mapping[str, Tensor]]()
        layers = cast(Iterable[Recurrence], self.layers)
        for layer, floor in zip(layers, cast(Iterable[Floor], self.floors), strict=True):
            heard = floor.hear(read, shown, mask)
            kept.append(read_with_memories(layer, heard, lengths, keep_ends=self.keeps_memories))
            shown = kept[-1].shown
            ends.append(layer.seen_at_end(shown, lengths))
            read, found = floor.pass_on(read, shown, mask)
            penalties.append(found)
        states = _only(read, mask)
        summary = ends[-1] if self.pooling is None else self.pooling(states, mask)
        memories = kept[-1].memories
        return Encoded(
            states,
            lengths,
            summary,
            tuple(ends),
            None if memories is None else _only(memories, mask),
            add_up(*penalties),
            end_memories=tuple(each.at_end for each in kept if each.at_end is not None),
        )


def _only(values: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """Make zeros of what lies past the end."""
    return values.masked_fill(~mask.unsqueeze(-1), 0)


class RecurrentEncoderConfig(Choice):
    """Read the source with recurrent layers."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GruCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state, both directions together."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    direction: DirectionConfig = BothConfig()
    """Which way each layer reads."""
    connection: ConnectionConfig = PlainConfig()
    """What a layer passes on to the next."""
    looks_down: AttentionConfig | None = None
    """How each layer but the first looks at all that the layer below showed; if not given, it does
    not."""
    experts: ExpertsConfig | None = None
    """Small networks between layers, of which each word sees a few; if not given, none."""
    summary: PoolingConfig = LastConfig()
    """How the whole source becomes one vector."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and between layers."""
    positions: PositionConfig | None = None
    """How words are told their places; if not given, the recurrence alone knows."""

    @model_validator(mode="after")
    def _has_halves(self) -> RecurrentEncoderConfig:
        ways = [sum(self.direction.ways(number)) for number in self._numbers]
        if max(ways) > 1 and self.hidden_size % 2:
            raise ValueError(f"hidden_size, for both directions, must be even: {self.hidden_size}")
        return self

    @model_validator(mode="after")
    def _has_layers_enough(self) -> RecurrentEncoderConfig:
        wanted = {
            "looks_down": 2 if self.looks_down else 1,
            "experts": self.experts.least_layers if self.experts else 1,
            "connection": self.connection.least_layers,
        }
        for name, least in wanted.items():
            if least > self.num_layers:
                raise ValueError(f"{name} needs num_layers of {least} or more: {self.num_layers}")
        return self

    @property
    def _numbers(self) -> range:
        return range(1, self.num_layers + 1)

    def build(self, *, vocabulary_size: int) -> RecurrentEncoder:
        """Make the encoder for a vocabulary."""
        size, places = self.embedding_size, self.positions
        placing = places.build(embedding_size=size) if places else None
        embedding = Embedding(vocabulary_size, size, dropout=self.dropout, placing=placing)
        sizes = {number: self._read_size(number, embedding.size) for number in self._numbers}
        return RecurrentEncoder(
            embedding,
            [self._layer(number, read) for number, read in sizes.items()],
            [self._floor(number, read) for number, read in sizes.items()],
            entry=self.connection.entry(embedding.size, self.hidden_size),
            pooling=self.summary.build(size=self.hidden_size),
            size=self.hidden_size,
        )

    def _read_size(self, number: int, embedding_size: int) -> int:
        return self.connection.read_size(
            number, embedding_size=embedding_size, hidden_size=self.hidden_size
        )

    def _layer(self, number: int, read_size: int) -> Recurrence:
        ways = self.direction.ways(number)
        found_size = self.hidden_size if self._looks_down(number) else 0

        def cell() -> Cell:
            return self.cell.build(
                input_size=read_size + found_size, hidden_size=self.hidden_size // sum(ways)
            )

        return Recurrence(
            forwards=cell() if ways.forwards else None,
            backwards=cell() if ways.backwards else None,
        )

    def _floor(self, number: int, read_size: int) -> Floor:
        is_top = number == self.num_layers
        passing = self.connection.build(
            number, is_top=is_top, hidden_size=self.hidden_size, dropout=self.dropout
        )
        return Floor(
            passing,
            dropout=self.connection.read_dropout(number, self.dropout),
            look_down=self._look_down(read_size) if self._looks_down(number) else None,
            experts=None if is_top else self._experts(number),
        )

    def _experts(self, number: int) -> ExpertSublayer | None:
        if self.experts is None or not self.experts.stand_above(number):
            return None
        size = self._read_size(number + 1, self.embedding_size)
        return self.experts.build(size=size, dropout=self.dropout)

    def _looks_down(self, number: int) -> bool:
        return self.looks_down is not None and number > 1

    def _look_down(self, read_size: int) -> Attends:
        assert self.looks_down is not None
        return within_a_source(
            self.looks_down, query_size=read_size, memory_size=self.hidden_size, at="looks_down"
        )

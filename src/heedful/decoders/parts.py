"""Parts: what every recurrent decoder is made of, whatever its wiring.

A wiring is built from these; it says how wide the cells' inputs are, and what the output is told
from.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from heedful.attention import Attends
from heedful.attention.choices.attention import AttentionConfig
from heedful.config import Choice
from heedful.decoders.outputs import Output, OutputConfig, TanhOutputConfig, Telling, Widths
from heedful.errors import ConfigError
from heedful.layers.cell_choices import CellConfig, GruCellConfig
from heedful.layers.cells import CellStack


class RecurrentParts(Choice):
    """The parts of a recurrent decoder that its wiring puts together."""

    cell: CellConfig = GruCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Cells on top of one another."""
    residual_from: Annotated[int, Field(gt=1)] | None = None
    """The first layer, counted from 1, that shows the sum of what it made and what it read, as do
    all above it (Wu et al. 2016); none if not given."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings, between layers and before the emission."""
    attention: AttentionConfig = AttentionConfig()
    """How attention works."""
    output: OutputConfig = TanhOutputConfig()
    """What the next token is told from."""

    def build_attention(self, memory_size: int) -> Attends:
        """Make the mechanism that a state asks."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> CellStack:
        """Make the cells for inputs of this width, and a context that every layer hears."""
        if self.residual_from is not None and self.residual_from > self.num_layers:
            raise ConfigError(
                "residual_from",
                f"there is no layer {self.residual_from}: num_layers is {self.num_layers}",
                "name a layer from 2 up to the last, or leave it out",
            )
        below = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        cells = [
            self.cell.build(input_size=size + context_size, hidden_size=self.hidden_size)
            for size in below
        ]
        return CellStack(cells, self.dropout, residual_from=self.residual_from)

    def build_output(self, telling: Telling, memory_size: int) -> Output:
        """Make the output for what a wiring tells from."""
        widths: Widths = {
            "before": self.hidden_size,
            "state": self.hidden_size,
            "context": memory_size,
            "token": self.embedding_size,
        }
        return self.output.build(telling, widths, dropout=self.dropout)

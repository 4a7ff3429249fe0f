"""The cells, as a configuration names them: `cell: gru`, or a section with settings."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from heedful.config import Choice
from heedful.layers.cells import Cell, CellKind, GruCell, LstmCell, SimpleCell
from heedful.layers.gated import ResetAfterGruCell, ResetBeforeGruCell
from heedful.layers.normalised import NormalisedLstmCell, NormalisedSimpleCell, normalised
from heedful.layers.regularised import RecurrentDropout, Zoneout

Rate = Annotated[float, Field(ge=0, lt=1)]


class CellChoice(Choice):
    """A cell, and how it is kept from leaning on single units."""

    kind: str
    normalised: bool = False
    """Whether sums within the cell are brought to mean 0 and variance 1 (Ba et al. 2016)."""
    recurrent_dropout: Rate = 0.0
    """Share of the state unseen within the cell, the same along a sequence (Gal & Ghahramani)."""
    zoneout: Rate = 0.0
    """Chance of each hidden value to stay as it was, at every step (Krueger et al. 2017)."""

    @abstractmethod
    def single(self, input_size: int, hidden_size: int) -> Cell:
        """Make the cell itself."""

    @property
    def staying(self) -> tuple[float, ...]:
        """The chance to stay as it was, for each part of the state."""
        return (self.zoneout,)

    def build(self, *, input_size: int, hidden_size: int) -> Cell:
        """Make the cell for inputs and states of these widths, in what is wrapped round it."""
        cell = self.single(input_size, hidden_size)
        if any(self.staying):
            cell = Zoneout(cell, self.staying)
        return RecurrentDropout(cell, self.recurrent_dropout) if self.recurrent_dropout else cell


class SimpleCellConfig(CellChoice):
    """Add input and state and squash the sum (Elman 1990)."""

    kind: Literal["rnn"] = "rnn"

    def single(self, input_size: int, hidden_size: int) -> Cell:
        """Make the cell itself."""
        return (NormalisedSimpleCell if self.normalised else SimpleCell)(input_size, hidden_size)


class GruCellConfig(CellChoice):
    """Let two gates say what is new and what is kept (Cho et al. 2014)."""

    kind: Literal["gru"] = "gru"
    reset: Literal["after", "before"] = "after"
    """Whether the product with the state is reset, as in cuDNN, or the state before it."""

    def single(self, input_size: int, hidden_size: int) -> Cell:
        """Make the cell itself."""
        if self.reset == "after" and not self.normalised:
            return GruCell(input_size, hidden_size)
        written = ResetAfterGruCell if self.reset == "after" else ResetBeforeGruCell
        if self.normalised:
            return written(input_size, hidden_size, product=normalised)
        return written(input_size, hidden_size)


class LstmCellConfig(CellChoice):
    """Keep a memory cell behind gates (Hochreiter & Schmidhuber 1997)."""

    kind: Literal["lstm"] = "lstm"
    memory_zoneout: Rate = 0.0
    """Chance of each value of the memory cell to stay as it was, at every step."""

    @property
    def staying(self) -> tuple[float, ...]:
        """The chance to stay as it was, for each part of the state."""
        return (self.zoneout, self.memory_zoneout)

    def single(self, input_size: int, hidden_size: int) -> Cell:
        """Make the cell itself."""
        return (NormalisedLstmCell if self.normalised else LstmCell)(input_size, hidden_size)


def _named(said: Any) -> Any:
    return {"kind": said} if isinstance(said, str) else said


_Cells = SimpleCellConfig | GruCellConfig | LstmCellConfig
CellConfig = Annotated[
    _Cells,
    Field(discriminator="kind"),
    BeforeValidator(_named, json_schema_input_type=CellKind | _Cells),
]

"""The cells, as a configuration names them: `cell: gru`, or a section with settings."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from heedful.config import Choice
from heedful.layers.cells import Cell, GruCell, LstmCell, SimpleCell
from heedful.layers.gated import ResetAfterGruCell, ResetBeforeGruCell
from heedful.layers.normalised import NormalisedLstmCell, NormalisedSimpleCell, normalised
from heedful.layers.own_past_choices import AdditiveFormConfig, FormConfig, named
from heedful.layers.regularised import RecurrentDropout, Zoneout
from heedful.layers.self_attentive import (
    FusedLstmnCell,
    LstmnCell,
    SelfAttentiveCell,
    SelfAttentiveLstmCell,
)
from heedful.layers.tapes import OwnPast

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


class SelfAttentiveCellConfig(Choice):
    """Work with a mean of all past states in place of the last (after Cheng et al. 2016)."""

    kind: Literal["self-attentive-rnn"] = "self-attentive-rnn"
    form: FormConfig = AdditiveFormConfig()
    """What asks the past, and how it is compared with each state."""

    def build(self, *, input_size: int, hidden_size: int) -> Cell:
        """Make the cell for inputs and states of these widths."""
        past = self.form.build(input_size=input_size, hidden_size=hidden_size)
        return SelfAttentiveCell(input_size, hidden_size, past)


class SelfAttentiveLstmCellConfig(Choice):
    """Keep all past states and memory cells; show o * c, as lectures have it."""

    kind: Literal["self-attentive-lstm"] = "self-attentive-lstm"
    form: FormConfig = AdditiveFormConfig()
    """What asks the past, and how it is compared with each state."""

    def build(self, *, input_size: int, hidden_size: int) -> Cell:
        """Make the cell for inputs and states of these widths."""
        past = self.form.build(input_size=input_size, hidden_size=hidden_size)
        return SelfAttentiveLstmCell(input_size, hidden_size, past)


class LstmnCellConfig(Choice):
    """Keep all past states and memory cells; show o * tanh(c) (Cheng et al. 2016)."""

    kind: Literal["lstmn"] = "lstmn"
    score_size: PositiveInt = 256
    """Width of the small tanh layer that compares the past with input and last context."""

    def build(self, *, input_size: int, hidden_size: int) -> LstmnCell:
        """Make the cell for inputs and states of these widths."""
        return LstmnCell(input_size, hidden_size, self._past(input_size, hidden_size))

    def build_fused(self, *, input_size: int, hidden_size: int) -> FusedLstmnCell:
        """Make the cell that is told what to add to its memory."""
        return FusedLstmnCell(input_size, hidden_size, self._past(input_size, hidden_size))

    def _past(self, input_size: int, hidden_size: int) -> OwnPast:
        form = AdditiveFormConfig(hidden_size=self.score_size)
        return form.build(input_size=input_size, hidden_size=hidden_size)


CellName = Literal["rnn", "gru", "lstm", "self-attentive-rnn", "self-attentive-lstm", "lstmn"]
_Cells = (
    SimpleCellConfig
    | GruCellConfig
    | LstmCellConfig
    | SelfAttentiveCellConfig
    | SelfAttentiveLstmCellConfig
    | LstmnCellConfig
)
CellConfig = Annotated[
    _Cells,
    Field(discriminator="kind"),
    BeforeValidator(named, json_schema_input_type=CellName | _Cells),
]

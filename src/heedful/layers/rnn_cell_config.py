"""Configuration of recurrent cells, and their regularization: zoneout and recurrent dropout."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import nn
from torch.nn.functional import dropout
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.layers.rnn_cells import (
    CellWrapper,
    ContextGRUCell,
    GRUCell,
    LayerNormLSTMCell,
    LayerNormRNNCell,
    LinearFactory,
    LSTMCell,
    Projected,
    ProjectedLSTMCell,
    RecurrentCell,
    RecurrentState,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
    RNNCell,
    layer_norm_linear,
)
from heedful.layers.self_attentive_cells import (
    LSTMNCellConfig,
    SelfAttentiveCellConfig,
    SelfAttentiveLSTMCellConfig,
)
from heedful.shapes import Hidden

Rate = Annotated[float, Field(ge=0, lt=1)]


class CellConfigBase(BaseConfig):
    """A recurrent cell and its regularization."""

    type: str
    layer_norm: bool = False
    """Apply layer normalization inside the cell (Ba et al. 2016)."""
    recurrent_dropout: Rate = 0.0
    """Dropout on the recurrent connection, one mask per sequence (Gal & Ghahramani 2016)."""
    zoneout: Rate = 0.0
    """Probability that a hidden value keeps its previous value at a step (Krueger et al. 2017)."""

    @abstractmethod
    def build_cell(self, input_size: int, hidden_size: int, context_size: int) -> RecurrentCell:
        """Build the cell without zoneout and recurrent dropout."""

    @property
    def zoneout_rates(self) -> tuple[float, ...]:
        """The zoneout probability of each part of the state."""
        return (self.zoneout,)

    def build(self, *, input_size: int, hidden_size: int, context_size: int = 0) -> RecurrentCell:
        """Build the cell; the last `context_size` values of its input are a context."""
        cell = self.build_cell(input_size, hidden_size, context_size)
        if any(self.zoneout_rates):
            cell = Zoneout(cell, self.zoneout_rates)
        return RecurrentDropout(cell, self.recurrent_dropout) if self.recurrent_dropout else cell


class RNNCellConfig(CellConfigBase):
    """Simple recurrent cell with tanh (Elman 1990)."""

    type: Literal["rnn"] = "rnn"

    @override
    def build_cell(self, input_size: int, hidden_size: int, context_size: int) -> RecurrentCell:
        return (LayerNormRNNCell if self.layer_norm else RNNCell)(input_size, hidden_size)


class GRUCellConfig(CellConfigBase):
    """Gated recurrent unit (Cho et al. 2014)."""

    type: Literal["gru"] = "gru"
    reset: Literal["after", "before", "after-with-context"] = "after"
    """Apply the reset gate after the product with the state, as in cuDNN, before it, or after it to
    the sum with the product of the context that a decoder layer reads (Cho et al. 2014, A.1.2)."""

    @override
    def build_cell(self, input_size: int, hidden_size: int, context_size: int) -> RecurrentCell:
        if self.reset == "after" and not self.layer_norm:
            return GRUCell(input_size, hidden_size)
        make_linear: LinearFactory = layer_norm_linear if self.layer_norm else nn.Linear
        if self.reset == "after-with-context":
            message = f"{self.reset!r} needs a decoder in which every layer reads a context"
            hint = "choose 'after', or the wiring 'constant-context'"
            check(context_size, "cell.reset", message, hint)
            return ContextGRUCell(input_size, hidden_size, context_size, make_linear=make_linear)
        cell_class = ResetAfterGRUCell if self.reset == "after" else ResetBeforeGRUCell
        return cell_class(input_size, hidden_size, make_linear=make_linear)


class LSTMCellConfig(CellConfigBase):
    """Long short-term memory (Hochreiter & Schmidhuber 1997)."""

    type: Literal["lstm"] = "lstm"
    cell_zoneout: Rate = 0.0
    """Probability that a value of the cell state keeps its previous value at a step."""
    cell_state_size: PositiveInt | None = None
    """Size of the cell state of each direction, from which the output is projected to its size;
    torch calls it `hidden_size` and the output's `proj_size`. Null for no projection (Sak et al.
    2014)."""
    forget_bias: NonNegativeFloat = 0.0
    """Added to the initial bias of the forget gate; 1 lets a cell keep what it reads early for many
    steps (Jozefowicz et al. 2015), and is what TensorFlow's cells have."""

    @property
    @override
    def zoneout_rates(self) -> tuple[float, ...]:
        return (self.zoneout, self.cell_zoneout)

    @override
    def build_cell(self, input_size: int, hidden_size: int, context_size: int) -> RecurrentCell:
        if self.cell_state_size is not None:
            size = self.cell_state_size
            message = f"must be larger than a direction's output, {hidden_size}, but is {size}"
            hint = "choose a larger size, or remove the setting"
            check(size > hidden_size, "cell.cell_state_size", message, hint)
        if self.layer_norm:
            message, hint = "does not work with layer_norm", "set it to 0, or layer_norm to false"
            check(not self.forget_bias, "cell.forget_bias", message, hint)
            return LayerNormLSTMCell(input_size, hidden_size, self.cell_state_size)
        if self.cell_state_size is None:
            cell = LSTMCell(input_size, hidden_size)
        else:
            cell = ProjectedLSTMCell(input_size, hidden_size, self.cell_state_size)
        cell.initial_forget_bias = self.forget_bias
        cell.add_forget_bias()
        return cell


class Zoneout(CellWrapper):
    """s' = d * s + (1 - d) * cell(x, s)  (Krueger et al. 2017).

    In training d is drawn for each value and step; in eval mode it is the rate of its part.
    """

    def __init__(self, cell: RecurrentCell, rates: Sequence[float]) -> None:
        super().__init__(cell)
        self.rates = tuple(rates)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        next_parts = []
        next_state = self.cell.update(inputs, state, hidden)
        for old, new, rate in zip(state, next_state, self.rates, strict=True):
            if self.training:
                keep_mask = torch.empty_like(new, dtype=torch.bool).bernoulli_(rate)
                next_parts.append(torch.where(keep_mask, old, new))
            else:
                next_parts.append(rate * old + (1 - rate) * new)
        return tuple(next_parts)


class RecurrentDropout(CellWrapper):
    """cell(x, m * h), with one dropout mask m per sequence (Gal & Ghahramani 2016).

    What a gate carries over is not dropped. The mask is drawn in `initial_state` and is the last
    part of the state, so that it is reordered with its row.
    """

    def __init__(self, cell: RecurrentCell, rate: float) -> None:
        super().__init__(cell)
        self.rate = rate

    @override
    def initial_state(self, hidden: Hidden) -> RecurrentState:
        mask = dropout(torch.ones_like(hidden), self.rate, self.training)
        return (*self.cell.initial_state(hidden), mask)

    @override
    def update(self, inputs: Projected, state: RecurrentState, hidden: Hidden) -> RecurrentState:
        *cell_state, mask = state
        hidden = mask * hidden if self.training else hidden
        return (*self.cell.update(inputs, tuple(cell_state), hidden), mask)


_Cells = (
    RNNCellConfig
    | GRUCellConfig
    | LSTMCellConfig
    | SelfAttentiveCellConfig
    | SelfAttentiveLSTMCellConfig
    | LSTMNCellConfig
)
CellConfig = Annotated[_Cells, Field(discriminator="type"), allow_bare_type(_Cells)]

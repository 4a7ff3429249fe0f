"""Outputs: what is the next token told from, once a step is done?

A step leaves four parts behind: the state before it, the state after it, what attention took and
the token it read. A wiring says which of them tell of the next token; an output makes features of
these. Law: features of one step depend on that step's parts alone, so the features of a known
target are made at once wherever none of them is fed back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.config import Choice
from heedful.shapes import Float

Part = Literal["before", "state", "context", "token"]


class Left(NamedTuple):
    """What one step leaves behind."""

    before: Float[Tensor, "B D"]  # the state that was
    state: Float[Tensor, "B D"]  # the state that is
    token: Float[Tensor, "B E"]
    context: Float[Tensor, "B V"] | Float[Tensor, "B S V"] | None = None  # the latter per place


class Telling(NamedTuple):
    """Which parts a wiring tells of the next token from, in the order of its paper."""

    shallow: tuple[Part, ...]
    deep: tuple[Part, ...]  # where a layer of its own weighs them, with the token among them


class Output(nn.Module, ABC):
    """What the next token is told from."""

    def __init__(self, parts: Sequence[Part], size: int, *, dropout: float) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.size = size
        self.dropout = nn.Dropout(dropout)

    def collect(self, left: Left) -> Float[Tensor, "B *S X"]:
        """Put the parts side by side; beside each context, where there is one for every place."""
        parts = [getattr(left, part) for part in self.parts]
        places = next((part.size(1) for part in parts if part.dim() > left.state.dim()), None)
        if places is not None:
            parts = [
                part if part.dim() > left.state.dim() else part[:, None].expand(-1, places, -1)
                for part in parts
            ]
        return torch.cat(parts, dim=-1)

    @abstractmethod
    def forward(self, told: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Make features of parts that lie side by side."""


class TanhOutput(Output):
    """tanh(W [parts] + b)  (Luong et al. 2015, equation 5)."""

    def __init__(self, parts: Sequence[Part], told_size: int, size: int, *, dropout: float) -> None:
        super().__init__(parts, size, dropout=dropout)
        self.combine = nn.Linear(told_size, size)

    def forward(self, told: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Combine and squash the parts."""
        return self.combine(self.dropout(told)).tanh()


class MaxoutOutput(Output):
    """t_j = max(t~_2j, t~_2j+1), t~ = U s + V y + C c + b  (Bahdanau et al. 2015, section A.2.2).

    U, V and C are one matrix, for the parts lie side by side. By the paper's formula s is the
    state before the step, s_{i-1}: what the step reads is told by y and c. Cho et al. (2014,
    appendix) have the state after it in its place, and so has much code since.
    """

    def __init__(self, parts: Sequence[Part], told_size: int, size: int, *, dropout: float) -> None:
        super().__init__(parts, size, dropout=dropout)
        self.combine = nn.Linear(told_size, 2 * size)

    def forward(self, told: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Combine the parts and keep the larger of each pair."""
        return self.combine(self.dropout(told)).unflatten(-1, (self.size, 2)).amax(dim=-1)


class PlainOutput(Output):
    """[parts]: nothing is done to them."""

    def forward(self, told: Float[Tensor, "*B X"]) -> Float[Tensor, "*B D"]:
        """Give the parts on."""
        return self.dropout(told)


Widths = Mapping[Part, int]


class TanhOutputConfig(Choice):
    """Combine and squash what a step tells (Luong et al. 2015)."""

    kind: Literal["tanh"] = "tanh"

    def build(self, telling: Telling, widths: Widths, *, dropout: float) -> Output:
        """Make the output for parts of these widths."""
        parts = telling.shallow
        return TanhOutput(parts, _width(parts, widths), widths["state"], dropout=dropout)


class MaxoutOutputConfig(Choice):
    """Keep the larger of each pair of sums over state, token and context (Bahdanau et al. 2015).

    Under `attend-then-step` the state is the one before the step, as in that paper; elsewhere it
    is the one after it, as in Cho et al. (2014).
    """

    kind: Literal["maxout"] = "maxout"
    size: PositiveInt | None = None
    """Number of pairs; if not given, the width of a state (500 for 1,000 in the paper)."""

    def build(self, telling: Telling, widths: Widths, *, dropout: float) -> Output:
        """Make the output for parts of these widths."""
        parts, size = telling.deep, self.size or widths["state"]
        return MaxoutOutput(parts, _width(parts, widths), size, dropout=dropout)


class PlainOutputConfig(Choice):
    """Tell the next token from state and context as they are, side by side."""

    kind: Literal["plain"] = "plain"

    def build(self, telling: Telling, widths: Widths, *, dropout: float) -> Output:
        """Make the output for parts of these widths."""
        return PlainOutput(telling.shallow, _width(telling.shallow, widths), dropout=dropout)


class NoOutputConfig(Choice):
    """Tell the next token from the state alone (Sutskever et al. 2014; Wu et al. 2016)."""

    kind: Literal["none"] = "none"

    def build(self, telling: Telling, widths: Widths, *, dropout: float) -> Output:
        """Make the output for parts of these widths."""
        del telling  # whatever else there is to tell from
        return PlainOutput(["state"], widths["state"], dropout=dropout)


OutputConfig = Annotated[
    TanhOutputConfig | MaxoutOutputConfig | PlainOutputConfig | NoOutputConfig,
    Field(discriminator="kind"),
]


def _width(parts: Sequence[Part], widths: Widths) -> int:
    return sum(widths[part] for part in parts)

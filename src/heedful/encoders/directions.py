"""Directions: which way does each layer of an encoder read?

Whichever way it is, a state stands at the position of the word it was made from, and a row is
begun at its own first or last word: padding is never read on the way.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.config.choice import naming


class Ways(NamedTuple):
    """Which ways a layer reads."""

    forwards: bool
    backwards: bool


BOTH = Ways(forwards=True, backwards=True)


class DirectionChoice(Choice):
    """Which way each layer reads."""

    kind: str

    @abstractmethod
    def ways(self, layer: int) -> Ways:
        """Say which ways a layer reads; the lowest is layer 1."""


class BothConfig(DirectionChoice):
    """Read both ways in every layer, and set the two side by side (Schuster & Paliwal 1997)."""

    kind: Literal["both"] = "both"

    def ways(self, layer: int) -> Ways:
        """Say which ways a layer reads."""
        return BOTH


class ReversibleChoice(DirectionChoice):
    """Which way each layer reads, or the other way round."""

    reversed: bool = False
    """Whether the source is read from its end: what would be forwards is backwards, and the other
    way round (Sutskever et al. 2014)."""

    def one_way(self, *, forwards: bool) -> Ways:
        """Read one way, or the other if all is reversed."""
        forwards = forwards != self.reversed
        return Ways(forwards, not forwards)


class ForwardsConfig(ReversibleChoice):
    """Read forwards in every layer."""

    kind: Literal["forwards"] = "forwards"

    def ways(self, layer: int) -> Ways:
        """Say which ways a layer reads."""
        return self.one_way(forwards=True)


class AlternatingConfig(ReversibleChoice):
    """Read forwards in the first layer, backwards in the next, and so on (Zhou et al. 2016)."""

    kind: Literal["alternating"] = "alternating"

    def ways(self, layer: int) -> Ways:
        """Say which ways a layer reads."""
        return self.one_way(forwards=layer % 2 == 1)


class BothThenForwardsConfig(ReversibleChoice):
    """Read both ways in the lowest layers and forwards in those above (Wu et al. 2016)."""

    kind: Literal["both-then-forwards"] = "both-then-forwards"
    num_both: PositiveInt = 1
    """Layers that read both ways."""

    def ways(self, layer: int) -> Ways:
        """Say which ways a layer reads."""
        return BOTH if layer <= self.num_both else self.one_way(forwards=True)


_Kinds = Literal["both", "forwards", "alternating", "both-then-forwards"]
_Directions = BothConfig | ForwardsConfig | AlternatingConfig | BothThenForwardsConfig
DirectionConfig = Annotated[
    _Directions,
    Field(discriminator="kind"),
    naming(_Kinds | _Directions),
]

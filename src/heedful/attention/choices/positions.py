"""The ways to tell vectors their places, as a configuration names them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from heedful.attention.positions import (
    AddPositions,
    ConcatenatePositions,
    LearnedPositions,
    Placing,
    Positions,
    SinusoidalPositions,
)
from heedful.config import Choice


class PositionChoice(Choice):
    """A vector for every place, and how it joins what stands there."""

    kind: str
    join: Literal["add", "concatenate"] = "add"
    """Whether the vector of a place is added to that of a word or set beside it."""
    size: PositiveInt | None = None
    """Width of what is set beside a word; by default as wide. What is added is always so."""

    @model_validator(mode="after")
    def _is_as_wide_as_what_it_is_added_to(self) -> PositionChoice:
        if self.join == "add" and self.size is not None:
            raise ValueError("size can be chosen with join: concatenate only")
        return self

    @abstractmethod
    def vectors(self, size: int) -> Positions:
        """Make the vectors of the places."""

    def build(self, *, embedding_size: int) -> Placing:
        """Make what tells vectors of this width their places."""
        positions = self.vectors(self.size or embedding_size)
        if self.join == "add":
            return AddPositions(positions)
        return ConcatenatePositions(positions, vector_size=embedding_size)


class SinusoidalPositionsConfig(PositionChoice):
    """Waves of many lengths, nothing learned (Vaswani et al. 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"

    def vectors(self, size: int) -> Positions:
        """Make the vectors of the places."""
        return SinusoidalPositions(size)


class LearnedPositionsConfig(PositionChoice):
    """A learned vector for each of the first places (Gehring et al. 2017)."""

    kind: Literal["learned"] = "learned"
    max_positions: PositiveInt = 1024
    """Places with a vector of their own; those beyond share the vector of the last."""

    def vectors(self, size: int) -> Positions:
        """Make the vectors of the places."""
        return LearnedPositions(size, max_positions=self.max_positions)


PositionConfig = Annotated[
    SinusoidalPositionsConfig | LearnedPositionsConfig, Field(discriminator="kind")
]

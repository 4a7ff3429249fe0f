"""The alignments that a row of scores decides by itself, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from heedful.attention.alignments import Sharing, Softmax
from heedful.attention.sparse import Entmax, Sparsemax
from heedful.config import Choice


class SoftmaxConfig(Choice):
    """Share attention in proportion to the exponential of the score."""

    kind: Literal["softmax"] = "softmax"
    temperature: PositiveFloat = 1.0
    """What scores are divided by: below 1 sharpens the weights, above 1 evens them out."""

    def build(self, *, query_size: int) -> Sharing:
        """Make the alignment."""
        return Softmax(self.temperature)


class SparsemaxConfig(Choice):
    """Take the weights nearest to the scores; most are zero (Martins & Astudillo 2016)."""

    kind: Literal["sparsemax"] = "sparsemax"

    def build(self, *, query_size: int) -> Sharing:
        """Make the alignment."""
        return Sparsemax()


class EntmaxConfig(Choice):
    """Stand between softmax and sparsemax; far places get zero (Peters et al. 2019)."""

    kind: Literal["entmax"] = "entmax"
    alpha: Annotated[float, Field(gt=1)] = 1.5
    """How sparse: towards 1 it becomes softmax, 2 is sparsemax, more is sparser still."""
    learned: bool = False
    """Whether alpha is learned, between 1 and 2, starting from this one."""

    @model_validator(mode="after")
    def _learns_within_bounds(self) -> EntmaxConfig:
        if self.learned and self.alpha >= 2:
            raise ValueError(f"a learned alpha starts between 1 and 2, not at {self.alpha:g}")
        return self

    def build(self, *, query_size: int) -> Sharing:
        """Make the alignment."""
        return Entmax(self.alpha, learned=self.learned)


SharingConfig = Annotated[
    SoftmaxConfig | SparsemaxConfig | EntmaxConfig, Field(discriminator="kind")
]

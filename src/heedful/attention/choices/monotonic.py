"""The alignments that never turn back, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from heedful.attention.chunkwise import Chunkwise
from heedful.attention.marginal import MonotonicMarginal
from heedful.attention.monotonic import AtTest, Form, Monotonic
from heedful.config import Choice


class MonotonicConfig(Choice):
    """Walk over the source with a pointer that never turns back (Raffel et al. 2017)."""

    kind: Literal["monotonic"] = "monotonic"
    gain: float = 1.0
    """What every score is multiplied by, at first; raise it for scores that begin flat."""
    bias: float = -1.0
    """What is added to every score, at first; the longer the sources, the lower it should be."""
    noise: NonNegativeFloat = 1.0
    """How strong the noise is that teaches the pointer to be sure; the paper has 1."""
    form: Form = "recursive"
    """How the chances are added up: recursive is exact, parallel is the paper's and is not."""
    at_test: AtTest = "hard"
    """Whether the pointer stops at one place when used, or keeps its chances: expected."""

    def build(self, *, query_size: int) -> Monotonic:
        """Make the alignment."""
        return Monotonic(
            gain=self.gain,
            bias=self.bias,
            noise=self.noise,
            form=self.form,
            at_test=self.at_test,
        )


class ChunkwiseConfig(Choice):
    """Look at the few places before a monotonic pointer (Chiu & Raffel 2018)."""

    kind: Literal["chunkwise"] = "chunkwise"
    width: PositiveInt = 2
    """Places in a chunk, that of the pointer among them."""
    boundaries: MonotonicConfig = MonotonicConfig()
    """How the pointer walks."""

    def build(self, *, query_size: int) -> Chunkwise:
        """Make the alignment."""
        return Chunkwise(self.boundaries.build(query_size=query_size), width=self.width)


class MonotonicMarginalConfig(Choice):
    """Add up all ways through the source that never turn back (Wu & Cotterell 2019)."""

    kind: Literal["monotonic-marginal"] = "monotonic-marginal"

    def build(self, *, query_size: int) -> MonotonicMarginal:
        """Make the alignment."""
        return MonotonicMarginal()


MonotonicFamilyConfig = Annotated[
    MonotonicConfig | ChunkwiseConfig | MonotonicMarginalConfig, Field(discriminator="kind")
]

"""The readouts, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heedful.attention.readouts import Expectation, Gated, PerPosition, Readout, Selection
from heedful.config import Choice


class ExpectationConfig(Choice):
    """Take the mean of the values under the weights."""

    kind: Literal["expectation"] = "expectation"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return Expectation()


class SelectionConfig(Choice):
    """Take the value with the most weight and nothing of the others."""

    kind: Literal["selection"] = "selection"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return Selection()


class GatedConfig(Choice):
    """Let the query say how much of its context it wants (Xu et al. 2015)."""

    kind: Literal["gated"] = "gated"
    inner: ExpectationConfig | SelectionConfig = Field(
        default=ExpectationConfig(), discriminator="kind"
    )
    """How the context is taken that the gate then lets through."""

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return Gated(self.inner.build(query_size=query_size), query_size=query_size)


class PerPositionConfig(Choice):
    """Keep every value apart, for an emission that mixes what each would say (Wu et al. 2018)."""

    kind: Literal["per-position"] = "per-position"

    def build(self, *, query_size: int) -> Readout:
        """Make the readout."""
        return PerPosition()


ReadoutConfig = Annotated[
    ExpectationConfig | SelectionConfig | GatedConfig | PerPositionConfig,
    Field(discriminator="kind"),
]

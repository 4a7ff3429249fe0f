"""The readouts, as a configuration names them."""

from __future__ import annotations

from typing import Literal

from heedful.attention.readouts import Expectation, Readout
from heedful.config import Choice


class ExpectationConfig(Choice):
    """Take the mean of the values under the weights."""

    kind: Literal["expectation"] = "expectation"

    def build(self) -> Readout:
        """Make the readout."""
        return Expectation()


ReadoutConfig = ExpectationConfig

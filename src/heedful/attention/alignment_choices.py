"""The alignments, as a configuration names them."""

from __future__ import annotations

from typing import Literal

from heedful.attention.alignments import Alignment, Softmax
from heedful.config import Choice


class SoftmaxConfig(Choice):
    """Share attention in proportion to the exponential of the score."""

    kind: Literal["softmax"] = "softmax"

    def build(self) -> Alignment:
        """Make the alignment."""
        return Softmax()


AlignmentConfig = SoftmaxConfig

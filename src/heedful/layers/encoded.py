"""Encoded: what an encoder hands to a decoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from heedful.shapes import Float, Int


class Encoded(NamedTuple):
    """A source that has been read."""

    states: Float[Tensor, "B S V"]  # one for every position; zero past the end
    lengths: Int[Tensor, "B"]
    summary: Float[Tensor, "B V"]  # the whole source in one vector

"""Records: what one example is, before it is tokens."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """A text and what should become of it."""

    source: str
    target: str

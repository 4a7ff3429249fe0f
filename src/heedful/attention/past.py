"""The past: what a mechanism has asked so far.

It is a value: it goes in with the next queries and comes out with what they found. A decoder
carries it from step to step, and a search selects its rows like those of any other state.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Float, Int


class Past(NamedTuple):
    """What has been asked so far, and where it was looked."""

    asked: Int[Tensor, "*B"]  # how many queries
    last: Float[Tensor, "*B S"]  # where the last one looked; zeros before the first
    total: Float[Tensor, "*B S"]  # where all of them looked, added up: the coverage
    context: Float[Tensor, "*B V"]  # what the last one took; zeros before the first
    chance: Float[Tensor, "*B"]  # between 0 and 1, drawn once per source: decides once and for all


def positions(past: Past | None, count: int, device: torch.device) -> Int[Tensor, "*B T"]:
    """Number the next queries, the first ever asked being 0."""
    numbers = torch.arange(count, device=device)
    return numbers if past is None else past.asked.unsqueeze(-1) + numbers

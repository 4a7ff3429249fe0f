"""Greedy search: the likeliest token, every time.

It is a beam of one hypothesis that stops at the first end, and takes no longer for it.
"""

from __future__ import annotations

from torch import Tensor

from heedful.search.beam import Searching, beam_search
from heedful.search.penalties import LengthPenalty
from heedful.search.protocol import State, Steps
from heedful.search.stopping import FIRST
from heedful.search.trellis import Hypothesis, Trellis
from heedful.shapes import Int


def greedy_search(
    model: Steps[State],
    state: State,
    *,
    begin: int,
    end: int,
    max_lengths: Int[Tensor, "B"],
    penalty: LengthPenalty | None = None,
    how: Searching | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
    trellis: Trellis | None = None,
) -> list[Hypothesis]:
    """Follow the likeliest token of every row; rows that have ended leave the batch.

    A row that has `max_lengths` tokens must end.
    """
    found = beam_search(
        model,
        state,
        begin=begin,
        end=end,
        width=1,
        max_lengths=max_lengths,
        penalty=penalty,
        how=(how or Searching())._replace(stopping=FIRST),
        source_lengths=source_lengths,
        trellis=trellis,
    )
    return [hypotheses[0] for hypotheses in found]

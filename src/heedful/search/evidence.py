"""Evidence: what did a model think of outputs, and where did it look, token by token?

The outputs grow side by side, each in a row of its own; a row that has ended leaves the batch. So
it is when outputs are given and when they are drawn; where they are searched for, rows branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from heedful.errors import RunError
from heedful.search.protocol import Step
from heedful.search.trellis import Ending, Hypothesis, Trellis
from heedful.shapes import Int


class Evidence:
    """What is known of some outputs so far."""

    def __init__(self, count: int) -> None:
        self._trellis = Trellis()
        self._trellis.begin(np.arange(count))
        self._rows = np.arange(count)  # the outputs that have not ended
        self._endings = [Ending(0, 0, 0.0, 0.0)] * count

    def note(self, step: Step[Any], tokens: Int[Tensor, "R"], alive: Int[Tensor, "R2"]) -> None:
        """Take down a token of every row; for those whose places are not `alive` it is the end."""
        own = step.log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).double().cpu().numpy()
        if np.isnan(own).any():
            raise not_a_number(self._trellis.depth)
        kept = alive.cpu().numpy()
        self._trellis.look(step.weights)
        for place in np.setdiff1d(np.arange(len(own)), kept).tolist():
            ending = Ending(self._trellis.depth, place, float(own[place]), 0.0)
            self._endings[self._rows[place]] = ending
        self._trellis.grow(kept, tokens.cpu().numpy()[kept], own[kept])
        self._rows = self._rows[kept]

    def hypotheses(self) -> list[Hypothesis]:
        """Read every output back once all have ended; each scores what the model gives it."""
        found = self._trellis.read(self._endings)
        return [each._replace(score=each.log_prob) for each in found]


class NotNumbersError(RunError):
    """A model that has nothing to say."""


def not_a_number(depth: int) -> NotNumbersError:
    """Name a model that has nothing to say."""
    return NotNumbersError(
        "search",
        f"the model's log-probabilities after {depth} tokens are not numbers",
        "its weights or its arithmetic have overflowed: use an earlier checkpoint, or float32",
    )

"""Translations: outputs that carry their evidence.

Laws: `tokens`, `weights` and `owner` have an entry for each token, `log_probs` one more, for the
end; `source_tokens` and `source_owner` end in the end symbol of the source, which belongs to no
word; the sum of `log_probs` is `log_prob`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.report import snippet
from heedful.search.trellis import Fate

END_LABEL = "(end)"
NO_WORD = -1
"""The owner of a token that is part of no word: white space, or the end."""


class Branch(NamedTuple):
    """A node of a search's tree (`heedful.search.Node`), its token as shown."""

    parent: int | None
    token: str | None  # None where nothing was said yet
    log_prob: float
    total: float
    fate: Fate


class Translation(NamedTuple):
    """An output, its worth, and where each of its tokens looked."""

    source: str
    text: str
    score: float  # what it was chosen by: log-probability after penalties, or expected gain
    log_prob: float  # of all tokens and the end, as the model has it
    source_tokens: list[str]  # as shown; the last stands for the end of the source
    tokens: list[str]  # as shown
    log_probs: NDArray[np.float64]  # (tokens + 1,) of each token, and last of the end
    weights: NDArray[np.float32]  # (tokens, source tokens); rows sum to one where it looked
    end_weights: NDArray[np.float32]  # (source tokens,) where the end looked
    source_owner: list[int]  # which word of the source, parted by white space, a token is part of
    owner: list[int]  # the same of the output's tokens
    alternatives: tuple[Translation, ...] = ()  # further outputs: the next best, or drawn later
    tree: list[Branch] | None = None  # all that the search held, if it was asked for

    @property
    def attention_map(self) -> AttentionMap:
        """Where each token looked, ready to be drawn."""
        return AttentionMap(self.source_tokens, self.tokens, self.weights, title=self.source)

    def _repr_html_(self) -> str:
        return snippet(self.attention_map)
